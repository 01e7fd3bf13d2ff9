//! How much the cache may hold, what goes when it is full, and what must not: every running station
//! lists the blocks it uses in a file that it keeps locked, and what stands in the list of a living
//! one stays. Nothing here is needed for a right answer: a block that is gone is fetched again.

use super::partial::{PARTIAL, is_at};
use std::collections::HashSet;
use std::fs::{DirEntry, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tempfile::NamedTempFile;

/// Begins the name of a station's list.
const STATION: &str = "station-";

/// Begins the name of a file that is written under a name of its own.
pub(super) const INCOMING: &str = "incoming-";

/// Held by whoever removes blocks, and shared by whoever adds to a list.
const GATE: &str = "eviction.lock";

/// Temporary files that may be swept away before their lock is held, until this start gives up.
const TEMPORARY_ATTEMPTS: u32 = 8;

/// Tries for the gate, `GATE_PAUSE` apart. Who holds it lists one directory, so this is more than
/// enough; a holder that was stopped must not stop others.
const GATE_TRIES: u32 = 100;
const GATE_PAUSE: Duration = Duration::from_millis(10);

/// Age at which a partial that nobody writes is taken for abandoned: a station that is restarted at
/// all is restarted sooner.
const PARTIAL_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Bytes of the cache that may still be written: set aside until this is dropped.
#[derive(Debug)]
pub(in crate::knot) struct Room {
    left: AtomicU64,
    ledger: Option<Arc<Mutex<Ledger>>>,
}

/// What the rooms of one station have set aside together. Payloads that are fetched at the same time
/// each have a room, and what one of them will write is not in the directory yet.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    rooms: usize,
    /// Bytes of the cache once all of these rooms are full.
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(ledger) = &self.ledger {
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.rooms = ledger.rooms.saturating_sub(1);
        }
    }
}

impl Room {
    /// No limit.
    pub(super) fn unlimited() -> Self {
        Self {
            left: AtomicU64::new(u64::MAX),
            ledger: None,
        }
    }

    /// Takes `bytes` of it, or nothing where there are fewer.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let less = |room: u64| room.checked_sub(bytes);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }
}

/// This station's list of blocks in use.
#[derive(Debug)]
pub(super) struct InUse {
    file: File,
    path: PathBuf,
}

impl InUse {
    /// A new list in `directory`.
    pub(super) fn begin(directory: &Path) -> io::Result<Self> {
        let named = locked(directory, STATION)?;
        let (file, path) = named.keep().map_err(|error| error.error)?;
        Ok(Self { file, path })
    }

    /// Adds blocks, each a line of 64 hexadecimal digits.
    pub(super) fn add(&mut self, digests: &[[u8; 32]]) -> io::Result<()> {
        let mut lines = String::with_capacity(digests.len() * 65);
        for digest in digests {
            lines.push_str(blake3::Hash::from_bytes(*digest).to_hex().as_str());
            lines.push('\n');
        }
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let _gate = gate(directory, File::try_lock_shared);
        self.file.write_all(lines.as_bytes())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A locked temporary file in `directory`. A sweep may come between the file and its lock: then its
/// name is gone, and another one is made.
pub(super) fn locked(directory: &Path, prefix: &str) -> io::Result<NamedTempFile> {
    for _ in 0..TEMPORARY_ATTEMPTS {
        let file = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(super::BLOCK_MODE))
            .tempfile_in(directory)?;
        // Where the file system knows no locks, no sweep removes anything either.
        let _ = file.as_file().try_lock();
        if file.as_file().metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
    Err(io::Error::other("temporary files are removed at once"))
}

/// Makes room for `needed_bytes` more in `directory` of at most `limit_bytes`: blocks and abandoned
/// partials go, the longest unused first, but none that a living station uses. The room is less than
/// what is needed where the rest is in use, or set aside in `ledger`.
pub(super) fn make_room(
    directory: &Path,
    limit_bytes: u64,
    needed_bytes: u64,
    ledger: &Arc<Mutex<Ledger>>,
) -> Room {
    let mut set_aside = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    // Without the gate another station is at it, and what it leaves is counted all the same.
    let gate = gate(directory, File::try_lock);
    let in_use = in_use(directory);
    let mut held: Vec<(SystemTime, u64, PathBuf)> = entries(directory)
        .filter(|(_, name, _)| is_block(name) || name.starts_with(PARTIAL))
        .map(|(entry, _, metadata)| {
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            (used, metadata.len(), entry.path())
        })
        .collect();
    held.sort();
    let mut total: u64 = held.iter().map(|(_, bytes, _)| bytes).sum();
    // What living rooms wrote already is in both figures.
    if set_aside.rooms > 0 {
        total = total.max(set_aside.bytes);
    }
    let fits = |total: u64| total.saturating_add(needed_bytes) <= limit_bytes;
    for (_, bytes, path) in held {
        if fits(total) || gate.is_none() {
            break;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let removed = match name.strip_prefix(PARTIAL) {
            Some(_) => remove_unlocked(&path, |_| true),
            None => !in_use.contains(name.as_ref()) && std::fs::remove_file(&path).is_ok(),
        };
        if removed {
            total = total.saturating_sub(bytes);
            tracing::debug!(block = name.as_ref(), bytes, "evicted from the block cache");
        }
    }
    let granted = limit_bytes.saturating_sub(total).min(needed_bytes);
    set_aside.rooms += 1;
    set_aside.bytes = total.saturating_add(granted);
    Room {
        left: AtomicU64::new(granted),
        ledger: Some(Arc::clone(ledger)),
    }
}

/// Removes what starts that were killed have left and nobody will take up: temporary files, lists,
/// empty partials and old ones. What cannot be seen or removed stays.
pub(super) fn sweep(directory: &Path) {
    let now = SystemTime::now();
    for (entry, name, _) in entries(directory) {
        let stale = |metadata: &Metadata| {
            let age = metadata
                .modified()
                .ok()
                .map(|then| now.duration_since(then));
            let old = matches!(age, Some(Ok(age)) if age > PARTIAL_AGE);
            !name.starts_with(PARTIAL) || metadata.len() == 0 || old
        };
        if [INCOMING, STATION, PARTIAL]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            remove_unlocked(&entry.path(), stale);
        }
    }
}

/// Removes the file at `path` unless somebody holds its lock or `unless` it is told to stay.
fn remove_unlocked(path: &Path, goes: impl Fn(&Metadata) -> bool) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    // The lock is held until the name is gone: a writer that comes between sees that it is.
    file.try_lock().is_ok()
        && file
            .metadata()
            .is_ok_and(|metadata| is_at(&metadata, path) && goes(&metadata))
        && std::fs::remove_file(path).is_ok()
}

/// Names in the lists of living stations; lists of dead ones are removed.
fn in_use(directory: &Path) -> HashSet<String> {
    let mut names = HashSet::new();
    for (entry, name, _) in entries(directory) {
        if name.starts_with(STATION) && !remove_unlocked(&entry.path(), |_| true) {
            let list = std::fs::read_to_string(entry.path()).unwrap_or_default();
            names.extend(list.lines().map(str::to_owned));
        }
    }
    names
}

/// Regular files of `directory`; a FIFO would wait for a writer when it is opened.
fn entries(directory: &Path) -> impl Iterator<Item = (DirEntry, String, Metadata)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let metadata = entry.metadata().ok().filter(Metadata::is_file)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((entry, name, metadata))
    })
}

fn is_block(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The gate of `directory`, open as long as the file is; `None` where it cannot be had in time.
fn gate(
    directory: &Path,
    lock: impl Fn(&File) -> Result<(), std::fs::TryLockError>,
) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(super::BLOCK_MODE)
        .open(directory.join(GATE))
        .ok()?;
    for _ in 0..GATE_TRIES {
        match lock(&file) {
            Ok(()) => return Some(file),
            Err(std::fs::TryLockError::Error(_)) => return None,
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(GATE_PAUSE),
        }
    }
    None
}

/// A figure that changes while anybody makes progress: the files of `directory` and their bytes.
pub(super) fn pulse(directory: &Path) -> (u64, u64) {
    entries(directory).fold((0, 0), |(files, bytes), (_, _, metadata)| {
        (files + 1, bytes.wrapping_add(metadata.len()))
    })
}
