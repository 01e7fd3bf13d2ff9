//! Where a knot comes from, for people: names and sizes, never paths of the packing machine and never
//! a date, so that packing the same checkpoint twice gives the same bytes.

use serde_json::{Value, json};

use super::PackOptions;
use super::selection::Selection;
use crate::checkpoint::Checkpoint;

pub(super) fn describe(
    checkpoint: &Checkpoint,
    selection: &Selection,
    options: &PackOptions,
) -> String {
    let files: Vec<Value> = checkpoint
        .files
        .iter()
        .map(|file| {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            json!({"name": name, "bytes": file.len_bytes})
        })
        .collect();
    json!({
        "packed_by": concat!("fat-origin ", env!("CARGO_PKG_VERSION")),
        "format": checkpoint.format,
        "files": files,
        "tied": selection.tied,
        "embed_dtype": options.embed_dtype.name(),
        "block_dtype": options.block_dtype.name(),
        "spectral_tolerance": options.spectral_tolerance,
    })
    .to_string()
}
