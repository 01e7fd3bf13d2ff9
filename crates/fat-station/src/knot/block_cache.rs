//! A directory of payloads named by their BLAKE3. Files are written under a temporary name and
//! renamed, so that concurrent starts share them and never see half of one; nothing is synced, as
//! every file is hashed before it is used. It never removes what is sound: the operator may, at any
//! time. A cache that cannot be used costs a transfer, never a start: every failure is a miss.

use crate::error::Error;
use crate::mmap;
use bytes::Bytes;
use std::fmt::Display;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tempfile::NamedTempFile;

/// Begins the name of a file that is being written. Its writer holds a lock on it, which ends with
/// the writer however that ends: one that can be locked was left behind.
const INCOMING: &str = "incoming-";

/// Mode of a block, less the umask: what one user fetched, another may use, as it is hashed anyway.
const BLOCK_MODE: u32 = 0o644;

/// Temporary files that may be swept away before their lock is held, until this start gives up.
const BEGIN_ATTEMPTS: u32 = 8;

/// The block cache. Clones are the same cache; nothing is touched before the first use.
#[derive(Debug, Clone)]
pub struct BlockCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The directory that was configured or found, if any.
    parent: Option<PathBuf>,
    /// The directory of blocks, once it was made and swept; `None` where it cannot be.
    blocks: OnceLock<Option<PathBuf>>,
    /// Nothing more is written: a write has failed.
    closed: AtomicBool,
    warned: AtomicBool,
}

impl BlockCache {
    /// The cache below `directory`; without one, nothing is kept.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        Self(Arc::new(Shared {
            parent: directory.map(Path::to_owned),
            blocks: OnceLock::new(),
            closed: AtomicBool::new(false),
            warned: AtomicBool::new(false),
        }))
    }

    /// The payload with this digest, if a sound copy is here. A damaged one is removed.
    #[must_use]
    pub fn lookup(&self, digest: &[u8; 32], len_bytes: u64) -> Option<Bytes> {
        let path = self.path(digest)?;
        let bytes = match mmap::map(&path) {
            Ok(bytes) => bytes,
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                self.warn(&error.chain());
                return None;
            }
        };
        if bytes.len() as u64 == len_bytes && blake3::hash(&bytes).as_bytes() == digest {
            return Some(bytes);
        }
        tracing::warn!(file = %path.display(), "a cached block is damaged and is fetched again");
        match std::fs::remove_file(&path) {
            // Another start may have removed it first.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                self.warn(&format_args!("{}: {error}", path.display()));
            }
            _ => {}
        }
        None
    }

    /// A file to write a payload to, which vanishes unless it is kept; `None` where none can be made.
    #[must_use]
    pub fn begin(&self) -> Option<NamedTempFile> {
        if self.0.closed.load(Ordering::Relaxed) {
            return None;
        }
        let directory = self.directory()?;
        match begin_in(directory) {
            Ok(file) => Some(file),
            Err(error) => {
                self.close(&format_args!("{}: {error}", directory.display()));
                None
            }
        }
    }

    /// Maps a whole, checked file and puts it under its digest. Where the name cannot be had the
    /// map is as good: it outlives the file.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be mapped.
    pub fn keep(&self, file: NamedTempFile, digest: &[u8; 32]) -> Result<Bytes, Error> {
        let bytes = mmap::map_open(file.as_file(), file.path())?;
        if let Some(path) = self.path(digest)
            && let Err(error) = file.persist(&path)
        {
            self.warn(&format_args!("{}: {}", path.display(), error.error));
        }
        Ok(bytes)
    }

    /// Writes nothing from now on, and says why.
    pub(super) fn close(&self, why: &dyn Display) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.warn(why);
    }

    /// Says once that the cache does not do its work: the first reason is most often the only one.
    fn warn(&self, why: &dyn Display) {
        if !self.0.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the block cache cannot be used: {why}; blocks are fetched again and kept in memory. \
                 --cache-dir names another directory"
            );
        }
    }

    /// The directory of blocks, made and swept at the first use.
    fn directory(&self) -> Option<&Path> {
        let open = || {
            let Some(parent) = &self.0.parent else {
                self.warn(&"neither XDG_CACHE_HOME nor HOME is set");
                return None;
            };
            let blocks = parent.join("blocks");
            if let Err(error) = std::fs::create_dir_all(&blocks) {
                self.warn(&format_args!("{}: {error}", blocks.display()));
                return None;
            }
            sweep(&blocks);
            Some(blocks)
        };
        self.0.blocks.get_or_init(open).as_deref()
    }

    fn path(&self, digest: &[u8; 32]) -> Option<PathBuf> {
        let name = blake3::Hash::from_bytes(*digest).to_hex();
        Some(self.directory()?.join(name.as_str()))
    }
}

/// A locked temporary file in `directory`. A sweep may come between the file and its lock: then its
/// name is gone, and another one is made.
fn begin_in(directory: &Path) -> std::io::Result<NamedTempFile> {
    for _ in 0..BEGIN_ATTEMPTS {
        let file = tempfile::Builder::new()
            .prefix(INCOMING)
            .permissions(Permissions::from_mode(BLOCK_MODE))
            .tempfile_in(directory)?;
        // Where the file system knows no locks, no sweep removes anything either.
        let _ = file.as_file().lock();
        if file.as_file().metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
    Err(std::io::Error::other("temporary files are removed at once"))
}

/// Removes what starts that were killed have left. What cannot be seen or removed stays.
fn sweep(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_incoming = entry.file_name().to_string_lossy().starts_with(INCOMING);
        // A FIFO would wait for a writer when it is opened.
        if !is_incoming || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        if let Ok(file) = std::fs::File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
