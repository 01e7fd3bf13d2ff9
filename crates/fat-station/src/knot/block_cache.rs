//! A directory of payloads named by their BLAKE3. Files are written under a temporary name and
//! renamed, so that concurrent starts share them and never see half of one; nothing is synced, as
//! every file is hashed before it is used. It never removes what is sound: the operator may, at any
//! time.

use crate::error::Error;
use crate::mmap;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The block cache.
#[derive(Debug, Clone)]
pub struct BlockCache {
    directory: PathBuf,
}

impl BlockCache {
    /// Opens the cache below `directory`, which is made if it is missing.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be made.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let directory = directory.join("blocks");
        std::fs::create_dir_all(&directory).map_err(Error::file(&directory))?;
        Ok(Self { directory })
    }

    /// The payload with this digest, if a sound copy is here. A damaged one is removed.
    ///
    /// # Errors
    /// [`Error::File`] where a file is there but cannot be read or removed.
    pub fn lookup(&self, digest: &[u8; 32], len_bytes: u64) -> Result<Option<Bytes>, Error> {
        let path = self.path(digest);
        let bytes = match mmap::map(&path) {
            Ok(bytes) => bytes,
            Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if bytes.len() as u64 == len_bytes && blake3::hash(&bytes).as_bytes() == digest {
            return Ok(Some(bytes));
        }
        tracing::warn!(file = %path.display(), "a cached block is damaged and is fetched again");
        match std::fs::remove_file(&path) {
            // Another start may have removed it first.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::File {
                path,
                source: error,
            }),
            _ => Ok(None),
        }
    }

    /// A file to write a payload to. It vanishes unless it is kept.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be made.
    pub fn begin(&self) -> Result<NamedTempFile, Error> {
        tempfile::Builder::new()
            .prefix("incoming-")
            .tempfile_in(&self.directory)
            .map_err(Error::file(&self.directory))
    }

    /// Puts a whole, checked file under its digest and maps it.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be renamed or mapped.
    pub fn keep(&self, file: NamedTempFile, digest: &[u8; 32]) -> Result<Bytes, Error> {
        let path = self.path(digest);
        file.persist(&path).map_err(|error| Error::File {
            path: path.clone(),
            source: error.error,
        })?;
        mmap::map(&path)
    }

    fn path(&self, digest: &[u8; 32]) -> PathBuf {
        self.directory
            .join(blake3::Hash::from_bytes(*digest).to_hex().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_was_kept_is_found_and_what_was_dropped_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(directory.path()).unwrap();
        let digest = *blake3::hash(b"block").as_bytes();
        assert!(cache.lookup(&digest, 5).unwrap().is_none());
        drop(cache.begin().unwrap());
        for _ in 0..2 {
            // The second start renames over the first one's file.
            let mut file = cache.begin().unwrap();
            file.write_all(b"block").unwrap();
            assert_eq!(cache.keep(file, &digest).unwrap(), "block");
        }
        assert_eq!(cache.lookup(&digest, 5).unwrap().unwrap(), "block");
        assert_eq!(
            std::fs::read_dir(directory.path().join("blocks"))
                .unwrap()
                .count(),
            1
        );
    }

    #[test]
    fn a_damaged_file_is_removed_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(directory.path()).unwrap();
        let digest = *blake3::hash(b"block").as_bytes();
        for damaged in [&b"bl0ck"[..], b"bloc", b""] {
            std::fs::write(cache.path(&digest), damaged).unwrap();
            assert!(cache.lookup(&digest, 5).unwrap().is_none(), "{damaged:?}");
            assert!(!cache.path(&digest).exists());
        }
    }
}
