//! The checked GGUF reader (versions 2 and 3, little-endian): metadata with its types, and tensors as
//! byte ranges that are read one at a time. Everything is validated before it is used, so later code
//! may believe sizes and offsets. It interprets no key and no tensor name. Specification: the GGUF
//! page of the ggml project.

mod cursor;
#[cfg(test)]
pub(crate) mod tests;
mod value;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use gkq_v2::Dtype;

use super::plain_file;
use crate::Error;
use cursor::Cursor;
pub use value::{GgufArray, GgufValue};

const MAGIC: u32 = u32::from_le_bytes(*b"GGUF");
/// Dimensions of a tensor, as ggml has them.
const MOST_DIMENSIONS: u32 = 4;
/// What the specification takes where `general.alignment` is absent.
const DEFAULT_ALIGNMENT: u32 = 32;
/// A key of one byte, its type and one byte of value: less no entry can take.
const LEAST_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// A tensor's name length, dimension count, one dimension, type and offset.
const LEAST_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// A GGUF file whose front was read and checked; the tensors' bytes stay in the file.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    file: File,
    len_bytes: u64,
    version: u32,
    alignment: u32,
    metadata: BTreeMap<String, GgufValue>,
    tensors: Vec<GgufTensor>,
}

/// One tensor of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    /// The name as the file has it (`blk.0.attn_q.weight`).
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Row-major, outermost dimension first: GGUF's dimensions reversed.
    pub shape: Vec<u64>,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl GgufFile {
    /// Opens a file and checks its front.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read; [`Error::Malformed`] with the key, tensor or
    /// byte offset, what the format asks for and what the file holds; [`Error::Unsupported`] for
    /// another version or a tensor type that a knot does not have.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (file, len_bytes) = plain_file::open(path)?;
        let reader = BufReader::with_capacity(1 << 20, &file);
        let mut cursor = Cursor::new(path, reader, len_bytes);
        let (version, metadata, alignment, mut tensors) = front(&mut cursor)?;
        let data_start = cursor
            .position()
            .checked_next_multiple_of(u64::from(alignment))
            .ok_or_else(|| Error::malformed(path, "header", "an end below 2^64", "more"))?;
        for tensor in &mut tensors {
            place(path, tensor, data_start, alignment, len_bytes)?;
        }
        check_apart(path, &tensors)?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            len_bytes,
            version,
            alignment,
            metadata,
            tensors,
        })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Format version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of the tensors.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// All metadata by key.
    pub fn metadata(&self) -> &BTreeMap<String, GgufValue> {
        &self.metadata
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.metadata.get(key)
    }

    /// The tensors in the file's order.
    pub fn tensors(&self) -> &[GgufTensor] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&GgufTensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// A string value; `None` where the key is absent.
    ///
    /// # Errors
    /// [`Error::Malformed`] naming the key where it holds another type.
    pub fn string(&self, key: &str) -> Result<Option<&str>, Error> {
        self.typed(key, "a string", |value| match value {
            GgufValue::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A boolean value; `None` where the key is absent.
    ///
    /// # Errors
    /// As [`string`](Self::string).
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "a bool", |value| match value {
            GgufValue::Bool(set) => Some(*set),
            _ => None,
        })
    }

    /// A whole number that is not negative, of any integer type; `None` where the key is absent.
    ///
    /// # Errors
    /// As [`string`](Self::string).
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        self.typed(key, "an integer that is not negative", GgufValue::as_u64)
    }

    /// A floating-point number of either width; `None` where the key is absent.
    ///
    /// # Errors
    /// As [`string`](Self::string).
    pub fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        self.typed(key, "a floating-point number", GgufValue::as_f64)
    }

    /// An array; `None` where the key is absent.
    ///
    /// # Errors
    /// As [`string`](Self::string).
    pub fn array(&self, key: &str) -> Result<Option<&GgufArray>, Error> {
        self.typed(key, "an array", |value| match value {
            GgufValue::Array(array) => Some(array),
            _ => None,
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a GgufValue) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.get(key)
            .map(|value| {
                read(value).ok_or_else(|| {
                    let part = format!("metadata key `{key}`");
                    Error::malformed(&self.path, part, expected, value.summary())
                })
            })
            .transpose()
    }

    /// Reads a whole tensor.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read (it may have been cut since it was opened).
    pub fn read_tensor(&self, tensor: &GgufTensor) -> Result<Vec<u8>, Error> {
        let len = usize::try_from(tensor.bytes).map_err(|_too_large| {
            let part = format!("tensor `{}`", tensor.name);
            Error::malformed(
                &self.path,
                part,
                "a length this machine can hold",
                tensor.bytes.to_string(),
            )
        })?;
        let mut bytes = vec![0; len];
        self.read_at(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads bytes of a tensor, from `offset` within it; all of `buffer` or an error.
    ///
    /// # Errors
    /// [`Error::Malformed`] where the read would leave the tensor, [`Error::Io`] as above.
    pub fn read_at(
        &self,
        tensor: &GgufTensor,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let end = offset
            .checked_add(buffer.len() as u64)
            .filter(|&end| end <= tensor.bytes);
        let start = tensor.offset.checked_add(offset);
        let (Some(_), Some(start)) = (end, start) else {
            return Err(Error::malformed(
                &self.path,
                format!("tensor `{}`", tensor.name),
                format!("a read within its {} bytes", tensor.bytes),
                format!("{} bytes at {offset}", buffer.len()),
            ));
        };
        self.file
            .read_exact_at(buffer, start)
            .map_err(Error::io(&self.path, "read"))
    }
}

type Front = (u32, BTreeMap<String, GgufValue>, u32, Vec<GgufTensor>);

fn front(cursor: &mut Cursor<'_>) -> Result<Front, Error> {
    let path = cursor.path();
    let magic = cursor.u32("magic")?;
    if magic != MAGIC {
        let found = format!("{:02x?}", magic.to_le_bytes());
        return Err(Error::malformed(path, "magic", "`GGUF`", found));
    }
    let version = cursor.u32("version")?;
    if !matches!(version, 2 | 3) {
        let hint = if matches!(version.swap_bytes(), 2 | 3) {
            " (big-endian)"
        } else {
            ""
        };
        return Err(Error::unsupported(
            path,
            "GGUF version",
            format!("{version}{hint}"),
            "2, 3",
        ));
    }
    let tensor_count = cursor.count("tensor count", LEAST_TENSOR_BYTES)?;
    let entry_count = cursor.count("metadata count", LEAST_ENTRY_BYTES)?;
    let mut metadata = BTreeMap::new();
    for index in 0..entry_count {
        let key = cursor.string(&format!("key of metadata entry {index}"))?;
        let value = value::read(cursor, &key)?;
        if metadata.insert(key.clone(), value).is_some() {
            let part = format!("metadata key `{key}`");
            return Err(Error::malformed(
                path,
                part,
                "to be there once",
                "a second time",
            ));
        }
    }
    let alignment = alignment(path, metadata.get("general.alignment"))?;
    let mut tensors = Vec::new();
    for index in 0..tensor_count {
        tensors.push(tensor(cursor, index)?);
    }
    Ok((version, metadata, alignment, tensors))
}

fn alignment(path: &Path, value: Option<&GgufValue>) -> Result<u32, Error> {
    match value {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(GgufValue::U32(alignment)) if alignment.is_power_of_two() => Ok(*alignment),
        Some(other) => Err(Error::malformed(
            path,
            "metadata key `general.alignment`",
            "a u32 that is a power of two",
            other.summary(),
        )),
    }
}

/// Reads one tensor entry; its offset is still relative to the data.
fn tensor(cursor: &mut Cursor<'_>, index: u64) -> Result<GgufTensor, Error> {
    let path = cursor.path();
    let name = cursor.string(&format!("name of tensor {index}"))?;
    let part = |what: &str| format!("{what} of tensor `{name}`");
    let dimensions = cursor.u32(&part("dimension count"))?;
    if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
        let expected = format!("1 to {MOST_DIMENSIONS}");
        return Err(Error::malformed(
            path,
            part("dimension count"),
            expected,
            dimensions.to_string(),
        ));
    }
    let mut shape = Vec::new();
    for dimension in 0..dimensions {
        shape.push(cursor.u64(&part(&format!("dimension {dimension}")))?);
    }
    shape.reverse();
    let code = cursor.u32(&part("type"))?;
    let dtype = Dtype::from_code(code).ok_or_else(|| {
        let known: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
        let found = value::ggml_type_name(code);
        Error::unsupported(
            path,
            format!("dtype of tensor `{name}`"),
            found,
            known.join(", "),
        )
    })?;
    let offset = cursor.u64(&part("offset"))?;
    if shape.contains(&0) {
        return Err(Error::malformed(
            path,
            part("shape"),
            "no dimension of 0",
            format!("{shape:?}"),
        ));
    }
    let bytes = dtype.tensor_bytes(&shape).ok_or_else(|| {
        Error::malformed(
            path,
            part("shape"),
            format!(
                "whole blocks of {} values in a row and fewer than 2^64 bytes",
                dtype.values_per_block()
            ),
            format!("{shape:?} of {dtype}"),
        )
    })?;
    Ok(GgufTensor {
        name,
        dtype,
        shape,
        offset,
        bytes,
    })
}

/// Makes a tensor's offset absolute and checks that it lies in the file.
fn place(
    path: &Path,
    tensor: &mut GgufTensor,
    data_start: u64,
    alignment: u32,
    len_bytes: u64,
) -> Result<(), Error> {
    let part = || format!("offset of tensor `{}`", tensor.name);
    if !tensor.offset.is_multiple_of(u64::from(alignment)) {
        let expected = format!("a multiple of the alignment {alignment}");
        return Err(Error::malformed(
            path,
            part(),
            expected,
            tensor.offset.to_string(),
        ));
    }
    let start = data_start.checked_add(tensor.offset);
    let end = start.and_then(|start| start.checked_add(tensor.bytes));
    match (start, end) {
        (Some(start), Some(end)) if end <= len_bytes => {
            tensor.offset = start;
            Ok(())
        }
        _ => Err(Error::malformed(
            path,
            part(),
            format!(
                "{} bytes that end by the file's end at {len_bytes}",
                tensor.bytes
            ),
            format!("{} after the data's start at {data_start}", tensor.offset),
        )),
    }
}

/// No two tensors share a byte or a name.
fn check_apart(path: &Path, tensors: &[GgufTensor]) -> Result<(), Error> {
    let mut by_offset: Vec<&GgufTensor> = tensors.iter().collect();
    by_offset.sort_unstable_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        if let [first, second] = pair
            && first.offset.saturating_add(first.bytes) > second.offset
        {
            return Err(Error::malformed(
                path,
                format!("offset of tensor `{}`", second.name),
                format!(
                    "at or after {}, the end of tensor `{}`",
                    first.offset + first.bytes,
                    first.name
                ),
                second.offset.to_string(),
            ));
        }
    }
    let mut by_name: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    by_name.sort_unstable();
    for pair in by_name.windows(2) {
        if let [first, second] = pair
            && first == second
        {
            let part = format!("tensor `{first}`");
            return Err(Error::malformed(
                path,
                part,
                "to be there once",
                "a second time",
            ));
        }
    }
    Ok(())
}
