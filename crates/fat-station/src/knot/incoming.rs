//! A payload that is being written: to a file of the cache, or to memory where there is none. A
//! file that can be written no further (a full disk) is read back, so that no byte moves twice.

use super::block_cache::BlockCache;
use crate::error::Error;
use bytes::Bytes;
use std::io::{Read as _, Seek as _, Write as _};
use tempfile::NamedTempFile;

/// Bytes gathered before they are written: pieces from the wire are much smaller.
const WRITE_BYTES: usize = 1 << 20;

/// A payload on its way.
#[derive(Debug)]
pub(super) struct Incoming {
    cache: BlockCache,
    stored: Stored,
    pending: Vec<u8>,
}

#[derive(Debug)]
enum Stored {
    /// Nothing yet.
    Nothing,
    /// A file and the bytes that are surely in it.
    File(NamedTempFile, u64),
    /// There is no file to write to.
    Memory(Vec<u8>),
}

impl Incoming {
    pub(super) fn new(cache: BlockCache) -> Self {
        Self {
            cache,
            stored: Stored::Nothing,
            pending: Vec::new(),
        }
    }

    /// Takes the next bytes. The payload is lost if the future is dropped.
    ///
    /// # Errors
    /// [`Error::File`] where a file can neither be written nor read back.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() < WRITE_BYTES {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let stored = std::mem::replace(&mut self.stored, Stored::Nothing);
        let cache = self.cache.clone();
        (self.stored, self.pending) = blocking(move || stored.write(pending, &cache)).await?;
        Ok(())
    }

    /// The whole payload, in the cache where that works.
    ///
    /// # Errors
    /// [`Error::File`] as for [`Incoming::push`].
    pub(super) async fn keep(self, digest: [u8; 32]) -> Result<Bytes, Error> {
        let Self {
            cache,
            stored,
            pending,
        } = self;
        let keep = move || match stored.write(pending, &cache)?.0 {
            Stored::File(file, _) => cache.keep(file, &digest),
            Stored::Memory(bytes) => Ok(bytes.into()),
            Stored::Nothing => Ok(Bytes::new()),
        };
        blocking(keep).await
    }
}

impl Stored {
    /// Appends `bytes` and hands their emptied buffer back.
    fn write(self, mut bytes: Vec<u8>, cache: &BlockCache) -> Result<(Self, Vec<u8>), Error> {
        let (mut file, written) = match self {
            Self::Memory(mut memory) => {
                memory.append(&mut bytes);
                return Ok((Self::Memory(memory), bytes));
            }
            Self::File(file, written) => (file, written),
            Self::Nothing => match cache.begin() {
                Some(file) => (file, 0),
                None => return Ok((Self::Memory(bytes), Vec::new())),
            },
        };
        match file.write_all(&bytes) {
            Ok(()) => {
                let written = written + bytes.len() as u64;
                bytes.clear();
                Ok((Self::File(file, written), bytes))
            }
            Err(error) => {
                cache.close(&format_args!("{}: {error}", file.path().display()));
                let mut memory = read_back(&mut file, written).map_err(Error::file(file.path()))?;
                memory.append(&mut bytes);
                Ok((Self::Memory(memory), bytes))
            }
        }
    }
}

/// The first `written` bytes of `file`.
fn read_back(file: &mut NamedTempFile, written: u64) -> std::io::Result<Vec<u8>> {
    file.rewind()?;
    let mut memory = Vec::new();
    file.take(written).read_to_end(&mut memory)?;
    if memory.len() as u64 == written {
        Ok(memory)
    } else {
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }
}

async fn blocking<T: Send + 'static>(
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

    #[tokio::test]
    async fn pieces_make_the_payload_with_a_cache_and_without() {
        let directory = tempfile::tempdir().unwrap();
        let whole: Vec<u8> = (0..5 * WRITE_BYTES / 2)
            .map(|at| (at % 251).to_le_bytes()[0])
            .collect();
        let digest = *blake3::hash(&whole).as_bytes();
        for parent in [Some(directory.path()), None] {
            let cache = BlockCache::new(parent);
            let mut incoming = Incoming::new(cache.clone());
            for piece in whole.chunks(300_000) {
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
    async fn a_file_that_cannot_be_written_further_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::new(Some(directory.path()));
        let mut file = cache.begin().unwrap();
        file.write_all(b"begun ").unwrap();
        // A handle without the right to write fails as a full disk does.
        let readable = std::fs::File::open(file.path()).unwrap();
        let file = NamedTempFile::from_parts(readable, file.into_temp_path());
        let incoming = Incoming {
            cache: cache.clone(),
            stored: Stored::File(file, 6),
            pending: b"and ended".to_vec(),
        };
        let whole = incoming.keep([0; 32]).await.unwrap();
        assert_eq!(whole, "begun and ended");
        assert!(cache.begin().is_none(), "the cache is not tried again");
        let left = std::fs::read_dir(directory.path().join("blocks")).unwrap();
        assert_eq!(left.count(), 0);
    }
}
