//! Where one tensor of a GGUF (versions 2 and 3, little-endian) begins. The front of a GGUF holds the
//! vocabulary, megabytes of it, before the list of tensors; it is read forwards in growing pieces,
//! nothing of it is kept, and long arrays of numbers are stepped over without being fetched.
//! Specification: the GGUF page of the ggml project.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "bytes from strangers are parsed here: every step is checked"
)]

use std::collections::HashSet;

use super::{Container, Front, Wanted, element::Element};
use crate::Error;
use window::Window;

mod window;

pub(super) const MAGIC: &[u8] = b"GGUF";

/// Metadata entries at most; llama.cpp's largest models have fewer than 100.
const MAX_ENTRIES: u64 = 100_000;
/// Tensors at most.
const MAX_TENSORS: u64 = 1_000_000;
/// Longest key, name or value that is a single text; chat templates take 20 KB.
const MAX_TEXT_BYTES: u64 = 10_000_000;
/// Arrays of arrays at most this deep; published files have none.
const MAX_ARRAY_DEPTH: u32 = 4;
/// Dimensions of a tensor, as ggml has them.
const MAX_DIMENSIONS: u32 = 4;
/// What the specification takes where `general.alignment` is absent.
const DEFAULT_ALIGNMENT: u64 = 32;
/// A key of one byte, its type and one byte of value: less no entry can take.
const LEAST_ENTRY_BYTES: u64 = 14;
/// A tensor's name length, dimension count, one dimension, type and offset.
const LEAST_TENSOR_BYTES: u64 = 32;

/// A tensor as the list has it; its offset counts from the start of the data.
struct Tensor {
    name: String,
    shape: Vec<u64>,
    code: u32,
    offset: u64,
}

/// Reads the front and returns the offset of row 0 of `wanted` in the file.
pub(super) async fn find(front: &Front<'_>, wanted: &Wanted) -> Result<u64, Error> {
    let mut window = Window::new(front);
    window.skip(4, "magic").await?;
    let version = window.u32("version").await?;
    if !matches!(version, 2 | 3) {
        let hint = if matches!(version.swap_bytes(), 2 | 3) {
            " (big-endian)"
        } else {
            ""
        };
        return Err(window.malformed("version", "2 or 3", format!("{version}{hint}")));
    }
    let tensor_count = window
        .count("tensor count", LEAST_TENSOR_BYTES, MAX_TENSORS)
        .await?;
    let entry_count = window
        .count("metadata count", LEAST_ENTRY_BYTES, MAX_ENTRIES)
        .await?;
    let mut alignment = DEFAULT_ALIGNMENT;
    for _ in 0..entry_count {
        let key = window.text("metadata key").await?;
        if let Some(value) = value(&mut window, &key).await? {
            alignment = value;
        }
    }
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(tensor(&mut window).await?);
    }
    let data_start = window
        .position()
        .checked_next_multiple_of(alignment)
        .ok_or_else(|| window.malformed("header", "an end below 2^64", "more".into()))?;
    front.options.meter.add_useful(window.position());
    place(front, wanted, &tensors, (data_start, alignment))
}

/// Steps over one metadata value; returns it where it is the alignment.
async fn value(window: &mut Window<'_, '_>, key: &str) -> Result<Option<u64>, Error> {
    let kind = window.u32("value type").await?;
    if key == "general.alignment" {
        let alignment = match kind {
            4 => u64::from(window.u32(key).await?),
            other => {
                return Err(window.malformed(key, "a u32", format!("type {other}")));
            }
        };
        if !alignment.is_power_of_two() {
            return Err(window.malformed(key, "a power of two", alignment.to_string()));
        }
        return Ok(Some(alignment));
    }
    match (kind, scalar_bytes(kind)) {
        (_, Some(bytes)) => window.skip(bytes, key).await?,
        (8, _) => window.skip_text(key).await?,
        (9, _) => array(window, key).await?,
        _ => return Err(window.malformed(key, "a value type of 0 to 12", kind.to_string())),
    }
    Ok(None)
}

/// Steps over an array. Nested ones are counted down on a stack of fixed depth, not by recursion.
async fn array(window: &mut Window<'_, '_>, key: &str) -> Result<(), Error> {
    // Elements still to come of each array that is open, the innermost last; all of them arrays.
    let mut open: Vec<u64> = vec![1];
    while let Some(left) = open.pop() {
        let Some(left) = left.checked_sub(1) else {
            continue;
        };
        open.push(left);
        let kind = window.u32(key).await?;
        let least = match kind {
            8 => 8,
            9 => 12,
            _ => scalar_bytes(kind).ok_or_else(|| {
                window.malformed(key, "an element type of 0 to 12", kind.to_string())
            })?,
        };
        let count = window.count(key, least, u64::MAX).await?;
        match kind {
            8 => {
                for _ in 0..count {
                    window.skip_text(key).await?;
                }
            }
            9 => {
                let deep = u64::from(MAX_ARRAY_DEPTH);
                if u64::try_from(open.len()).is_ok_and(|depth| depth >= deep) {
                    let expected = format!("arrays at most {MAX_ARRAY_DEPTH} deep");
                    return Err(window.malformed(key, &expected, "more".into()));
                }
                open.push(count);
            }
            // `count` saw to it that the bytes are there.
            _ => window.skip(least.saturating_mul(count), key).await?,
        }
    }
    Ok(())
}

/// Bytes of a value of this type, where every one has the same.
fn scalar_bytes(kind: u32) -> Option<u64> {
    Some(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

async fn tensor(window: &mut Window<'_, '_>) -> Result<Tensor, Error> {
    let name = window.text("tensor name").await?;
    let dimensions = window.u32(&name).await?;
    if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
        let expected = format!("1 to {MAX_DIMENSIONS} dimensions");
        return Err(window.malformed(&part(&name), &expected, dimensions.to_string()));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(window.u64(&name).await?);
    }
    // GGUF has the innermost dimension first.
    shape.reverse();
    let code = window.u32(&name).await?;
    let offset = window.u64(&name).await?;
    Ok(Tensor {
        name,
        shape,
        code,
        offset,
    })
}

fn part(name: &str) -> String {
    format!("tensor `{name}`")
}

/// Finds the matrix among the tensors and checks that its bytes lie in the file and are no other's.
fn place(
    front: &Front<'_>,
    wanted: &Wanted,
    tensors: &[Tensor],
    (data_start, alignment): (u64, u64),
) -> Result<u64, Error> {
    let malformed = |part: String, expected: String, found: String| {
        front.malformed(Container::Gguf, part, expected, found)
    };
    let mut names = HashSet::new();
    if let Some(twice) = tensors.iter().find(|tensor| !names.insert(&tensor.name)) {
        let found = "a second time".to_owned();
        return Err(malformed(
            part(&twice.name),
            "to be there once".into(),
            found,
        ));
    }
    let by_name = |name: &str| tensors.iter().find(|tensor| tensor.name == name);
    let (name, matrix) = wanted
        .choose(by_name)
        .ok_or_else(|| wanted.missing(front.name(), Container::Gguf))?;
    let dtype = Element::of_ggml(matrix.code).map_or_else(
        || format!("ggml type {}", matrix.code),
        |own| own.name.to_owned(),
    );
    wanted.check(front.name(), name, &matrix.shape, &dtype)?;
    if !matrix.offset.is_multiple_of(alignment) {
        let expected = format!("an offset that is a multiple of the alignment {alignment}");
        return Err(malformed(part(name), expected, matrix.offset.to_string()));
    }
    let table_bytes = wanted.table_bytes()?;
    let end = matrix.offset.checked_add(table_bytes);
    let inside = end
        .and_then(|end| end.checked_add(data_start))
        .is_some_and(|end| end <= front.len_bytes);
    let (Some(end), true) = (end, inside) else {
        return Err(malformed(
            part(name),
            format!(
                "{table_bytes} bytes that end by the file's end at {}",
                front.len_bytes
            ),
            format!("{} after the data's start at {data_start}", matrix.offset),
        ));
    };
    for other in tensors.iter().filter(|other| other.name != name) {
        // The size of a type that this reader does not know is at least one byte.
        let bytes = Element::of_ggml(other.code)
            .and_then(|element| element.tensor_bytes(&other.shape))
            .unwrap_or(1);
        if other.offset < end && other.offset.saturating_add(bytes) > matrix.offset && bytes > 0 {
            return Err(malformed(
                part(name),
                format!("bytes of its own at {}..{end}", matrix.offset),
                format!("tensor `{}` at {}", other.name, other.offset),
            ));
        }
    }
    // It does not overflow: the end fits.
    Ok(data_start.saturating_add(matrix.offset))
}
