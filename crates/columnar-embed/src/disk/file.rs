//! The two files of one table: opening and creating them, positioned reads and writes of rows. No
//! thread, no queue, no lock. Specification: docs/format/row-cache.md.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use helix_transport::ByteRange;
use rustix::fs::OFlags;

use super::layout::{ABSENT, CachedTable, ENTRY_BYTES, EntryKey, HEADER_BYTES, VERSION};
use crate::{Error, Row, layout::RowId, row_map::RowMap};

/// How often a name is looked up again that others made or took away meanwhile.
const MAX_TRIES: usize = 8;

/// A file under a temporary name is taken for left behind when it is older: making one takes
/// milliseconds, and whoever loses it makes another.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Entries that are read at once when all are counted.
const SCAN_BYTES: usize = 64 << 10;

/// Whether rows can be added.
#[derive(Debug)]
pub(super) enum Access {
    ReadWrite,
    /// With the path that cannot be written.
    ReadOnly(PathBuf),
}

/// What became of a row that was looked up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Row(Row),
    Absent,
    /// The bytes are not those that the entry was written for.
    Damaged,
}

/// The open files of one table. Others may read and write them meanwhile.
#[derive(Debug)]
pub(super) struct TableFiles {
    pub(super) table: CachedTable,
    pub(super) rows: RowMap,
    pub(super) directory: PathBuf,
    pub(super) access: Access,
    key: EntryKey,
    pub(super) data: File,
    map: File,
}

/// A file that was opened, or that is not there.
struct Opened {
    file: File,
    writable: bool,
}

impl TableFiles {
    /// Opens the files of `table` in `directory`, making what is not there.
    pub(super) fn open(directory: &Path, table: CachedTable, rows: RowMap) -> Result<Self, Error> {
        let map_bytes = table
            .map_bytes()
            .filter(|_| i64::try_from(table.table_bytes).is_ok())
            .ok_or(Error::TableOverflow {
                base_bytes: 0,
                rows: table.rows,
                row_bytes: table.row_bytes,
            })?;
        check_file_limit(directory, table.table_bytes.max(map_bytes))?;
        fs::create_dir_all(directory).map_err(|error| Error::disk(directory, "create", error))?;
        sweep(directory, &table.stem());
        let data = open_data(directory, &table)?;
        let map = open_map(directory, &table, map_bytes)?;
        let access = match (data.writable, map.writable) {
            (true, true) => Access::ReadWrite,
            (false, _) => Access::ReadOnly(partial_path(directory, &table)),
            (true, false) => Access::ReadOnly(map_path(directory, &table)),
        };
        Ok(Self {
            key: table.entry_key(),
            table,
            rows,
            directory: directory.to_owned(),
            access,
            data: data.file,
            map: map.file,
        })
    }

    /// Whether the table has no files yet, so that no row can be there.
    pub(super) fn are_missing(directory: &Path, table: &CachedTable) -> bool {
        fs::symlink_metadata(map_path(directory, table)).is_err()
    }

    /// Row `id` as it is stored. A file that ends early has no row there.
    pub(super) fn read(&self, id: RowId) -> io::Result<Found> {
        let Some(range) = self.range(id) else {
            return Ok(Found::Absent);
        };
        let mut entry = ABSENT;
        if !read_at(&self.map, &mut entry, CachedTable::entry_at(id))? || entry == ABSENT {
            return Ok(Found::Absent);
        }
        // Bounded: no range is longer than the table says its longest row is.
        let mut row = vec![0; usize::try_from(range.len()).unwrap_or(0)];
        let whole = read_at(&self.data, &mut row, range.start)?;
        if whole && self.key.entry(id, &row) == entry {
            Ok(Found::Row(Row::from(row)))
        } else {
            Ok(Found::Damaged)
        }
    }

    /// Stores row `id`. The row goes before its entry, which does not matter for what is read back,
    /// but saves a reader in between from hashing a row for nothing.
    pub(super) fn write(&self, id: RowId, row: &[u8]) -> io::Result<()> {
        let Some(range) = self
            .range(id)
            .filter(|range| range.len() == row.len() as u64)
        else {
            return Err(io::Error::other("a row of another length than its table's"));
        };
        let entry = self.key.entry(id, row);
        self.data.write_all_at(row, range.start)?;
        self.map.write_all_at(&entry, CachedTable::entry_at(id))
    }

    /// Forgets row `id`.
    pub(super) fn forget(&self, id: RowId) -> io::Result<()> {
        self.map.write_all_at(&ABSENT, CachedTable::entry_at(id))
    }

    /// Rows that have an entry. Whether their bytes are still right, only reading them tells.
    pub(super) fn present_rows(&self) -> io::Result<u64> {
        let mut present = 0;
        let mut at = HEADER_BYTES as u64;
        let mut left = self.table.rows.saturating_mul(ENTRY_BYTES as u64);
        let mut buffer = vec![0; SCAN_BYTES];
        while left > 0 {
            let take = usize::try_from(left).map_or(SCAN_BYTES, |left| left.min(SCAN_BYTES));
            let Some(piece) = buffer.get_mut(..take) else {
                break;
            };
            if !read_at(&self.map, piece, at)? {
                break;
            }
            let (entries, _) = piece.as_chunks::<ENTRY_BYTES>();
            present += entries.iter().filter(|entry| **entry != ABSENT).count() as u64;
            at += take as u64;
            left -= take as u64;
        }
        Ok(present)
    }

    /// The bytes of row `id` in the file, whose base is 0; `None` where there is no such row.
    fn range(&self, id: RowId) -> Option<ByteRange> {
        let range = self
            .rows
            .range(id)
            .ok()
            .filter(|_| id.0 < self.table.rows)?;
        let base = self.rows.base_bytes();
        let moved = ByteRange {
            start: range.start.checked_sub(base)?,
            end: range.end.checked_sub(base)?,
        };
        (moved.end <= self.table.table_bytes).then_some(moved)
    }
}

/// Reads all of `buffer`, or says that the file ends before.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where the rows of `table` are while some are missing.
pub(super) fn partial_path(directory: &Path, table: &CachedTable) -> PathBuf {
    directory.join(format!("{}.rows.part", table.stem()))
}

/// Where the rows of `table` are once all are there: a row file like any other.
pub(super) fn complete_path(directory: &Path, table: &CachedTable) -> PathBuf {
    directory.join(format!("{}.rows", table.stem()))
}

fn map_path(directory: &Path, table: &CachedTable) -> PathBuf {
    directory.join(format!("{}.map", table.stem()))
}

/// The complete file, else the partial one, else a new partial one. Between the look-ups another
/// process may complete it: the complete file is looked for once more before one is made.
fn open_data(directory: &Path, table: &CachedTable) -> Result<Opened, Error> {
    let (complete, partial) = (
        complete_path(directory, table),
        partial_path(directory, table),
    );
    for _ in 0..MAX_TRIES {
        for path in [&complete, &partial, &complete] {
            if let Some(opened) = open_existing(path, table.table_bytes)? {
                return Ok(opened);
            }
        }
        create(&partial, table.table_bytes, &[])?;
    }
    Err(contended(&partial))
}

fn open_map(directory: &Path, table: &CachedTable, map_bytes: u64) -> Result<Opened, Error> {
    let path = map_path(directory, table);
    for _ in 0..MAX_TRIES {
        let Some(opened) = open_existing(&path, map_bytes)? else {
            create(&path, map_bytes, &table.header())?;
            continue;
        };
        let mut header = [0; HEADER_BYTES];
        let whole = read_at(&opened.file, &mut header, 0)
            .map_err(|error| Error::disk(&path, "read", error))?;
        match table.check_header(&header) {
            Ok(()) if whole => return Ok(opened),
            // Another release's map is its own: taking it away would have two stations fight.
            Err(other) if other.field == "version" => {
                return Err(Error::DiskVersion {
                    path,
                    expected: VERSION,
                    found: other.found,
                });
            }
            Err(other) => {
                let why = format!(
                    "its {} is {}, expected {}",
                    other.field, other.found, other.expected
                );
                set_aside(&path, &opened.file, &why)?;
            }
            Ok(()) => set_aside(&path, &opened.file, "its header is cut short")?,
        }
    }
    Err(contended(&path))
}

/// Opens `path` for reading and writing, or only for reading where it may not be written. A file of
/// another length is set aside. What is no regular file is refused, a symbolic link above all: the file
/// that it leads to is not of this cache, and would be written over.
fn open_existing(path: &Path, len_bytes: u64) -> Result<Option<Opened>, Error> {
    let failed = |error| Error::disk(path, "open", error);
    // Looked at first for the sake of what is said; what counts is what was opened, below.
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(metadata) => regular(&metadata).map_err(failed)?,
    }
    // No link is followed, and no FIFO waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let open = |write| {
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(flags);
        options.open(path)
    };
    let opened = match open(true) {
        Ok(file) => Opened {
            file,
            writable: true,
        },
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Opened {
                file: open(false).map_err(failed)?,
                writable: false,
            }
        }
        Err(error) => return Err(failed(error)),
    };
    let metadata = opened.file.metadata().map_err(failed)?;
    regular(&metadata).map_err(failed)?;
    let found = metadata.len();
    if found != len_bytes {
        let why = format!("it has {found} bytes, expected {len_bytes}");
        set_aside(path, &opened.file, &why)?;
        return Ok(None);
    }
    Ok(Some(opened))
}

fn regular(metadata: &Metadata) -> io::Result<()> {
    let why = if metadata.is_file() {
        return Ok(());
    } else if metadata.is_symlink() {
        "it is a symbolic link, expected a regular file; remove it, or name another directory"
    } else {
        "it is no regular file; remove it, or name another directory"
    };
    Err(io::Error::new(ErrorKind::InvalidInput, why))
}

/// Makes a sparse file of `len_bytes` bytes that begins with `header` appear at `path`, unless one
/// is there by then. It is on disk before it has its name, so that a loss of power leaves no name
/// without its header.
fn create(path: &Path, len_bytes: u64, header: &[u8]) -> Result<(), Error> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let failed = |error| Error::disk(path, "create", error);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}-{serial}.new", process::id()));
    let made = (|| {
        let file = OpenOptions::new().write(true).create_new(true).open(&new)?;
        file.set_len(len_bytes)?;
        file.write_all_at(header, 0)?;
        file.sync_all()?;
        match fs::hard_link(&new, path) {
            // Somebody else's is as good as ours.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Ok(()) => Ok(()),
            // Swept away by somebody: the caller looks again.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            // Not every file system has links. The loser of a race then loses its rows, no more.
            Err(_) => fs::rename(&new, path),
        }
    })();
    let _ = fs::remove_file(&new);
    made.map_err(failed)
}

/// Renames a file that is not what its name says to `NAME.refused`, unless `path` is another file by
/// now.
fn set_aside(path: &Path, file: &File, why: &str) -> Result<(), Error> {
    let failed = |error| Error::disk(path, "set aside", error);
    let same = match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        _ => false,
    };
    if !same {
        return Ok(());
    }
    let mut refused = path.as_os_str().to_owned();
    refused.push(".refused");
    tracing::warn!(
        file = %path.display(),
        "this file of the row cache is damaged: {why}; it is kept as {} and a new one is begun",
        Path::new(&refused).display()
    );
    match fs::rename(path, &refused) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Takes away what killed processes left while they made files of this table.
fn sweep(directory: &Path, stem: &str) {
    let prefix = format!(".{stem}.");
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_ours = name.starts_with(&prefix) && name.ends_with(".new");
        let age = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = age.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > LEFT_BEHIND));
        if is_ours && is_old {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Refuses a table that is longer than this process may make a file: writing beyond that limit ends
/// a process by a signal.
fn check_file_limit(directory: &Path, len_bytes: u64) -> Result<(), Error> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match soft_file_limit(&limits) {
        Some(limit) if limit < len_bytes => {
            let why = format!(
                "a file of {len_bytes} bytes is needed, this process may make {limit} (ulimit -f)"
            );
            let error = io::Error::new(ErrorKind::FileTooLarge, why);
            Err(Error::disk(directory, "use", error))
        }
        _ => Ok(()),
    }
}

/// `Max file size  SOFT  HARD  bytes`; `None` where there is no limit.
fn soft_file_limit(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max file size"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn contended(path: &Path) -> Error {
    let source = io::Error::other("others make and remove it all the time");
    Error::disk(path, "open", source)
}

impl Error {
    pub(super) fn disk(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Disk {
            path: path.to_owned(),
            action,
            source: Arc::new(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::soft_file_limit;

    #[test]
    fn the_limit_on_files_is_the_soft_one() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max cpu time              unlimited            unlimited            seconds\n\
                      Max file size             1048576              unlimited            bytes\n";
        assert_eq!(soft_file_limit(limits), Some(1_048_576));
        assert_eq!(
            soft_file_limit(&limits.replace("1048576", "unlimited")),
            None
        );
        assert_eq!(soft_file_limit(""), None);
    }
}
