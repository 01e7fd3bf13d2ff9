//! A Hugging Face model directory: safetensors, config, tokenizer, template, generation config.
//! Pickled weights are not read, and nothing is downloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::{Checkpoint, ModelTexts, chat_template, names, plain_file, shards, stop_ids};
use crate::{Error, tokenizer};

pub(super) fn open(directory: &Path) -> Result<Checkpoint, Error> {
    let missing = |name: &str| Error::NoCheckpoint {
        path: directory.to_path_buf(),
        reason: format!("it has no `{name}`"),
    };
    let config_path = directory.join("config.json");
    let config = read_text(&config_path)?.ok_or_else(|| missing("config.json"))?;
    let config_value = parse(&config_path, &config)?;
    let (listed, files) = shards::open(directory)?;

    let mut tensors = BTreeMap::new();
    for mut tensor in listed {
        let Some(name) = names::text_model(&tensor.name) else {
            tracing::debug!(tensor = tensor.name, "not part of the text model");
            continue;
        };
        tensor.name.clone_from(&name);
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(Error::malformed(
                directory,
                format!("tensor `{name}`"),
                "one of that name",
                "two",
            ));
        }
    }

    let tokenizer_config = read_json(&directory.join("tokenizer_config.json"))?;
    let generation_path = directory.join("generation_config.json");
    let generation_config = read_json(&generation_path)?;
    if !directory.join("tokenizer.json").exists() {
        return Err(missing("tokenizer.json"));
    }
    let spec = tokenizer::hugging_face::read(directory)?;

    let mut stops: BTreeSet<u32> = spec.eos_ids.iter().copied().collect();
    stops.extend(stop_ids::eos_of(&config_path, &config_value)?);
    // Multimodal configs nest the language model's.
    if let Some(nested) = config_value.get("text_config") {
        stops.extend(stop_ids::eos_of(&config_path, nested)?);
    }
    if let Some(generation) = &generation_config {
        stops.extend(stop_ids::eos_of(&generation_path, generation)?);
    }

    Ok(Checkpoint {
        path: directory.to_path_buf(),
        format: "huggingface",
        tensors,
        files,
        texts: ModelTexts {
            config,
            chat_template: chat_template::find(directory, tokenizer_config.as_ref())?,
            tokenizer_config: tokenizer_config.map(without_what_is_elsewhere),
            generation_config: stop_ids::generation_config(generation_config.as_ref(), &stops),
        },
        tokenizer: spec,
        stop_ids: stops,
    })
}

/// The template has a section of its own, and the added tokens (which can be a megabyte of JSON) are
/// in the compact tokenizer.
fn without_what_is_elsewhere(mut config: Value) -> String {
    if let Value::Object(fields) = &mut config {
        fields.shift_remove("chat_template");
        fields.shift_remove("added_tokens_decoder");
    }
    config.to_string()
}

/// A text file, or `None` if there is none.
fn read_text(path: &Path) -> Result<Option<String>, Error> {
    plain_file::read_text(path, plain_file::MAX_TEXT_BYTES)
}

/// A JSON file, or `None` if there is none.
pub(super) fn read_json(path: &Path) -> Result<Option<Value>, Error> {
    read_text(path)?.map(|text| parse(path, &text)).transpose()
}

fn parse(path: &Path, text: &str) -> Result<Value, Error> {
    serde_json::from_str(text)
        .map_err(|error| Error::malformed(path, "file", "JSON", error.to_string()))
}
