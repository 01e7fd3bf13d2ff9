//! A source in memory that logs what it is asked, cuts streams where it is told, and may hold them.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use helix_transport::{ByteRange, Error, MemorySource, ObjectVersion, RangeSource, ReadOptions};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Bytes of one piece of a stream.
const PIECE_BYTES: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Scripted {
    inner: MemorySource,
    /// Ranges of streams, in the order they began.
    asked: Arc<Mutex<Vec<ByteRange>>>,
    /// Offsets at which a stream fails, each once.
    cuts: Mutex<Vec<u64>>,
    /// Where every stream ends without an error.
    end: u64,
    /// Streams wait for a permit before their first byte.
    gate: Option<Arc<Semaphore>>,
}

impl Scripted {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self {
            inner: MemorySource::new("knot", bytes.to_vec()),
            asked: Arc::default(),
            cuts: Mutex::default(),
            end: u64::MAX,
            gate: None,
        }
    }

    pub(super) fn cut_at(self, cuts: impl Into<Vec<u64>>) -> Self {
        *self.cuts.lock().unwrap() = cuts.into();
        self
    }

    pub(super) fn ending_at(self, end: u64) -> Self {
        Self { end, ..self }
    }

    pub(super) fn behind(self, gate: &Arc<Semaphore>) -> Self {
        let gate = Some(Arc::clone(gate));
        Self { gate, ..self }
    }

    pub(super) fn asked(&self) -> Arc<Mutex<Vec<ByteRange>>> {
        Arc::clone(&self.asked)
    }

    /// Where a stream of `range` is to fail.
    fn cut(&self, range: ByteRange) -> Option<u64> {
        let mut cuts = self.cuts.lock().unwrap();
        let at = cuts
            .iter()
            .position(|cut| (range.start..range.end).contains(cut))?;
        Some(cuts.remove(at))
    }
}

impl RangeSource for Scripted {
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        self.inner.read(range, options)
    }

    fn read_prefix<'a>(
        &'a self,
        max_bytes: u64,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        self.inner.read_prefix(max_bytes, options)
    }

    fn stream<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxStream<'a, Result<Bytes, Error>> {
        self.asked.lock().unwrap().push(range);
        let cut = self.cut(range);
        let end = range.end.min(cut.unwrap_or(self.end)).max(range.start);
        let starts = (range.start..end).step_by(usize::try_from(PIECE_BYTES).unwrap());
        let pieces = futures::stream::iter(starts).then(move |start| {
            let piece = ByteRange::new(start, (start + PIECE_BYTES).min(end)).unwrap();
            self.inner.read(piece, options)
        });
        let failure = futures::stream::iter(cut.map(|at| {
            Err(Error::Interrupted {
                object: "knot".to_owned(),
                range,
                received_bytes: at - range.start,
                source: None,
            })
        }));
        let gate = self.gate.clone();
        let opened = futures::stream::once(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            futures::stream::empty()
        })
        .flatten();
        opened.chain(pieces).chain(failure).boxed()
    }

    fn version(&self) -> Option<ObjectVersion> {
        self.inner.version()
    }

    /// Streams that are held may be many; others come one after the other, so that what is asked is
    /// no accident.
    fn parallelism(&self) -> usize {
        if self.gate.is_some() { 16 } else { 1 }
    }

    fn request_cost_bytes(&self) -> u64 {
        self.inner.request_cost_bytes()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}
