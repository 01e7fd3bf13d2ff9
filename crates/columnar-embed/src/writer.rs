//! Writes a bare row file: rows in id order, nothing else, under its final name only when it is
//! whole. Not a packer: what the rows mean and where the tree is kept is the caller's business.
//! Specification: docs/format/row-store.md, "Bare row file".

mod mixed;

use std::{
    fs::{self, File, OpenOptions},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    Error,
    layout::{RowId, RowLayout},
    row_tree::{RowTree, RowTreeBuilder},
};

pub use mixed::{MixedRowFileWriter, MixedRows};

/// Bytes gathered before a write: rows are small, system calls are not.
const BUFFER_BYTES: usize = 1 << 20;

/// A row file under way. Dropped before [`RowFileWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct RowFileWriter<P> {
    layout: RowLayout,
    sink: RowSink<P>,
}

/// What a finished row file is known by.
#[derive(Debug)]
pub struct WrittenRows<P> {
    /// BLAKE3 of the whole file.
    pub blake3: [u8; 32],
    /// The tree over its rows.
    pub tree: RowTree,
    /// The writer that took the path table.
    pub paths: P,
}

impl<P: Write> RowFileWriter<P> {
    /// Begins a file of `rows` rows of `row_bytes` bytes that will appear at `path`, replacing what
    /// is there. The path table goes to `paths` meanwhile.
    ///
    /// # Errors
    /// As [`RowLayout::new`] and [`RowTreeBuilder::new`]; [`Error::Write`] where the sibling of
    /// `path` cannot be created.
    pub fn create(path: &Path, rows: u64, row_bytes: u32, paths: P) -> Result<Self, Error> {
        let layout = RowLayout::new(0, rows, row_bytes)?;
        let sink = RowSink::create(path, rows, paths)?;
        Ok(Self { layout, sink })
    }

    /// Adds the next row.
    ///
    /// # Errors
    /// [`Error::RowLength`] for a row of another length, [`Error::RowCount`] behind the last row,
    /// [`Error::Write`] where the file or the path table cannot be written.
    pub fn push(&mut self, row: &[u8]) -> Result<(), Error> {
        self.sink.push(row, self.layout.row_bytes())
    }

    /// Ends the file: everything is on disk before the name appears.
    ///
    /// # Errors
    /// [`Error::RowCount`] where rows are missing, [`Error::Write`] as [`RowFileWriter::push`].
    pub fn finish(self) -> Result<WrittenRows<P>, Error> {
        self.sink.finish()
    }
}

/// Rows on their way to a file, whatever their lengths: bytes, digest and tree.
#[derive(Debug)]
struct RowSink<P> {
    partial: PartialFile,
    rows: BufWriter<File>,
    digest: blake3::Hasher,
    tree: RowTreeBuilder<P>,
    written: u64,
}

impl<P: Write> RowSink<P> {
    fn create(path: &Path, rows: u64, paths: P) -> Result<Self, Error> {
        let tree = RowTreeBuilder::new(rows, paths)?;
        let (partial, file) = PartialFile::create(path)?;
        Ok(Self {
            partial,
            rows: BufWriter::with_capacity(BUFFER_BYTES, file),
            digest: blake3::Hasher::new(),
            tree,
            written: 0,
        })
    }

    /// Adds the next row, which must have `row_bytes` bytes.
    fn push(&mut self, row: &[u8], row_bytes: u32) -> Result<(), Error> {
        let (expected_bytes, found_bytes) = (u64::from(row_bytes), row.len() as u64);
        if expected_bytes != found_bytes {
            let row = RowId(self.written);
            return Err(Error::RowLength {
                row,
                expected_bytes,
                found_bytes,
            });
        }
        self.tree.push(row)?;
        self.digest.update(row);
        self.rows
            .write_all(row)
            .map_err(|source| self.partial.error(source))?;
        self.written += 1;
        Ok(())
    }

    fn finish(self) -> Result<WrittenRows<P>, Error> {
        let (tree, paths) = self.tree.finish()?;
        let partial = self.partial;
        let file = self
            .rows
            .into_inner()
            .map_err(|error| partial.error(error.into_error()))?;
        file.sync_all().map_err(|source| partial.error(source))?;
        drop(file);
        partial.publish()?;
        Ok(WrittenRows {
            blake3: *self.digest.finalize().as_bytes(),
            tree,
            paths,
        })
    }
}

/// A file beside its final name, removed unless it is published.
#[derive(Debug)]
struct PartialFile {
    partial: PathBuf,
    path: PathBuf,
}

impl PartialFile {
    fn create(path: &Path) -> Result<(Self, File), Error> {
        // Two writers of one name, in this process or another, must not share a sibling.
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}-{serial}.partial", process::id()));
        let partial = path.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&partial)
            .map_err(|source| Error::write_file(path, source))?;
        Ok((
            Self {
                partial,
                path: path.to_owned(),
            },
            file,
        ))
    }

    fn publish(self) -> Result<(), Error> {
        fs::rename(&self.partial, &self.path).map_err(|source| self.error(source))?;
        // The name itself is durable only once its folder is. Where folders cannot be opened or
        // synchronised the system gives no such promise, and the rows are whole all the same.
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    fn error(&self, source: std::io::Error) -> Error {
        Error::write_file(&self.path, source)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After publishing the name is gone already; that there is nothing to remove is the aim.
        let _ = fs::remove_file(&self.partial);
    }
}

#[cfg(test)]
mod tests;
