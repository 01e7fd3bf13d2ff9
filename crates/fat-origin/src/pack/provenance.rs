//! Where a knot comes from: names and sizes, never paths of the packing machine and never a date, so
//! that packing the same checkpoint twice gives the same bytes. For people, but for one member:
//! `embedding` tells a station that is given the source itself where the matrix lies in it, so that
//! it need not read headers (docs/format/row-store.md, "Rows without conversion").

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
    let mut provenance = json!({
        "packed_by": concat!("fat-origin ", env!("CARGO_PKG_VERSION")),
        "format": checkpoint.format,
        "files": files,
        "embedding": embedding(checkpoint, selection, options),
        "tied": selection.tied,
        "embed_dtype": options.embed_dtype.name(),
        "block_dtype": options.block_dtype.name(),
        "spectral_tolerance": options.spectral_tolerance,
    });
    // Only where there is one: knots without stay what they were.
    if let (Some(mix), Some(members)) = (&options.embed_mix, provenance.as_object_mut()) {
        members.insert("embed_mix".to_owned(), mix.to_string().into());
    }
    provenance.to_string()
}

/// Where the matrix lies in the checkpoint, if its rows there are the rows of the knot.
fn embedding(
    checkpoint: &Checkpoint,
    selection: &Selection,
    options: &PackOptions,
) -> Option<Value> {
    let matrix = &selection.embedding;
    if matrix.source != matrix.target || options.embed_mix.is_some() {
        return None;
    }
    let file = checkpoint.files.get(matrix.tensor.file)?;
    Some(json!({
        "file": file.path.file_name()?.to_str()?,
        "file_bytes": file.len_bytes,
        "base_bytes": matrix.tensor.range.start,
    }))
}
