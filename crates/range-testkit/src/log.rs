//! What a [`FaultServer`](crate::FaultServer) was asked, in order of arrival.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEntry {
    /// Number of the connection it came on, from 0.
    pub connection: u64,
    /// Request method.
    pub method: String,
    /// Request target as sent, query included.
    pub path: String,
    /// `Range` as sent.
    pub range: Option<String>,
    /// `If-Match` as sent.
    pub if_match: Option<String>,
    /// `Accept-Encoding` as sent.
    pub accept_encoding: Option<String>,
    /// `Authorization` as sent.
    pub authorization: Option<String>,
    /// `Proxy-Authorization` as sent.
    pub proxy_authorization: Option<String>,
    /// `Host` as sent.
    pub host: Option<String>,
    /// Name of the fault it met.
    pub fault: &'static str,
    /// When its head had arrived, in microseconds of Unix time.
    pub arrived_us: u64,
    /// Status of the reply; `None` if there was none.
    pub status: Option<u16>,
    /// Body bytes the system took from us: after an abort, more than the peer has read.
    pub body_bytes: u64,
    /// Whether the server is done with it.
    pub finished: bool,
}

/// The requests so far, shared by clones.
#[derive(Clone, Debug)]
pub struct RequestLog {
    entries: Arc<Mutex<Entries>>,
    finished: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Entries {
    kept: VecDeque<LogEntry>,
    /// Entries that were taken out.
    taken: usize,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self {
            entries: Arc::default(),
            finished: watch::Sender::new(0),
        }
    }
}

impl RequestLog {
    /// A copy of all entries.
    #[must_use]
    pub fn entries(&self) -> Vec<LogEntry> {
        self.lock().kept.iter().cloned().collect()
    }

    /// Takes out what is at the front and done with, so that a long run's log stays small.
    #[must_use]
    pub fn take_finished(&self) -> Vec<LogEntry> {
        let mut entries = self.lock();
        let done = entries.kept.iter().take_while(|entry| entry.finished);
        let done = done.count();
        entries.taken += done;
        entries.kept.drain(..done).collect()
    }

    /// Number of requests that have arrived.
    #[must_use]
    pub fn len(&self) -> usize {
        let entries = self.lock();
        entries.taken + entries.kept.len()
    }

    /// Whether nothing was asked yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Body bytes sent over all requests in the log.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.lock().kept.iter().map(|entry| entry.body_bytes).sum()
    }

    /// Waits until the server is done with `count` requests, then returns all entries.
    pub async fn finished(&self, count: usize) -> Vec<LogEntry> {
        let mut finished = self.finished.subscribe();
        // The sender lives in `self`: waiting cannot fail.
        let _ = finished.wait_for(|done| *done >= count).await;
        self.entries()
    }

    /// Adds a request and returns its number.
    pub(crate) fn begin(&self, mut entry: LogEntry) -> usize {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since_epoch.map_or(0, |since| since.as_micros());
        entry.arrived_us = u64::try_from(micros).unwrap_or(u64::MAX);
        let mut entries = self.lock();
        entries.kept.push_back(entry);
        entries.taken + entries.kept.len() - 1
    }

    pub(crate) fn update(&self, number: usize, change: impl FnOnce(&mut LogEntry)) {
        let mut entries = self.lock();
        let place = number.checked_sub(entries.taken);
        if let Some(entry) = place.and_then(|place| entries.kept.get_mut(place)) {
            change(entry);
        }
    }

    pub(crate) fn end(&self, number: usize) {
        self.update(number, |entry| entry.finished = true);
        self.finished.send_modify(|done| *done += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
