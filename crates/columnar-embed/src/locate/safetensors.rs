//! The header of a safetensors file: one JSON object, read whole, and the place of one tensor in it.
//! No payload is touched. All rules of the format's own reader are held (no hole, no overlap, sizes
//! that agree with shapes, the last tensor ends the file), so that a shard that was cut short is
//! refused here and not when a row is missing.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "bytes from strangers are parsed here: every step is checked"
)]

use std::collections::HashMap;

use serde::Deserialize;

use super::{Container, Front, Wanted, element::Element, tensor_map::TensorMap};
use crate::Error;

/// The longest header that any reader of the format accepts.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Bytes before the header: its length.
const LENGTH_BYTES: u64 = 8;

/// Dimensions of a tensor at most; ggml has 4, PyTorch rarely more.
const MAX_DIMENSIONS: usize = 8;

/// Whether the object can be a safetensors file: a header length that fits, and the brace that the
/// format asks for behind it.
pub(super) fn looks_like(prefix: &[u8], len_bytes: u64) -> bool {
    let most = MAX_HEADER_BYTES.min(len_bytes.saturating_sub(LENGTH_BYTES));
    let fits = header_bytes(prefix).is_some_and(|header| (2..=most).contains(&header));
    fits && prefix.get(8) == Some(&b'{')
}

fn header_bytes(prefix: &[u8]) -> Option<u64> {
    prefix.first_chunk().copied().map(u64::from_le_bytes)
}

/// Reads the header and returns the offset of row 0 of `wanted` in the file.
pub(super) async fn find(front: &Front<'_>, wanted: &Wanted) -> Result<u64, Error> {
    let header = header_bytes(&front.prefix).unwrap_or(0);
    let data_start = LENGTH_BYTES.saturating_add(header);
    let bytes = front.up_to(data_start).await?;
    front.options.meter.add_useful(data_start);
    let text = bytes.get(8..).unwrap_or_default();
    let parsed: TensorMap<Entry> = serde_json::from_slice(text).map_err(|error| {
        malformed(
            front,
            "header",
            "a JSON object of tensors",
            error.to_string(),
        )
    })?;
    let data_bytes = front.len_bytes.saturating_sub(data_start);
    check(front, &parsed.0, data_bytes)?;
    let (name, entry) = wanted
        .choose(|name| parsed.0.get(name))
        .ok_or_else(|| wanted.missing(front.name(), Container::Safetensors))?;
    let dtype = Element::of_safetensors(&entry.dtype).map_or(entry.dtype.as_str(), |(_, own)| own);
    wanted.check(front.name(), name, &entry.shape, dtype)?;
    let [start, _] = entry.data_offsets;
    data_start
        .checked_add(start)
        .ok_or_else(|| malformed(front, tensor(name), "an offset below 2^64", "more".into()))
}

fn malformed(
    front: &Front<'_>,
    part: impl Into<String>,
    expected: impl Into<String>,
    found: String,
) -> Error {
    front.malformed(Container::Safetensors, part, expected, found)
}

fn tensor(name: &str) -> String {
    format!("tensor `{name}`")
}

/// Every tensor by itself, then all together: each data byte belongs to exactly one.
fn check(
    front: &Front<'_>,
    entries: &HashMap<String, Entry>,
    data_bytes: u64,
) -> Result<(), Error> {
    for (name, entry) in entries {
        check_entry(front, name, entry, data_bytes)?;
    }
    let mut by_offset: Vec<(&str, [u64; 2])> = entries
        .iter()
        .map(|(name, entry)| (name.as_str(), entry.data_offsets))
        .collect();
    by_offset.sort_unstable_by_key(|&(name, offsets)| (offsets, name));
    let mut cursor = 0;
    for (name, [start, end]) in by_offset {
        if start != cursor {
            let found = format!(
                "{start}, which {} what is before",
                if start < cursor {
                    "overlaps"
                } else {
                    "leaves a hole after"
                }
            );
            let expected = format!("to begin at data offset {cursor}");
            return Err(malformed(front, tensor(name), expected, found));
        }
        cursor = end;
    }
    if cursor != data_bytes {
        return Err(malformed(
            front,
            "length",
            format!("{cursor} data bytes, where the last tensor ends"),
            format!("{data_bytes}"),
        ));
    }
    Ok(())
}

fn check_entry(front: &Front<'_>, name: &str, entry: &Entry, data_bytes: u64) -> Result<(), Error> {
    let [start, end] = entry.data_offsets;
    let length = end.checked_sub(start).filter(|_| end <= data_bytes);
    let Some(length) = length else {
        return Err(malformed(
            front,
            tensor(name),
            format!("data_offsets within the {data_bytes} data bytes"),
            format!("{start}..{end}"),
        ));
    };
    if entry.shape.len() > MAX_DIMENSIONS {
        return Err(malformed(
            front,
            tensor(name),
            format!("at most {MAX_DIMENSIONS} dimensions"),
            entry.shape.len().to_string(),
        ));
    }
    let Some((value_bytes, _)) = Element::of_safetensors(&entry.dtype) else {
        return Ok(());
    };
    let expected = entry
        .shape
        .iter()
        .try_fold(value_bytes, |bytes, &dim| bytes.checked_mul(dim));
    if expected == Some(length) {
        return Ok(());
    }
    let expected = match expected {
        Some(bytes) => format!("{bytes} bytes ({} of shape {:?})", entry.dtype, entry.shape),
        None => format!("a shape whose bytes fit 64 bits, not {:?}", entry.shape),
    };
    Err(malformed(
        front,
        tensor(name),
        expected,
        format!("{length} bytes"),
    ))
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}
