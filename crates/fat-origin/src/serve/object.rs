//! From a request path to an opened file with its length and entity tag. Blocking.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// An opened file and what its reply states about it.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) file: File,
    pub(super) len_bytes: u64,
    /// Strong, with its quotes.
    pub(super) etag: String,
}

/// Why a path has no object.
#[derive(Debug)]
pub(super) enum NoObject {
    /// The path is not one this server would ever serve: 400.
    BadPath,
    /// Nothing there, a directory, or links that lead nowhere: 404.
    NotFound,
    /// A symbolic link that leaves the directory, or no permission: 403.
    Forbidden,
    /// The operating system refuses for its own reasons (too many open files): 503.
    Unavailable(io::Error),
}

/// Opens what `path` (as on the request line, percent-encoded) names below `root`.
pub(super) fn open(root: &Path, path: &str) -> Result<Object, NoObject> {
    let relative = relative_path(path).ok_or(NoObject::BadPath)?;
    let canonical = root.join(relative).canonicalize().map_err(refusal)?;
    let inside = canonical
        .strip_prefix(root)
        .map_err(|_outside| NoObject::Forbidden)?;
    // A link must not say what its target's own path may not.
    if inside.components().any(|part| is_hidden(part.as_os_str())) {
        return Err(NoObject::BadPath);
    }
    // A fifo would block the open itself, hence the look before.
    if !std::fs::metadata(&canonical).map_err(refusal)?.is_file() {
        return Err(NoObject::NotFound);
    }
    let file = File::open(&canonical).map_err(refusal)?;
    let metadata = file.metadata().map_err(refusal)?;
    let mut hasher = blake3::Hasher::new();
    for number in [metadata.dev(), metadata.ino(), metadata.len()] {
        hasher.update(&number.to_le_bytes());
    }
    for number in [
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ] {
        hasher.update(&number.to_le_bytes());
    }
    let tag = hasher.finalize().to_hex();
    let etag = format!("\"{}\"", tag.get(..32).unwrap_or_default());
    Ok(Object {
        file,
        len_bytes: metadata.len(),
        etag,
    })
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// `ELOOP`: links that lead round in a circle. The standard library's kind for it is not stable.
const LINK_LOOP: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };

fn refusal(error: io::Error) -> NoObject {
    if error.raw_os_error() == Some(LINK_LOOP) {
        return NoObject::NotFound;
    }
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            NoObject::NotFound
        }
        io::ErrorKind::PermissionDenied => NoObject::Forbidden,
        _ => NoObject::Unavailable(error),
    }
}

/// The file's path below the root: decoded, of plain names only. Names that begin with a dot are
/// refused too: that is where unfinished files of the packer live.
fn relative_path(path: &str) -> Option<PathBuf> {
    let decoded = percent_decode(path.strip_prefix('/')?)?;
    if decoded.contains(['\0', '\\']) {
        return None;
    }
    let mut plain = PathBuf::new();
    for segment in decoded.split('/') {
        if segment.is_empty() || segment.starts_with('.') {
            return None;
        }
        plain.push(segment);
    }
    plain
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
        .then_some(plain)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            decoded.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::relative_path;
    use std::path::Path;

    #[test]
    fn plain_names_are_decoded() {
        assert_eq!(
            relative_path("/a%20b/c.rows").as_deref(),
            Some(Path::new("a b/c.rows"))
        );
        assert_eq!(
            relative_path("/%C3%BC.gkq").as_deref(),
            Some(Path::new("ü.gkq"))
        );
    }

    #[test]
    fn paths_that_climb_or_hide_are_refused() {
        for path in [
            "",
            "/",
            "x.rows",
            "/..",
            "/../x",
            "/a/../../x",
            "/%2e%2e/x",
            "/..%2fx",
            "/a//b",
            "//etc/passwd",
            "/%2fetc/passwd",
            "/.x.tmp",
            "/a/.git",
            "/a%00b",
            "/a%5cb",
            "/%",
            "/%2",
            "/%zz",
            "/%ff",
        ] {
            assert_eq!(relative_path(path), None, "{path}");
        }
    }
}
