//! A payload that is being written: to a file of the cache, or to memory where there is none. A
//! file that can be written no further (a full disk) is read back, so that no byte moves twice. What
//! has arrived when the work is given up goes to the file, for the next start.

use super::block_cache::{BlockCache, Partial};
use crate::error::Error;
use bytes::Bytes;
use std::time::{Duration, Instant};

/// Bytes gathered before they are written: pieces from the wire are much smaller. With
/// [`WRITE_INTERVAL`] it bounds what a killed station has to ask for again.
pub(super) const WRITE_BYTES: usize = 256 << 10;

/// Longest time that bytes stay unwritten while others arrive: a slow link would otherwise keep
/// many seconds' worth in memory, and those who wait for this block could not see that it grows.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// A payload on its way.
#[derive(Debug)]
pub(super) struct Incoming {
    cache: BlockCache,
    stored: Stored,
    pending: Vec<u8>,
    written: Instant,
}

#[derive(Debug)]
enum Stored {
    /// A file of the cache.
    File(Partial),
    /// There is no file to write to.
    Memory(Vec<u8>),
}

impl Incoming {
    /// A payload that goes on where `partial` ends, or that begins in memory.
    pub(super) fn new(cache: BlockCache, partial: Option<Partial>) -> Self {
        Self {
            cache,
            stored: partial.map_or_else(|| Stored::Memory(Vec::new()), Stored::File),
            pending: Vec::new(),
            written: Instant::now(),
        }
    }

    /// Takes the next bytes. What was taken before is lost if the future is dropped, but for what
    /// reaches the file.
    ///
    /// # Errors
    /// [`Error::File`] where a file can neither be written nor read back.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() < WRITE_BYTES && self.written.elapsed() < WRITE_INTERVAL {
            return Ok(());
        }
        self.flush().await
    }

    /// Writes what is pending.
    ///
    /// # Errors
    /// [`Error::File`] as for [`Incoming::push`].
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        let pending = std::mem::take(&mut self.pending);
        let stored = std::mem::replace(&mut self.stored, Stored::Memory(Vec::new()));
        let cache = self.cache.clone();
        (self.stored, self.pending) = blocking(move || stored.write(pending, &cache)).await?;
        self.written = Instant::now();
        Ok(())
    }

    /// Forgets all bytes: they are not the payload.
    pub(super) fn reset(&mut self) {
        self.pending.clear();
        match &mut self.stored {
            Stored::Memory(memory) => memory.clear(),
            Stored::File(partial) => {
                if let Err(error) = partial.reset() {
                    let path = partial.path().display();
                    self.cache.close(&format_args!("{path}: {error}"));
                    self.stored = Stored::Memory(Vec::new());
                }
            }
        }
    }

    /// The whole payload, in the cache where that works.
    ///
    /// # Errors
    /// [`Error::File`] as for [`Incoming::push`].
    pub(super) async fn keep(mut self, digest: [u8; 32]) -> Result<Bytes, Error> {
        self.flush().await?;
        let cache = self.cache.clone();
        match std::mem::replace(&mut self.stored, Stored::Memory(Vec::new())) {
            Stored::File(partial) => blocking(move || cache.keep(partial, &digest)).await,
            Stored::Memory(bytes) => Ok(bytes.into()),
        }
    }
}

impl Drop for Incoming {
    /// The load ends early, for a signal or an error elsewhere: at most [`WRITE_BYTES`] are written,
    /// so that the next start goes on behind them.
    fn drop(&mut self) {
        if let Stored::File(partial) = &mut self.stored
            && !self.pending.is_empty()
        {
            let _ = partial.append(&self.pending);
        }
    }
}

impl Stored {
    /// Appends `bytes` and hands their emptied buffer back.
    fn write(self, mut bytes: Vec<u8>, cache: &BlockCache) -> Result<(Self, Vec<u8>), Error> {
        let mut partial = match self {
            Self::Memory(mut memory) => {
                memory.append(&mut bytes);
                return Ok((Self::Memory(memory), bytes));
            }
            Self::File(partial) => partial,
        };
        match partial.append(&bytes) {
            Ok(()) => {
                bytes.clear();
                Ok((Self::File(partial), bytes))
            }
            Err(error) => {
                let path = partial.path().to_owned();
                cache.close(&format_args!("{}: {error}", path.display()));
                let mut memory = partial.into_memory().map_err(Error::file(&path))?;
                memory.append(&mut bytes);
                Ok((Self::Memory(memory), bytes))
            }
        }
    }
}

/// `work` on a thread that may wait for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_panicked| Error::Lost {
            what: "the block cache",
        })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knot::block_cache::Claim;

    fn whole() -> Vec<u8> {
        (0..5 * WRITE_BYTES / 2)
            .map(|at| (at % 251).to_le_bytes()[0])
            .collect()
    }

    fn claim(cache: &BlockCache, whole: &[u8]) -> Option<Partial> {
        let digest = *blake3::hash(whole).as_bytes();
        match cache.claim(&digest, whole.len() as u64, &cache.make_room(0)) {
            Claim::Ours(partial) => Some(partial),
            _ => None,
        }
    }

    #[tokio::test]
    async fn pieces_make_the_payload_with_a_cache_and_without() {
        let directory = tempfile::tempdir().unwrap();
        let whole = whole();
        let digest = *blake3::hash(&whole).as_bytes();
        for parent in [Some(directory.path()), None] {
            let cache = BlockCache::new(parent);
            let mut incoming = Incoming::new(cache.clone(), claim(&cache, &whole));
            for piece in whole.chunks(30_000) {
                incoming.push(piece).await.unwrap();
            }
            assert!(incoming.keep(digest).await.unwrap() == whole);
            assert_eq!(
                cache.lookup(&digest, whole.len() as u64).is_some(),
                parent.is_some()
            );
        }
    }

    #[tokio::test]
    async fn what_has_arrived_is_in_the_file_when_the_work_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let whole = whole();
        for end in [1, WRITE_BYTES - 1, WRITE_BYTES + 1, whole.len()] {
            let cache = BlockCache::new(Some(directory.path()));
            let mut incoming = Incoming::new(cache.clone(), claim(&cache, &whole));
            incoming.reset();
            for piece in whole[..end].chunks(30_000) {
                incoming.push(piece).await.unwrap();
            }
            drop(incoming);
            let mut next = claim(&cache, &whole).unwrap();
            assert_eq!(next.written(), end as u64);
            let mut hasher = blake3::Hasher::new();
            next.hash(&mut hasher).unwrap();
            assert_eq!(hasher.finalize(), blake3::hash(&whole[..end]));
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_further_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::new(Some(directory.path()));
        let mut partial = claim(&cache, b"begun and ended").unwrap();
        partial.append(b"begun ").unwrap();
        partial.make_unwritable();
        let mut incoming = Incoming::new(cache.clone(), Some(partial));
        incoming.push(b"and ended").await.unwrap();
        let whole = incoming.keep([0; 32]).await.unwrap();
        assert_eq!(whole, "begun and ended");
        assert!(
            claim(&cache, b"another").is_none(),
            "the cache is not tried again"
        );
        let left = std::fs::read_dir(directory.path().join("blocks")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
