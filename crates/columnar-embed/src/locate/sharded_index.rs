//! `model.safetensors.index.json`: which shard holds the matrix. The shard's own header says where.
//! Only that one shard is opened; what else lies beside it does not matter.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "bytes from strangers are parsed here: every step is checked"
)]

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use serde::Deserialize;

use super::{
    Container, Evidence, Found, Front, LocateOptions, Located, Searching, Wanted, assumed,
    safetensors, tensor_map::TensorMap,
};
use crate::Error;

/// Longest index: one of 60 MB has been seen in the wild.
const MAX_INDEX_BYTES: u64 = 100_000_000;

/// Longest name of a shard.
const MAX_NAME_BYTES: usize = 1024;

/// What a manifest of this project calls itself (docs/format/manifest.md).
const MANIFEST_FORMAT: &str = "fat-station manifest";

/// Whether the object can be JSON: its first character that is no blank is a brace.
pub(super) fn looks_like(prefix: &[u8]) -> bool {
    let first = prefix.iter().find(|byte| !byte.is_ascii_whitespace());
    first == Some(&b'{')
}

/// Reads the index and looks into the shard that it names.
pub(super) fn find<'a>(
    front: &'a Front<'_>,
    wanted: &'a Wanted,
    options: &'a LocateOptions<'_>,
) -> Searching<'a, Found> {
    async move {
        let text = whole(front).await?;
        let index: Index = serde_json::from_slice(&text).map_err(|error| {
            malformed(
                front,
                "index",
                "a JSON object with `weight_map`",
                error.to_string(),
            )
        })?;
        if index.format.as_deref() == Some(MANIFEST_FORMAT) {
            return Ok(Found::Manifest(text));
        }
        let Some(weight_map) = index.weight_map else {
            let found = "none".to_owned();
            return Err(malformed(
                front,
                "index",
                "an object `weight_map` of tensor names to shards",
                found,
            ));
        };
        let (tensor, shard) = wanted
            .choose(|name| weight_map.0.get(name))
            .ok_or_else(|| wanted.missing(front.name(), Container::ShardedIndex))?;
        if !stays_below(shard) {
            return Err(Error::ShardName {
                object: front.name().to_owned(),
                tensor: tensor.to_owned(),
                shard: shard.chars().take(200).collect(),
            });
        }
        let wanted = Wanted {
            names: vec![tensor.to_owned()],
            ..wanted.clone()
        };
        in_shard(shard, &wanted, options).await.map(Found::Rows)
    }
    .boxed()
}

async fn whole(front: &Front<'_>) -> Result<Bytes, Error> {
    if front.len_bytes > MAX_INDEX_BYTES {
        return Err(malformed(
            front,
            "length",
            format!("at most {MAX_INDEX_BYTES} bytes"),
            front.len_bytes.to_string(),
        ));
    }
    let text = front.up_to(front.len_bytes).await?;
    front.options.meter.add_useful(front.len_bytes);
    Ok(text)
}

/// Looks for one tensor in one shard: what the shard holds beyond the index is not the checkpoint's.
async fn in_shard(
    shard: &str,
    wanted: &Wanted,
    options: &LocateOptions<'_>,
) -> Result<Located, Error> {
    let source = (options.open_shard)(shard).map_err(|error| Error::Read {
        object: shard.to_owned(),
        source: Arc::new(error),
    })?;
    let name = shard.rsplit('/').next().unwrap_or(shard);
    let located = match options.hint.filter(|hint| hint.file == name) {
        Some(hint) => assumed::at_hint(&source, wanted, hint)?,
        None => {
            let front = Front::open(&source, options.read).await?;
            if !safetensors::looks_like(&front.prefix, front.len_bytes) {
                return Err(malformed_shard(&front));
            }
            let base = safetensors::find(&front, wanted).await?;
            Located {
                layout: wanted.layout(base)?,
                source: Arc::clone(&source),
                container: Container::ShardedIndex,
                evidence: Evidence::Header,
            }
        }
    };
    Ok(Located {
        container: Container::ShardedIndex,
        ..located
    })
}

fn malformed_shard(front: &Front<'_>) -> Error {
    front.malformed(
        Container::Safetensors,
        "header length",
        format!(
            "a header within the file's {} bytes, then `{{`",
            front.len_bytes
        ),
        super::beginning(&front.prefix),
    )
}

/// A relative path of plain names: whoever wrote the index must not choose files of this machine, or
/// objects outside the model's folder.
fn stays_below(shard: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    shard.len() <= MAX_NAME_BYTES
        && !shard.contains(['\\', '\0', ':', '?', '#', '%'])
        && shard.split('/').all(plain)
}

fn malformed(
    front: &Front<'_>,
    part: impl Into<String>,
    expected: impl Into<String>,
    found: String,
) -> Error {
    front.malformed(Container::ShardedIndex, part, expected, found)
}

#[derive(Deserialize)]
struct Index {
    format: Option<String>,
    /// Shard of each tensor.
    weight_map: Option<TensorMap<String>>,
}
