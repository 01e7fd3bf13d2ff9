//! Files as `Bytes` without a copy. The only unsafe code of this crate; it neither reads formats
//! nor decides which files are opened.
#![allow(
    unsafe_code,
    reason = "a memory map has no safe constructor; see the safety comment"
)]

use crate::error::Error;
use bytes::Bytes;
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// Maps the whole file at `path`. The map lives as long as any slice of the returned bytes; until
/// then the file may be renamed or removed, but must not be overwritten in place.
///
/// # Errors
/// [`Error::File`] where it cannot be opened or mapped.
pub fn map(path: &Path) -> Result<Bytes, Error> {
    let file = File::open(path).map_err(Error::file(path))?;
    let metadata = file.metadata().map_err(Error::file(path))?;
    if !metadata.is_file() {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file");
        return Err(Error::File {
            path: path.to_owned(),
            source,
        });
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to this process. Undefined behaviour would need the
    // file to be changed in place while it is mapped:
    // - blocks in the cache directory are written to a temporary name and renamed, never changed;
    // - knots are written by `fat-origin pack` in the same way;
    // - an operator must not overwrite a knot in place while a station runs, as `map` documents;
    //   whoever does may see wrong numbers or SIGBUS. Offsets are checked once, on the front.
    let mapped = unsafe { Mmap::map(&file) }.map_err(Error::file(path))?;
    Ok(Bytes::from_owner(mapped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_seen_as_it_is_and_outlives_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("block");
        std::fs::write(&path, b"0123456789").unwrap();
        let bytes = map(&path).unwrap().slice(3..6);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(&bytes[..], b"345");
    }

    #[test]
    fn empty_missing_and_odd_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        assert!(map(&path).unwrap().is_empty());
        let missing = map(&directory.path().join("missing"))
            .unwrap_err()
            .to_string();
        assert!(missing.ends_with("missing"), "{missing}");
        assert!(map(directory.path()).is_err(), "a directory is no file");
    }
}
