//! An object of a store as a [`RangeSource`], so that what was published is read back by the code that
//! stations read with. For read-back alone: it keeps no version, since a name stands for its content.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use helix_transport::{ByteRange, Error, ObjectVersion, RangeSource, ReadOptions};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _};

use super::failure::explain;

/// Reads that are on their way at once.
const PARALLEL: usize = 8;
/// Both heads of one signed HTTP/1.1 exchange.
const REQUEST_BYTES: u64 = 1200;

#[derive(Debug)]
pub(super) struct StoreSource {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) len_bytes: u64,
}

impl StoreSource {
    async fn get(&self, range: ByteRange, options: &ReadOptions) -> Result<Bytes, Error> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        options.meter.add_request();
        let got = self
            .store
            .get_range(&self.key, range.start..range.end)
            .await;
        let bytes = got.map_err(|error| Error::Io {
            object: self.name.clone(),
            source: std::io::Error::other(explain(&error).1),
        })?;
        options.meter.add_received(bytes.len() as u64);
        if bytes.len() as u64 == range.len() {
            Ok(bytes)
        } else {
            Err(Error::Interrupted {
                object: self.name.clone(),
                range,
                received_bytes: bytes.len() as u64,
                source: None,
            })
        }
    }
}

impl RangeSource for StoreSource {
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        self.get(range, options).boxed()
    }

    fn read_prefix<'a>(
        &'a self,
        max_bytes: u64,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        let end = max_bytes.min(self.len_bytes);
        self.read(ByteRange { start: 0, end }, options)
    }

    fn stream<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxStream<'a, Result<Bytes, Error>> {
        stream::once(self.read(range, options)).boxed()
    }

    fn version(&self) -> Option<ObjectVersion> {
        Some(ObjectVersion {
            len_bytes: self.len_bytes,
            etag: None,
            weak_etag: None,
        })
    }

    fn parallelism(&self) -> usize {
        PARALLEL
    }

    fn request_cost_bytes(&self) -> u64 {
        REQUEST_BYTES
    }

    fn name(&self) -> &str {
        &self.name
    }
}
