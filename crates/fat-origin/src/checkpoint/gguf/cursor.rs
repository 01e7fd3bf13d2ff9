//! Reads the front of a GGUF file number by number, and never further than the file goes: every
//! count and length is compared with the bytes that are left before anything is allocated for it.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use crate::Error;

pub(super) struct Cursor<'a> {
    path: &'a Path,
    reader: BufReader<&'a File>,
    position: u64,
    len_bytes: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(path: &'a Path, reader: BufReader<&'a File>, len_bytes: u64) -> Self {
        Self {
            path,
            reader,
            position: 0,
            len_bytes,
        }
    }

    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    fn left(&self) -> u64 {
        self.len_bytes.saturating_sub(self.position)
    }

    /// Fills a buffer, which the caller made no larger than [`left`](Self::left).
    fn fill(&mut self, part: &str, buffer: &mut [u8]) -> Result<(), Error> {
        let wanted = buffer.len() as u64;
        if wanted > self.left() {
            return Err(self.truncated(part, wanted));
        }
        self.reader
            .read_exact(buffer)
            .map_err(Error::io(self.path, "read"))?;
        self.position += wanted;
        Ok(())
    }

    fn truncated(&self, part: &str, wanted: u64) -> Error {
        Error::malformed(
            self.path,
            format!("{part} at byte {}", self.position),
            format!("{wanted} bytes"),
            format!("{} before the file's end (truncated?)", self.left()),
        )
    }

    pub(super) fn array<const N: usize>(&mut self, part: &str) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.fill(part, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, part: &str) -> Result<u32, Error> {
        self.array(part).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, part: &str) -> Result<u64, Error> {
        self.array(part).map(u64::from_le_bytes)
    }

    /// A number of things that take at least `least_bytes` each: no more than the file has room for.
    pub(super) fn count(&mut self, part: &str, least_bytes: u64) -> Result<u64, Error> {
        let at = self.position;
        let count = self.u64(part)?;
        let room = self.left() / least_bytes.max(1);
        if count > room {
            return Err(Error::malformed(
                self.path,
                format!("{part} at byte {at}"),
                format!(
                    "at most {room}, which is what fits in the {} bytes left",
                    self.left()
                ),
                count.to_string(),
            ));
        }
        Ok(count)
    }

    /// The bytes of `count` numbers of `width` bytes; the count was checked.
    pub(super) fn bytes(&mut self, part: &str, count: u64) -> Result<Vec<u8>, Error> {
        let len = usize::try_from(count).map_err(|_too_large| self.truncated(part, count))?;
        if count > self.left() {
            return Err(self.truncated(part, count));
        }
        let mut bytes = vec![0; len];
        self.fill(part, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn string(&mut self, part: &str) -> Result<String, Error> {
        let at = self.position;
        let len = self.count(part, 1)?;
        let bytes = self.bytes(part, len)?;
        String::from_utf8(bytes).map_err(|error| {
            Error::malformed(
                self.path,
                format!("{part} at byte {at}"),
                "UTF-8",
                format!(
                    "an invalid byte after {} valid ones",
                    error.utf8_error().valid_up_to()
                ),
            )
        })
    }
}
