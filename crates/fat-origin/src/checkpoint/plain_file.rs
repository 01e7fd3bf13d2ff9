//! Files opened and read within bounds: only regular ones (a FIFO blocks, a device never ends), and
//! never more than a stated number of bytes, whatever the length said. What is in them is not its affair.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::Error;

/// The longest `tokenizer.json`; the largest published ones are near 35 MB.
pub(crate) const MAX_TOKENIZER_BYTES: u64 = 256 << 20;
/// The longest other text of a checkpoint. Configs stay below 1 MB; the index of a model of 100,000
/// tensors is about 10 MB.
pub(crate) const MAX_TEXT_BYTES: u64 = 16 << 20;
/// The longest chat template. Real ones stay below 32 KB.
pub(crate) const MAX_TEMPLATE_BYTES: u64 = 1 << 20;

/// Opens a regular file; gives its length too.
pub(crate) fn open(path: &Path) -> Result<(File, u64), Error> {
    let refused = || Error::malformed(path, "file", "a regular file", "another kind");
    // Opening a FIFO waits for a writer, hence the look before; the second look is at what was opened.
    let before = path.metadata().map_err(Error::io(path, "open"))?;
    if !before.is_file() {
        return Err(refused());
    }
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    let metadata = file.metadata().map_err(Error::io(path, "read"))?;
    if !metadata.is_file() {
        return Err(refused());
    }
    Ok((file, metadata.len()))
}

/// The whole of a file that may have at most `limit_bytes`.
pub(crate) fn read(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, Error> {
    let too_long = |found: String| {
        Error::malformed(path, "file", format!("at most {limit_bytes} bytes"), found)
    };
    let (file, len_bytes) = open(path)?;
    if len_bytes > limit_bytes {
        return Err(too_long(len_bytes.to_string()));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(limit_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(Error::io(path, "read"))?;
    if bytes.len() as u64 > limit_bytes {
        return Err(too_long("more".to_owned()));
    }
    Ok(bytes)
}

/// As [`read`], as text; `None` if there is no such file.
pub(crate) fn read_text(path: &Path, limit_bytes: u64) -> Result<Option<String>, Error> {
    let bytes = match read(path, limit_bytes) {
        Ok(bytes) => bytes,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let found = format!("an invalid byte at offset {valid}");
        Error::malformed(path, "file", "UTF-8 text", found)
    })?;
    Ok(Some(text))
}
