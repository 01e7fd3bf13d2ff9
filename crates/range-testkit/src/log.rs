//! What a [`FaultServer`](crate::FaultServer) was asked, in order of arrival.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    entries: Arc<Mutex<Vec<LogEntry>>>,
    finished: watch::Sender<usize>,
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
        self.lock().clone()
    }

    /// Number of requests that have arrived.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing was asked yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Body bytes sent over all requests.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.lock().iter().map(|entry| entry.body_bytes).sum()
    }

    /// Waits until the server is done with `count` requests, then returns all entries.
    pub async fn finished(&self, count: usize) -> Vec<LogEntry> {
        let mut finished = self.finished.subscribe();
        // The sender lives in `self`: waiting cannot fail.
        let _ = finished.wait_for(|done| *done >= count).await;
        self.entries()
    }

    /// Adds a request and returns its number.
    pub(crate) fn begin(&self, entry: LogEntry) -> usize {
        let mut entries = self.lock();
        entries.push(entry);
        entries.len() - 1
    }

    pub(crate) fn update(&self, number: usize, change: impl FnOnce(&mut LogEntry)) {
        if let Some(entry) = self.lock().get_mut(number) {
            change(entry);
        }
    }

    pub(crate) fn end(&self, number: usize) {
        self.update(number, |entry| entry.finished = true);
        self.finished.send_modify(|done| *done += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LogEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
