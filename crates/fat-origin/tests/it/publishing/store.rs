//! A store in memory that counts what is asked of it and, at a chosen operation, dies, refuses or
//! tells lies: every moment at which a publisher can be cut is an operation of its store.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use tokio::sync::Notify;

/// What happens at the chosen operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process is gone before the store hears of it.
    DieBefore,
    /// The store did it, and the process is gone before it hears of that.
    DieAfter,
    /// The connection is reset.
    Reset,
    /// The disk is full.
    StorageFull,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) operation: &'static str,
    pub(crate) key: String,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct TestStore {
    pub(crate) inner: Arc<InMemory>,
    asked: Mutex<Vec<Asked>>,
    /// The fault and the number of the operation it strikes.
    fault: Option<(usize, Fault)>,
    dead: Notify,
}

impl TestStore {
    pub(crate) fn over(inner: &Arc<InMemory>, fault: Option<(usize, Fault)>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            asked: Mutex::default(),
            fault,
            dead: Notify::new(),
        })
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn of(&self, operation: &str) -> Vec<Asked> {
        let mut asked = self.asked();
        asked.retain(|asked| asked.operation == operation);
        asked
    }

    /// Until the fault that kills has struck.
    pub(crate) async fn died(&self) {
        self.dead.notified().await;
    }

    async fn run<T>(
        &self,
        operation: &'static str,
        key: &Key,
        bytes: usize,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(Asked {
                operation,
                key: key.to_string(),
                bytes,
            });
            asked.len() - 1
        };
        let io = |kind| Error::Generic {
            store: "test",
            source: Box::new(std::io::Error::from(kind)),
        };
        match self.fault {
            Some((at, fault)) if at == number => match fault {
                Fault::Reset => Err(io(std::io::ErrorKind::ConnectionReset)),
                Fault::StorageFull => Err(io(std::io::ErrorKind::StorageFull)),
                Fault::DieBefore => self.die().await,
                Fault::DieAfter => {
                    let _ = work.await;
                    self.die().await
                }
            },
            _ => work.await,
        }
    }

    async fn die<T>(&self) -> T {
        self.dead.notify_one();
        std::future::pending().await
    }

    pub(crate) async fn object(&self, key: &str) -> Option<Bytes> {
        let found = self.inner.get(&Key::from(key)).await.ok()?;
        Some(found.bytes().await.unwrap())
    }
}

impl fmt::Display for TestStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("test store")
    }
}

#[async_trait]
impl ObjectStore for TestStore {
    async fn put_opts(
        &self,
        location: &Key,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let bytes = payload.content_length();
        let work = self.inner.put_opts(location, payload, options);
        self.run("put", location, bytes, work).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Key,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let work = self.inner.put_multipart_opts(location, options);
        self.run("stream", location, 0, work).await
    }

    async fn get_opts(&self, location: &Key, options: GetOptions) -> Result<GetResult> {
        let operation = if options.head { "head" } else { "get" };
        let work = self.inner.get_opts(location, options);
        self.run(operation, location, 0, work).await
    }

    async fn get_ranges(&self, location: &Key, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let work = self.inner.get_ranges(location, ranges);
        self.run("get ranges", location, 0, work).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Key>>,
    ) -> BoxStream<'static, Result<Key>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for TestStore {
    async fn create_multipart(&self, path: &Key) -> Result<MultipartId> {
        self.run("create", path, 0, self.inner.create_multipart(path))
            .await
    }

    async fn create_multipart_opts(
        &self,
        path: &Key,
        options: PutMultipartOptions,
    ) -> Result<MultipartId> {
        let work = self.inner.create_multipart_opts(path, options);
        self.run("create with attributes", path, 0, work).await
    }

    async fn put_part(
        &self,
        path: &Key,
        id: &MultipartId,
        part_idx: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let bytes = data.content_length();
        let work = self.inner.put_part(path, id, part_idx, data);
        self.run("part", path, bytes, work).await
    }

    async fn complete_multipart(
        &self,
        path: &Key,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let work = self.inner.complete_multipart(path, id, parts);
        self.run("complete", path, 0, work).await
    }

    async fn abort_multipart(&self, path: &Key, id: &MultipartId) -> Result<()> {
        let work = self.inner.abort_multipart(path, id);
        self.run("abort", path, 0, work).await
    }
}
