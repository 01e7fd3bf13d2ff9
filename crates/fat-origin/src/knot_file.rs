//! A knot on disk: its front parsed, its payloads read by range. It maps nothing and trusts nothing:
//! what is read is digested by whoever asked.

use std::ops::Range;
use std::path::{Path, PathBuf};

use gkq_v2::{HEADER_BYTES, Knot};

use crate::Error;
use crate::checkpoint::DataFile;

/// Bytes read at once while digesting.
pub(crate) const CHUNK_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct KnotFile {
    pub(crate) path: PathBuf,
    pub(crate) knot: Knot,
    file: DataFile,
}

impl KnotFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let refused = Error::knot(path);
        let file = DataFile::open(path)?;
        let mut prefix = vec![
            0;
            usize::try_from(file.len_bytes)
                .unwrap_or(usize::MAX)
                .min(HEADER_BYTES)
        ];
        file.read_at(&mut prefix, 0)?;
        let front_bytes = Knot::front_len(&prefix)
            .map_err(&refused)?
            .min(file.len_bytes);
        // The length is within the format's limit: `front_len` has checked it.
        let mut front = vec![0; usize::try_from(front_bytes).unwrap_or(0)];
        file.read_at(&mut front, 0)?;
        let knot = Knot::parse(&front, file.len_bytes).map_err(&refused)?;
        Ok(Self {
            path: path.to_path_buf(),
            knot,
            file,
        })
    }

    /// The BLAKE3 of a range; `seen` is told how many bytes went by.
    pub(crate) fn digest(
        &self,
        range: &Range<u64>,
        seen: impl FnMut(u64),
    ) -> Result<[u8; 32], Error> {
        digest(&self.file, range, seen)
    }

    /// Calls `take` with every chunk of a range, in order.
    pub(crate) fn chunks(
        &self,
        range: &Range<u64>,
        chunk_bytes: u64,
        take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        chunks(&self.file, range, chunk_bytes, take)
    }
}

/// The BLAKE3 of a range of any file.
pub(crate) fn digest(
    file: &DataFile,
    range: &Range<u64>,
    mut seen: impl FnMut(u64),
) -> Result<[u8; 32], Error> {
    let mut hasher = blake3::Hasher::new();
    chunks(file, range, CHUNK_BYTES, |bytes| {
        hasher.update(bytes);
        seen(bytes.len() as u64);
        Ok(())
    })?;
    Ok(*hasher.finalize().as_bytes())
}

/// Calls `take` with every chunk of a range of any file, in order.
pub(crate) fn chunks(
    file: &DataFile,
    range: &Range<u64>,
    chunk_bytes: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut buffer = Vec::new();
    let mut offset = range.start;
    while offset < range.end {
        let len = chunk_bytes.min(range.end - offset);
        buffer.resize(usize::try_from(len).unwrap_or(0), 0);
        file.read_at(&mut buffer, offset)?;
        take(&buffer)?;
        offset += len;
    }
    Ok(())
}
