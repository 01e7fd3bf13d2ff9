//! [`MemorySource`]: an object that is already in memory. Reads are views, nothing is copied.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};

use crate::source::check_inside;
use crate::{ByteRange, Error, ObjectVersion, RangeSource, ReadOptions};

/// An object held in memory, or mapped through `Bytes::from_owner`.
#[derive(Clone)]
pub struct MemorySource {
    name: String,
    bytes: Bytes,
}

impl MemorySource {
    /// The object `bytes` under a name for people.
    pub fn new(name: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self {
            name: name.into(),
            bytes: bytes.into(),
        }
    }

    fn view(&self, range: ByteRange, options: &ReadOptions) -> Result<Bytes, Error> {
        let len_bytes = self.bytes.len();
        check_inside(&self.name, range, len_bytes as u64)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        // Inside the object, so both ends fit; the clamp only keeps the conversion total.
        let at = |offset: u64| usize::try_from(offset).unwrap_or(len_bytes).min(len_bytes);
        options.meter.add_request();
        options.meter.add_received(range.len());
        Ok(self.bytes.slice(at(range.start)..at(range.end)))
    }
}

impl std::fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemorySource")
            .field("name", &self.name)
            .field("len_bytes", &self.bytes.len())
            .finish()
    }
}

impl RangeSource for MemorySource {
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        std::future::ready(self.view(range, options)).boxed()
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
        let whole = self.view(range, options);
        stream::iter(Some(whole).filter(|piece| !piece.as_ref().is_ok_and(Bytes::is_empty))).boxed()
    }

    fn version(&self) -> Option<ObjectVersion> {
        Some(ObjectVersion {
            len_bytes: self.bytes.len() as u64,
            etag: None,
            weak_etag: None,
        })
    }

    /// One: a view takes no time.
    fn parallelism(&self) -> usize {
        1
    }

    fn request_cost_bytes(&self) -> u64 {
        0
    }

    fn name(&self) -> &str {
        &self.name
    }
}
