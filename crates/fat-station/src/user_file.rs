//! Files that users name: regular ones alone (a FIFO waits for ever, a device never ends), and never
//! more of them than a stated number of bytes. What is in them is not its affair.

use crate::error::Error;
use rustix::fs::OFlags;
use std::fs::{Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The longest list of token ids, and the longest text.
pub(crate) const MAX_BYTES: u64 = 64 << 20;

/// The UTF-8 text of the file at `path` that `flag` named, of at most `limit_bytes`.
///
/// # Errors
/// [`Error::Config`] for what is no regular file or too long, [`Error::File`] for what cannot be read.
pub(crate) fn read_text(flag: &str, path: &Path, limit_bytes: u64) -> Result<String, Error> {
    let too_long = |found: &str| {
        Error::config(format!(
            "{flag} {}: expected at most {limit_bytes} bytes, found {found}",
            path.display()
        ))
    };
    let regular = |metadata: &Metadata| {
        if metadata.is_file() {
            return Ok(());
        }
        Err(Error::config(format!(
            "{flag} {}: expected a regular file, found a {}",
            path.display(),
            kind(metadata)
        )))
    };
    // Opening a device may do something; what counts is what was opened.
    regular(&path.metadata().map_err(Error::file(path))?)?;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(Error::file(path))?;
    let metadata = file.metadata().map_err(Error::file(path))?;
    regular(&metadata)?;
    if metadata.len() > limit_bytes {
        return Err(too_long(&metadata.len().to_string()));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile, and files of /proc have no length.
    let mut file = file.take(limit_bytes.saturating_add(1));
    file.read_to_end(&mut bytes).map_err(Error::file(path))?;
    if bytes.len() as u64 > limit_bytes {
        return Err(too_long("more"));
    }
    String::from_utf8(bytes)
        .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
        .map_err(Error::file(path))
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_fifo() {
        "FIFO"
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FailureClass;

    #[test]
    fn only_regular_files_of_bounded_length_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_text("--file", &path, 4).unwrap(), "four");
        let refused = |path: &Path, limit| {
            let error = read_text("--file", path, limit).unwrap_err();
            assert_eq!(error.class(), FailureClass::Config);
            error.to_string()
        };
        let long = refused(&path, 3);
        assert!(
            long.starts_with("--file /") && long.ends_with("expected at most 3 bytes, found 4"),
            "{long}"
        );
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        for (path, found) in [
            (fifo.as_path(), "found a FIFO"),
            (directory.path(), "found a directory"),
            (Path::new("/dev/zero"), "found a device"),
        ] {
            let text = refused(path, 3);
            assert!(text.ends_with(found), "{text}");
        }
    }
}
