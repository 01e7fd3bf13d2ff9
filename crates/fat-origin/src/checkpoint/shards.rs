//! Which safetensors files make a checkpoint: one, or those that an index names. A shard outside the
//! directory is refused before it is opened.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

use serde::Deserialize;

use super::safetensors::{self, Listed};
use super::{DataFile, Tensor, plain_file};
use crate::Error;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// All tensors of the directory under their names in the files, and the files.
pub(super) fn open(directory: &Path) -> Result<(Vec<Tensor>, Vec<DataFile>), Error> {
    let single = directory.join(SINGLE);
    let index = directory.join(INDEX);
    // The single file wins, as in transformers: a stale index beside it is common.
    if single.exists() {
        let file = DataFile::open(&single)?;
        let tensors = safetensors::list(&file)?
            .into_iter()
            .map(|listed| tensor(listed, 0))
            .collect();
        return Ok((tensors, vec![file]));
    }
    if index.exists() {
        return sharded(directory, &index);
    }
    Err(Error::NoCheckpoint {
        path: directory.to_path_buf(),
        reason: format!("it has neither `{SINGLE}` nor `{INDEX}`"),
    })
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn sharded(directory: &Path, index_path: &Path) -> Result<(Vec<Tensor>, Vec<DataFile>), Error> {
    let text = plain_file::read(index_path, plain_file::MAX_TEXT_BYTES)?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| {
        Error::malformed(
            index_path,
            "index",
            "an object with `weight_map`",
            error.to_string(),
        )
    })?;
    let mut by_shard: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, shard) in &index.weight_map {
        by_shard.entry(shard).or_default().push(name);
    }
    // All names are looked at before any file is.
    for shard in by_shard.keys() {
        if !is_plain(shard) {
            return Err(Error::ShardPath {
                index: index_path.to_path_buf(),
                shard: (*shard).to_owned(),
            });
        }
    }
    let (mut tensors, mut files) = (Vec::new(), Vec::new());
    for (shard, names) in by_shard {
        let path = directory.join(shard);
        if !path.exists() {
            return Err(Error::MissingShard {
                index: index_path.to_path_buf(),
                shard: shard.to_owned(),
                tensors: names.len(),
                first_tensor: names.first().copied().unwrap_or_default().to_owned(),
            });
        }
        let file = DataFile::open(&path)?;
        let mut listed: HashMap<String, Listed> = safetensors::list(&file)?
            .into_iter()
            .map(|listed| (listed.name.clone(), listed))
            .collect();
        for name in names {
            // What a shard holds beyond the index is not part of the checkpoint.
            let found = listed.remove(name).ok_or_else(|| Error::AbsentTensor {
                index: index_path.to_path_buf(),
                tensor: name.to_owned(),
                shard: shard.to_owned(),
            })?;
            tensors.push(tensor(found, files.len()));
        }
        files.push(file);
    }
    Ok((tensors, files))
}

fn tensor(listed: Listed, file: usize) -> Tensor {
    Tensor {
        name: listed.name,
        dtype: listed.dtype,
        shape: listed.shape,
        file,
        range: listed.range,
    }
}

/// A relative path of plain names: no `..`, no root, no drive.
fn is_plain(shard: &str) -> bool {
    let path = Path::new(shard);
    !shard.is_empty()
        && !shard.contains(['\\', '\0'])
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}
