//! A block that is being written: a file named by the digest that is wanted, locked by its writer
//! for as long as that lives. What a dead writer left is taken up where it ends; whose bytes those
//! are is settled by the digest of the whole, never by the name. Not a format: raw bytes of the block.

use super::BLOCK_MODE;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Begins the name of a partial; the wanted digest follows.
pub(super) const PARTIAL: &str = "partial-";

/// Renames and removals that may come between an open and its lock until this start gives up.
const LOCK_ATTEMPTS: u32 = 8;

/// Bytes read at once when a prefix is hashed.
const READ_BYTES: usize = 256 << 10;

/// The file of a block that this process writes. Dropped, it stays for the next start, unless there
/// is nothing in it.
#[derive(Debug)]
pub(in crate::knot) struct Partial {
    file: File,
    path: PathBuf,
    written: u64,
    keep: Keep,
}

/// What becomes of a partial that was not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// It stays: its name says what it will be.
    ForResume,
    /// It goes: nobody else could find it.
    Nothing,
}

/// The lock of a partial's name.
#[derive(Debug)]
pub(super) enum Locked {
    /// This process has it.
    Ours(Partial),
    /// A running writer has it.
    Theirs,
    /// The file system knows no locks, something else has the name, or it is never at rest: whoever
    /// writes needs a name of their own.
    Unlockable,
}

impl Partial {
    /// Takes the name `path`, of a block of `len_bytes`.
    ///
    /// # Errors
    /// Whatever keeps the file from being made.
    pub(super) fn lock(path: &Path, len_bytes: u64) -> io::Result<Locked> {
        for _ in 0..LOCK_ATTEMPTS {
            // Before it is opened: a FIFO would wait for a writer, a link lead elsewhere.
            if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
                return Ok(Locked::Unlockable);
            }
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(BLOCK_MODE)
                .open(path);
            let file = match file {
                // Another user's: it may be read, not written.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Ok(Locked::Unlockable);
                }
                other => other?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Locked::Theirs),
                Err(TryLockError::Error(_)) => return Ok(Locked::Unlockable),
            }
            let metadata = file.metadata()?;
            // Its writer may have finished and renamed it, or a sweep removed it, since it was
            // opened: then the lock is on a file that is no longer ours to write.
            if !is_at(&metadata, path) {
                continue;
            }
            let mut partial = Self {
                file,
                path: path.to_owned(),
                written: metadata.len(),
                keep: Keep::ForResume,
            };
            if partial.written > len_bytes {
                partial.reset()?;
            }
            return Ok(Locked::Ours(partial));
        }
        Ok(Locked::Unlockable)
    }

    /// A partial of another name, which goes when it is dropped unfinished.
    pub(super) fn private(file: tempfile::NamedTempFile) -> io::Result<Self> {
        let (file, path) = file.keep().map_err(|error| error.error)?;
        Ok(Self {
            file,
            path,
            written: 0,
            keep: Keep::Nothing,
        })
    }

    /// Bytes of the block that are in the file.
    pub(in crate::knot) fn written(&self) -> u64 {
        self.written
    }

    /// Its place.
    pub(in crate::knot) fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Feeds what is in the file to `hasher`.
    pub(in crate::knot) fn hash(&mut self, hasher: &mut blake3::Hasher) -> io::Result<()> {
        self.file.rewind()?;
        let mut rest = self.written;
        let mut buffer = vec![0; READ_BYTES];
        while rest > 0 {
            let most = usize::try_from(rest).map_or(READ_BYTES, |rest| rest.min(READ_BYTES));
            let read = self.file.read(&mut buffer[..most])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            hasher.update(&buffer[..read]);
            rest -= read as u64;
        }
        Ok(())
    }

    /// Appends `bytes`. After an error the file holds what it held before, or more; only the former
    /// counts.
    pub(in crate::knot) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.written))?;
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Empties it: what it holds is not the block.
    pub(in crate::knot) fn reset(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.written = 0;
        Ok(())
    }

    /// The bytes that are in it; the file goes, as they will be held in memory.
    pub(in crate::knot) fn into_memory(mut self) -> io::Result<Vec<u8>> {
        self.keep = Keep::Nothing;
        self.file.rewind()?;
        let mut memory = Vec::new();
        (&self.file).take(self.written).read_to_end(&mut memory)?;
        if memory.len() as u64 == self.written {
            Ok(memory)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Gives the finished file its name.
    pub(super) fn rename(mut self, to: &Path) -> io::Result<()> {
        self.keep = Keep::Nothing;
        std::fs::rename(&self.path, to)?;
        self.path = PathBuf::new();
        // A map of the file would keep the lock as long as it lives.
        let _ = self.file.unlock();
        Ok(())
    }

    /// Removes it: the block is here already.
    pub(super) fn remove(mut self) {
        self.keep = Keep::Nothing;
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let goes = self.keep == Keep::Nothing || self.written == 0;
        // The lock is still held, so the name is still this file's; an empty one is that of a file
        // that was renamed.
        if goes && !self.path.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&self.path);
        } else if !self.path.as_os_str().is_empty() {
            // A write that failed half way may have left bytes that were never counted.
            let _ = self.file.set_len(self.written);
        }
    }
}

/// Whether the file with this metadata is the one at `path`.
pub(super) fn is_at(metadata: &std::fs::Metadata, path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|found| (found.dev(), found.ino()) == (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
impl Partial {
    /// From now on writes fail as on a full disk: the handle has no right to write.
    pub(in crate::knot) fn make_unwritable(&mut self) {
        let readable = File::open(&self.path).expect("it is there");
        self.file = readable;
    }
}
