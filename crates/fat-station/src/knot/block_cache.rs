//! A directory of payloads named by their BLAKE3, shared by all stations of a machine. A block is
//! written under a name of its own and renamed when it is whole and checked, so nobody sees half of
//! one; an unfinished one is taken up by the next start. Nothing is synced, as every byte is hashed
//! before it is used. A cache that cannot be used costs a transfer, never a start: every failure is
//! a miss. How a block comes is `fetch`'s matter; what may stay, `room`'s.

mod partial;
mod room;

pub(super) use partial::Partial;
pub(super) use room::Room;

use crate::error::Error;
use crate::mmap;
use bytes::Bytes;
use partial::{Locked, PARTIAL};
use room::{INCOMING, InUse, Ledger};
use std::fmt::Display;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// Mode of a block, less the umask: what one user fetched, another may use, as it is hashed anyway.
const BLOCK_MODE: u32 = 0o644;

/// The block cache. Clones are the same cache; nothing is touched before the first use.
#[derive(Debug, Clone)]
pub struct BlockCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The directory that was configured or found, if any.
    parent: Option<PathBuf>,
    /// Most bytes of blocks and partials, where there is a limit.
    limit_bytes: Option<u64>,
    /// The directory of blocks, once it was made and swept; `None` where it cannot be.
    blocks: OnceLock<Option<PathBuf>>,
    /// What this station uses, told to those that make room.
    in_use: Mutex<Option<InUse>>,
    /// Room that this station has set aside.
    ledger: Arc<Mutex<Ledger>>,
    /// Nothing more is written: a write has failed.
    closed: AtomicBool,
    warned: AtomicBool,
    full: AtomicBool,
}

/// Whose a missing block is to fetch.
#[derive(Debug)]
pub(super) enum Claim {
    /// It is here by now.
    Found(Bytes),
    /// This station's, after what the file already holds.
    Ours(Partial),
    /// Another one's, which is at it.
    Theirs,
    /// This station's, without a file to write to.
    Nowhere,
}

impl BlockCache {
    /// The cache below `directory`; without one, nothing is kept.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        Self::with_limit(directory, None)
    }

    /// The cache below `directory` that holds at most `limit_bytes`, unless what running stations use
    /// takes more. What does not fit is not kept.
    #[must_use]
    pub fn with_limit(directory: Option<&Path>, limit_bytes: Option<u64>) -> Self {
        Self(Arc::new(Shared {
            parent: directory.map(Path::to_owned),
            limit_bytes,
            blocks: OnceLock::new(),
            in_use: Mutex::new(None),
            ledger: Arc::default(),
            closed: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            full: AtomicBool::new(false),
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
            touch(&path);
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

    /// Tells those that make room what this station uses from now on.
    pub(super) fn note_in_use(&self, digests: &[[u8; 32]]) {
        let Some(directory) = self.directory() else {
            return;
        };
        let mut in_use = self.0.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if in_use.is_none() {
            *in_use = InUse::begin(directory).ok();
        }
        if let Some(list) = in_use.as_mut() {
            // A list that cannot be written protects nothing; a block that is gone is fetched again.
            let _ = list.add(digests);
        }
    }

    /// Room for `needed_bytes` more, made by letting go what was unused for longest.
    pub(super) fn make_room(&self, needed_bytes: u64) -> Room {
        match (self.0.limit_bytes, self.directory()) {
            (Some(limit_bytes), Some(directory)) => {
                room::make_room(directory, limit_bytes, needed_bytes, &self.0.ledger)
            }
            _ => Room::unlimited(),
        }
    }

    /// Decides who fetches the block with this digest. Never waits.
    pub(super) fn claim(&self, digest: &[u8; 32], len_bytes: u64, room: &Room) -> Claim {
        let Some(directory) = self.directory().filter(|_| !self.is_closed()) else {
            return Claim::Nowhere;
        };
        let path = directory.join(format!(
            "{PARTIAL}{}",
            blake3::Hash::from_bytes(*digest).to_hex()
        ));
        let partial = match Partial::lock(&path, len_bytes) {
            Ok(Locked::Ours(partial)) => partial,
            Ok(Locked::Theirs) => return Claim::Theirs,
            Ok(Locked::Unlockable) => return self.claim_private(len_bytes, room),
            Err(error) => {
                self.close(&format_args!("{}: {error}", path.display()));
                return Claim::Nowhere;
            }
        };
        // Between the caller's look and the lock another start may have finished it.
        if let Some(found) = self.lookup(digest, len_bytes) {
            partial.remove();
            return Claim::Found(found);
        }
        if !room.take(len_bytes.saturating_sub(partial.written())) {
            self.warn_full(len_bytes);
            return Claim::Nowhere;
        }
        Claim::Ours(partial)
    }

    /// As [`BlockCache::claim`] for a block that another one fetches, or should, under a name that
    /// nobody else knows.
    pub(super) fn claim_private(&self, len_bytes: u64, room: &Room) -> Claim {
        let Some(directory) = self.directory().filter(|_| !self.is_closed()) else {
            return Claim::Nowhere;
        };
        if !room.take(len_bytes) {
            self.warn_full(len_bytes);
            return Claim::Nowhere;
        }
        match room::locked(directory, INCOMING).and_then(Partial::private) {
            Ok(partial) => Claim::Ours(partial),
            Err(error) => {
                self.close(&format_args!("{}: {error}", directory.display()));
                Claim::Nowhere
            }
        }
    }

    /// Maps a whole, checked file and puts it under its digest. Where the name cannot be had the
    /// map is as good: it outlives the file.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be mapped.
    pub(super) fn keep(&self, partial: Partial, digest: &[u8; 32]) -> Result<Bytes, Error> {
        let bytes = mmap::map_open(partial.file(), partial.path())?;
        if let Some(path) = self.path(digest)
            && let Err(error) = partial.rename(&path)
        {
            self.warn(&format_args!("{}: {error}", path.display()));
        }
        Ok(bytes)
    }

    /// A figure that changes while anybody writes to the cache.
    pub(super) fn pulse(&self) -> (u64, u64) {
        self.directory().map_or((0, 0), room::pulse)
    }

    /// Writes nothing from now on, and says why.
    pub(super) fn close(&self, why: &dyn Display) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.warn(why);
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Relaxed)
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

    /// Says once that the limit keeps blocks out.
    fn warn_full(&self, len_bytes: u64) {
        let limit_bytes = self.0.limit_bytes.unwrap_or_default();
        if !self.0.full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit_bytes,
                "a block of {len_bytes} bytes does not fit in the block cache beside what running \
                 stations use: it is kept in memory and fetched again at the next start. \
                 --cache-limit sets the limit"
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
            room::sweep(&blocks);
            Some(blocks)
        };
        self.0.blocks.get_or_init(open).as_deref()
    }

    fn path(&self, digest: &[u8; 32]) -> Option<PathBuf> {
        let name = blake3::Hash::from_bytes(*digest).to_hex();
        Some(self.directory()?.join(name.as_str()))
    }
}

/// Notes that the block at `path` is used now: the longest unused goes first. Whose file it is not
/// cannot say so.
fn touch(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

#[cfg(test)]
mod tests;
