//! A GGUF file as a checkpoint: its tensors under Hugging Face names, byte for byte as they lie in the
//! file, and the texts that GGUF keeps as metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};

use super::gguf::{GgufArray, GgufFile, GgufTensor};
use super::gguf_config::{self, RopeTensors};
use super::names::{self, Architecture, Mapped, RopeFactors};
use super::{Checkpoint, DataFile, ModelTexts, StoredDtype, Tensor, chat_template, stop_ids};
use crate::{Error, tokenizer};

pub(super) fn open(path: &Path) -> Result<Checkpoint, Error> {
    let gguf = GgufFile::open(path)?;
    let architecture = architecture(&gguf)?;
    refuse_split(&gguf)?;
    let (tensors, factors) = tensors(&gguf, architecture)?;
    let config = gguf_config::config(&gguf, architecture, &tensors, &factors)?;
    let spec = tokenizer::gguf::read(&gguf)?;
    let mut stops: BTreeSet<u32> = spec.eos_ids.iter().copied().collect();
    stops.extend(token_id(&gguf, "eos")?);
    Ok(Checkpoint {
        path: path.to_path_buf(),
        format: "gguf",
        tensors,
        files: vec![DataFile::open(path)?],
        texts: ModelTexts {
            config: config.to_string(),
            tokenizer_config: Some(tokenizer_config(&gguf)?.to_string()),
            chat_template: tokenizer::gguf::chat_template(&gguf)?
                .map(|text| chat_template::within_limit(path, text.to_owned()))
                .transpose()?,
            generation_config: stop_ids::generation_config(None, &stops),
        },
        tokenizer: spec,
        stop_ids: stops,
    })
}

fn architecture(gguf: &GgufFile) -> Result<Architecture, Error> {
    let name = gguf.string("general.architecture")?.ok_or_else(|| {
        Error::malformed(
            gguf.path(),
            "metadata key `general.architecture`",
            "a string",
            "no such key",
        )
    })?;
    Architecture::from_name(name).ok_or_else(|| {
        Error::unsupported(gguf.path(), "architecture", name, Architecture::SUPPORTED)
    })
}

/// One file of a split model holds a part of the tensors; they have to be merged first.
fn refuse_split(gguf: &GgufFile) -> Result<(), Error> {
    match gguf.unsigned("split.count")? {
        Some(count) if count > 1 => Err(Error::unsupported(
            gguf.path(),
            "split.count",
            count.to_string(),
            "1: merge the parts first",
        )),
        _ => Ok(()),
    }
}

fn tensors(
    gguf: &GgufFile,
    architecture: Architecture,
) -> Result<(BTreeMap<String, Tensor>, RopeTensors), Error> {
    let mut tensors = BTreeMap::new();
    let mut factors = RopeTensors::default();
    for tensor in gguf.tensors() {
        match names::from_gguf(architecture, &tensor.name) {
            Mapped::Weight(name) => {
                let weight = Tensor {
                    name: name.clone(),
                    dtype: StoredDtype::Known(tensor.dtype),
                    shape: tensor.shape.clone(),
                    file: 0,
                    range: tensor.offset..tensor.offset + tensor.bytes,
                };
                tensors.insert(name, weight);
            }
            Mapped::RopeFactors(which) => {
                let values = Some(f32_values(gguf, tensor)?);
                match which {
                    RopeFactors::All => factors.all = values,
                    RopeFactors::Short => factors.short = values,
                    RopeFactors::Long => factors.long = values,
                }
            }
            // A weight left out would change the answer, so it is refused, not skipped.
            Mapped::Unknown => {
                let supported = format!("the tensors of {}", architecture.name());
                return Err(Error::unsupported(
                    gguf.path(),
                    "tensor",
                    tensor.name.as_str(),
                    supported,
                ));
            }
        }
    }
    Ok((tensors, factors))
}

fn f32_values(gguf: &GgufFile, tensor: &GgufTensor) -> Result<Vec<f32>, Error> {
    if tensor.dtype != gkq_v2::Dtype::F32 {
        let part = format!("dtype of tensor `{}`", tensor.name);
        return Err(Error::unsupported(
            gguf.path(),
            part,
            tensor.dtype.name(),
            "f32",
        ));
    }
    let bytes = gguf.read_tensor(tensor)?;
    Ok(bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|chunk| f32::from_le_bytes(*chunk))
        .collect())
}

/// An id of `tokenizer.ggml.{role}_token_id`.
pub(super) fn token_id(gguf: &GgufFile, role: &str) -> Result<Option<u32>, Error> {
    let id = gguf.unsigned(&format!("tokenizer.ggml.{role}_token_id"))?;
    Ok(id.and_then(|id| u32::try_from(id).ok()))
}

/// What chat templates ask of `tokenizer_config.json`.
fn tokenizer_config(gguf: &GgufFile) -> Result<Value, Error> {
    let tokens = match gguf.array("tokenizer.ggml.tokens")? {
        Some(GgufArray::String(tokens)) => tokens.as_slice(),
        _ => &[],
    };
    let mut config = Map::new();
    for (role, key) in [
        ("bos", "bos"),
        ("eos", "eos"),
        ("unknown", "unk"),
        ("padding", "pad"),
    ] {
        let id = token_id(gguf, role)?.and_then(|id| usize::try_from(id).ok());
        if let Some(text) = id.and_then(|id| tokens.get(id)) {
            config.insert(format!("{key}_token"), Value::from(text.as_str()));
        }
    }
    for role in ["bos", "eos"] {
        if let Some(add) = gguf.bool(&format!("tokenizer.ggml.add_{role}_token"))? {
            config.insert(format!("add_{role}_token"), Value::from(add));
        }
    }
    Ok(Value::Object(config))
}
