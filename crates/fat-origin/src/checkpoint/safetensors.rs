//! One safetensors file: its header, validated, as a list of tensors with byte ranges. Payloads are
//! not touched. Specification: the README of the safetensors project; the rules that its reader
//! holds (no hole, no overlap, sizes that agree with shapes) are held here with the tensor's name in
//! the error.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use gkq_v2::Dtype;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{DataFile, StoredDtype};
use crate::Error;

/// The longest header that any reader of the format accepts.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;

/// A tensor as the header lists it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) dtype: StoredDtype,
    pub(super) shape: Vec<u64>,
    /// Bytes of the file, not of its data section.
    pub(super) range: Range<u64>,
}

/// Reads and validates the header of an open file.
pub(super) fn list(file: &DataFile) -> Result<Vec<Listed>, Error> {
    let bytes = header_bytes(file)?;
    let data_start = LENGTH_BYTES + bytes.len() as u64;
    let header: Header = serde_json::from_slice(&bytes).map_err(|error| {
        Error::malformed(
            &file.path,
            "header",
            "a JSON object of tensors",
            error.to_string(),
        )
    })?;
    let mut names = HashSet::new();
    let mut listed = Vec::with_capacity(header.0.len());
    for (name, entry) in header.0 {
        if !names.insert(name.clone()) {
            return Err(Error::malformed(
                &file.path,
                tensor(&name),
                "one entry",
                "two of that name",
            ));
        }
        listed.push(place(file, name, entry, data_start)?);
    }
    listed.sort_by_key(|tensor| (tensor.range.start, tensor.range.end));
    check_cover(file, &listed, data_start)?;
    Ok(listed)
}

fn header_bytes(file: &DataFile) -> Result<Vec<u8>, Error> {
    let malformed = |expected: String, found: String| {
        Error::malformed(&file.path, "header length", expected, found)
    };
    if file.len_bytes < LENGTH_BYTES {
        return Err(malformed(
            "at least 8 bytes".to_owned(),
            format!("a file of {}", file.len_bytes),
        ));
    }
    let mut length = [0; 8];
    file.read_at(&mut length, 0)?;
    let length = u64::from_le_bytes(length);
    let limit = MAX_HEADER_BYTES.min(file.len_bytes - LENGTH_BYTES);
    if length > limit {
        return Err(malformed(
            format!(
                "at most {limit} (a file of {} bytes, a limit of {MAX_HEADER_BYTES})",
                file.len_bytes
            ),
            length.to_string(),
        ));
    }
    let capacity = usize::try_from(length)
        .map_err(|_too_large| malformed("a length in memory".to_owned(), length.to_string()))?;
    let mut bytes = vec![0; capacity];
    file.read_at(&mut bytes, LENGTH_BYTES)?;
    Ok(bytes)
}

fn tensor(name: &str) -> String {
    format!("tensor `{name}`")
}

/// Checks one entry by itself and moves its offsets to the file's.
fn place(file: &DataFile, name: String, entry: Entry, data_start: u64) -> Result<Listed, Error> {
    let [start, end] = entry.data_offsets;
    let data_bytes = file.len_bytes - data_start;
    if start > end || end > data_bytes {
        return Err(Error::malformed(
            &file.path,
            tensor(&name),
            format!("data_offsets within the file's {data_bytes} data bytes"),
            format!("{start}..{end}"),
        ));
    }
    if let Some(value_bytes) = value_bytes(&entry.dtype) {
        let expected = entry
            .shape
            .iter()
            .try_fold(value_bytes, |bytes, &dim| bytes.checked_mul(dim));
        if expected != Some(end - start) {
            return Err(Error::malformed(
                &file.path,
                tensor(&name),
                match expected {
                    Some(bytes) => {
                        format!("{bytes} bytes ({} of shape {:?})", entry.dtype, entry.shape)
                    }
                    None => format!("a shape whose bytes fit 64 bits, not {:?}", entry.shape),
                },
                format!("{} bytes", end - start),
            ));
        }
    }
    let dtype = match entry.dtype.as_str() {
        "F32" => StoredDtype::Known(Dtype::F32),
        "F16" => StoredDtype::Known(Dtype::F16),
        "BF16" => StoredDtype::Known(Dtype::Bf16),
        _ => StoredDtype::Other(entry.dtype),
    };
    Ok(Listed {
        name,
        dtype,
        shape: entry.shape,
        range: data_start + start..data_start + end,
    })
}

/// Every data byte belongs to exactly one tensor. `listed` is in the order of ranges.
fn check_cover(file: &DataFile, listed: &[Listed], data_start: u64) -> Result<(), Error> {
    let mut previous: Option<&Listed> = None;
    let mut cursor = data_start;
    for entry in listed {
        if entry.range.start != cursor {
            let before = previous.map_or("the header".to_owned(), |listed| tensor(&listed.name));
            let relation = if entry.range.start < cursor {
                "overlaps"
            } else {
                "leaves a hole after"
            };
            return Err(Error::malformed(
                &file.path,
                tensor(&entry.name),
                format!("to begin at data offset {}", cursor - data_start),
                format!(
                    "{}, which {relation} {before}",
                    entry.range.start - data_start
                ),
            ));
        }
        cursor = entry.range.end;
        previous = Some(entry);
    }
    if cursor != file.len_bytes {
        return Err(Error::malformed(
            &file.path,
            "file length",
            format!("{cursor} bytes, where the last tensor ends"),
            format!("{} bytes", file.len_bytes),
        ));
    }
    Ok(())
}

/// Bytes of one value; `None` for a type this reader has not heard of.
fn value_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Some(1),
        "F16" | "BF16" | "I16" | "U16" => Some(2),
        "F32" | "I32" | "U32" => Some(4),
        "F64" | "I64" | "U64" | "C64" => Some(8),
        _ => None,
    }
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header in the order of the file, with names that come twice still there to be refused.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        let entry = map.next_value()?;
                        entries.push((name, entry));
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests;
