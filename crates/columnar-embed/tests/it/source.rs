//! A source in memory that keeps a log, can hold its replies back, and lies or fails when told.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::BoxFuture,
    stream::{BoxStream, once},
};
use helix_transport::{ByteRange, Error, ObjectVersion, RangeSource, ReadOptions};
use tokio::sync::Semaphore;

/// What one reply does instead of being right.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The read fails as a broken connection would.
    Broken,
    /// As many bytes as asked, taken from so many bytes further on: perfect headers, other rows.
    Shifted(u64),
    /// One byte less than asked, as a faulty decorator might give.
    Short,
    /// One bit wrong in the middle.
    Flipped,
    /// The reading task panics.
    Panic,
}

#[derive(Debug)]
pub(crate) struct ScriptedSource {
    name: String,
    bytes: Bytes,
    /// Ranges asked for, in order.
    asked: Mutex<Vec<ByteRange>>,
    /// Faults by number of the request, from 0.
    faults: Mutex<HashMap<usize, Fault>>,
    replies: Semaphore,
    arrivals: Semaphore,
    parallelism: AtomicUsize,
}

/// More replies than any test asks for: the gate stands open.
const OPEN: usize = 1 << 40;

impl ScriptedSource {
    pub(crate) fn new(name: &str, bytes: Bytes) -> Self {
        Self {
            name: name.into(),
            bytes,
            asked: Mutex::default(),
            faults: Mutex::default(),
            replies: Semaphore::new(OPEN),
            arrivals: Semaphore::new(0),
            parallelism: AtomicUsize::new(16),
        }
    }

    pub(crate) fn asked(&self) -> Vec<ByteRange> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// The request of this number, counted from 0 over all requests, gets `fault`.
    pub(crate) fn fault(&self, request: usize, fault: Fault) {
        self.faults.lock().unwrap().insert(request, fault);
    }

    pub(crate) fn set_parallelism(&self, requests: usize) {
        self.parallelism.store(requests, Ordering::SeqCst);
    }

    /// From now on requests arrive and are logged, and get no reply.
    pub(crate) fn hold_replies(&self) {
        self.replies.forget_permits(OPEN);
    }

    pub(crate) fn release_replies(&self) {
        self.replies.add_permits(OPEN);
    }

    /// Returns once `requests` more requests have arrived.
    pub(crate) async fn arrived(&self, requests: u32) {
        self.arrivals.acquire_many(requests).await.unwrap().forget();
    }

    async fn reply(&self, range: ByteRange, options: &ReadOptions) -> Result<Bytes, Error> {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(range);
            asked.len() - 1
        };
        options.meter.add_request();
        self.arrivals.add_permits(1);
        self.replies.acquire().await.unwrap().forget();
        let fault = self.faults.lock().unwrap().get(&number).copied();
        let (start, end) = (range.start as usize, range.end as usize);
        let body = match fault {
            None => self.bytes.slice(start..end),
            Some(Fault::Shifted(by)) => {
                let by = by as usize;
                self.bytes.slice(start + by..end + by)
            }
            Some(Fault::Short) => self.bytes.slice(start..end - 1),
            Some(Fault::Flipped) => {
                let mut bytes = self.bytes[start..end].to_vec();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x10;
                bytes.into()
            }
            Some(Fault::Broken) => {
                let (object, received_bytes) = (self.name.clone(), 0);
                return Err(Error::Interrupted {
                    object,
                    range,
                    received_bytes,
                    source: None,
                });
            }
            Some(Fault::Panic) => panic!("scripted"),
        };
        options.meter.add_received(body.len() as u64);
        Ok(body)
    }
}

impl RangeSource for ScriptedSource {
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        self.reply(range, options).boxed()
    }

    fn read_prefix<'a>(
        &'a self,
        max_bytes: u64,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        let end = max_bytes.min(self.bytes.len() as u64);
        self.read(ByteRange { start: 0, end }, options)
    }

    fn stream<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxStream<'a, Result<Bytes, Error>> {
        Box::pin(once(self.read(range, options)))
    }

    fn version(&self) -> Option<ObjectVersion> {
        None
    }

    fn parallelism(&self) -> usize {
        self.parallelism.load(Ordering::SeqCst)
    }

    fn request_cost_bytes(&self) -> u64 {
        620
    }

    fn name(&self) -> &str {
        &self.name
    }
}
