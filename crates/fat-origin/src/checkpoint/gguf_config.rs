//! `config.json` for a model that comes as a GGUF, in Hugging Face's fields. What GGUF stores in
//! another way than Hugging Face (permuted q and k of llama, norms of Gemma with the 1 added, rotary
//! factors as tensors) is said in the object `gkq`, because the bytes stay as they are.
//!
//! Specification: `docs/format/gkq-v2.md` for `gkq`; `convert_hf_to_gguf.py` and `src/llama-model.cpp`
//! of llama.cpp for what each key means.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::gguf::{GgufArray, GgufFile, GgufValue};
use super::names::Architecture;
use super::{EMBEDDING, HEAD, Tensor, gguf_model};
use crate::Error;

/// Rotary factors that GGUF stores as tensors, `[rotary_dim / 2]`.
#[derive(Debug, Default)]
pub(super) struct RopeTensors {
    pub(super) all: Option<Vec<f32>>,
    pub(super) short: Option<Vec<f32>>,
    pub(super) long: Option<Vec<f32>>,
}

/// The config of an opened GGUF.
pub(super) fn config(
    gguf: &GgufFile,
    architecture: Architecture,
    tensors: &BTreeMap<String, Tensor>,
    factors: &RopeTensors,
) -> Result<Value, Error> {
    let keys = Keys { gguf, architecture };
    if keys
        .unsigned("expert_count")?
        .is_some_and(|count| count > 0)
    {
        return Err(Error::unsupported(
            gguf.path(),
            "architecture",
            "mixture of experts",
            "dense models",
        ));
    }
    let shape = Shape::read(&keys)?;
    let mut config = dimensions(&keys, &shape, tensors)?;
    let mut set = |field: &str, value: Value| config.insert(field.to_owned(), value);
    for (field, role) in [("bos_token_id", "bos"), ("eos_token_id", "eos")] {
        if let Some(id) = gguf_model::token_id(gguf, role)? {
            set(field, json!(id));
        }
    }
    if let Some(theta) = keys.positive("rope.freq_base")? {
        set("rope_theta", json!(theta));
    }
    let rotary = keys
        .unsigned("rope.dimension_count")?
        .unwrap_or(shape.head_dim);
    if rotary != shape.head_dim {
        set(
            "partial_rotary_factor",
            json!(ratio(rotary, shape.head_dim)),
        );
    }
    // A bias in the first layer is a bias in all of them.
    let has = |module: &str| tensors.contains_key(&format!("model.layers.0.{module}.bias"));
    if architecture == Architecture::Llama {
        set("attention_bias", json!(has("self_attn.q_proj")));
        set("mlp_bias", json!(has("mlp.gate_proj")));
    }
    let window = keys.unsigned("attention.sliding_window")?;
    if let Some(window) = window.filter(|&window| window > 0) {
        set("sliding_window", json!(window));
    }
    if architecture == Architecture::Gemma3 {
        gemma3(&keys, &shape, &mut config)?;
    }
    rope_scaling(&keys, factors, &mut config)?;
    config.insert("gkq".to_owned(), gkq(architecture, factors));
    Ok(Value::Object(config))
}

/// What every family has.
fn dimensions(
    keys: &Keys<'_>,
    shape: &Shape,
    tensors: &BTreeMap<String, Tensor>,
) -> Result<Map<String, Value>, Error> {
    let rows = tensors
        .get(EMBEDDING)
        .and_then(|tensor| tensor.shape.first());
    let key_value_heads = keys
        .unsigned("attention.head_count_kv")?
        .unwrap_or(shape.heads);
    let fields = [
        ("model_type", json!(model_type(keys.architecture))),
        ("vocab_size", json!(rows)),
        ("hidden_size", json!(shape.hidden_size)),
        (
            "intermediate_size",
            json!(keys.required("feed_forward_length")?),
        ),
        ("num_hidden_layers", json!(shape.layers)),
        ("num_attention_heads", json!(shape.heads)),
        ("num_key_value_heads", json!(key_value_heads)),
        ("head_dim", json!(shape.head_dim)),
        (
            "max_position_embeddings",
            json!(keys.required("context_length")?),
        ),
        (
            "rms_norm_eps",
            json!(keys.required_positive("attention.layer_norm_rms_epsilon")?),
        ),
        ("hidden_act", json!(activation(keys.architecture))),
        ("tie_word_embeddings", json!(!tensors.contains_key(HEAD))),
    ];
    Ok(fields
        .into_iter()
        .map(|(field, value)| (field.to_owned(), value))
        .collect())
}

/// The numbers that others depend on.
struct Shape {
    layers: u64,
    hidden_size: u64,
    heads: u64,
    head_dim: u64,
}

impl Shape {
    fn read(keys: &Keys<'_>) -> Result<Self, Error> {
        let hidden_size = keys.required("embedding_length")?;
        let heads = keys.required("attention.head_count")?;
        let path = keys.gguf.path();
        let head_dim = match keys.unsigned("attention.key_length")? {
            Some(stated) => stated,
            None => hidden_size.checked_div(heads).ok_or_else(|| {
                Error::malformed(path, keys.part("attention.head_count"), "at least 1", "0")
            })?,
        };
        if let Some(value_length) = keys.unsigned("attention.value_length")?
            && value_length != head_dim
        {
            let supported = format!("{head_dim}, the key length");
            return Err(Error::unsupported(
                path,
                keys.part("attention.value_length"),
                value_length.to_string(),
                supported,
            ));
        }
        Ok(Self {
            layers: keys.required("block_count")?,
            hidden_size,
            heads,
            head_dim,
        })
    }
}

/// What only Gemma 3 has.
fn gemma3(keys: &Keys<'_>, shape: &Shape, config: &mut Map<String, Value>) -> Result<(), Error> {
    config.insert("hidden_activation".to_owned(), json!("gelu_pytorch_tanh"));
    config.insert(
        "rope_local_base_freq".to_owned(),
        json!(keys.positive("rope.freq_base_swa")?.unwrap_or(10_000.0)),
    );
    // GGUF does not store the scalar; llama.cpp knows the one size (27B, 62 layers) where it is not
    // the head's width.
    let scalar = if shape.layers == 62 {
        shape.hidden_size.checked_div(shape.heads)
    } else {
        Some(shape.head_dim)
    };
    config.insert("query_pre_attn_scalar".to_owned(), json!(scalar));
    if let Some(cap) = keys.float("final_logit_softcapping")? {
        config.insert("final_logit_softcapping".to_owned(), json!(cap));
    }
    let pattern = keys.key("attention.sliding_window_pattern");
    match keys.gguf.get(&pattern) {
        Some(GgufValue::Array(GgufArray::Bool(sliding))) => {
            let name = |&sliding: &bool| {
                if sliding {
                    "sliding_attention"
                } else {
                    "full_attention"
                }
            };
            config.insert("layer_types".to_owned(), sliding.iter().map(name).collect());
        }
        Some(value) => {
            config.insert("sliding_window_pattern".to_owned(), json!(value.as_u64()));
        }
        None => {
            config.insert("sliding_window_pattern".to_owned(), json!(6));
        }
    }
    Ok(())
}

/// `rope_scaling`, from the scaling keys and, for LongRoPE, the factor tensors.
fn rope_scaling(
    keys: &Keys<'_>,
    factors: &RopeTensors,
    config: &mut Map<String, Value>,
) -> Result<(), Error> {
    let path = keys.gguf.path();
    let original = keys.unsigned("rope.scaling.original_context_length")?;
    match (&factors.short, &factors.long) {
        (Some(short), Some(long)) => {
            let mut scaling =
                json!({"rope_type": "longrope", "short_factor": short, "long_factor": long});
            if let Some(attention) = keys.positive("rope.scaling.attn_factor")? {
                scaling["attention_factor"] = json!(attention);
            }
            config.insert("rope_scaling".to_owned(), scaling);
            if let Some(original) = original {
                let field = "original_max_position_embeddings".to_owned();
                config.insert(field, json!(original));
            }
            return Ok(());
        }
        (None, None) => {}
        _ => {
            return Err(Error::malformed(
                path,
                "rotary factors",
                "short and long ones",
                "one of them",
            ));
        }
    }
    let factor = match keys.float("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.float("rope.scale_linear")?,
    };
    // A factor of 0 is how some converters write "none".
    let factor = match factor {
        Some(factor) if factor < 0.0 => {
            return Err(keys.wrong("rope.scaling.factor", "0 or above", factor));
        }
        factor => factor.filter(|&factor| factor > 0.0),
    };
    let scaling = match (keys.gguf.string(&keys.key("rope.scaling.type"))?, factor) {
        (Some("none"), _) | (None | Some("linear"), None) => return Ok(()),
        (None | Some("linear"), Some(factor)) if factor <= 1.0 => return Ok(()),
        (None | Some("linear"), Some(factor)) => json!({"rope_type": "linear", "factor": factor}),
        (Some("yarn"), Some(factor)) => {
            let mut scaling = json!({"rope_type": "yarn", "factor": factor});
            if let Some(original) = original {
                scaling["original_max_position_embeddings"] = json!(original);
            }
            scaling
        }
        (Some(other), _) => {
            let part = keys.part("rope.scaling.type");
            let supported = "none, linear, yarn with its factor, longrope with its factor tensors";
            return Err(Error::unsupported(path, part, other, supported));
        }
    };
    config.insert("rope_scaling".to_owned(), scaling);
    Ok(())
}

/// How the stored bytes differ from Hugging Face's.
fn gkq(architecture: Architecture, factors: &RopeTensors) -> Value {
    let layout = match architecture {
        // llama.cpp's converter permutes the rows of q and k for neighbouring pairs.
        Architecture::Llama => "interleaved",
        _ => "half",
    };
    let mut object = json!({
        "rope_layout": layout,
        "norm_weight_includes_one": architecture == Architecture::Gemma3,
    });
    if let Some(all) = &factors.all {
        object["rope_freq_factors"] = json!(all);
    }
    object
}

fn model_type(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Gemma3 => "gemma3_text",
        other => other.name(),
    }
}

fn activation(architecture: Architecture) -> &'static str {
    if architecture == Architecture::Gemma3 {
        "gelu_pytorch_tanh"
    } else {
        "silu"
    }
}

/// Both are head widths, below 2^53 in any file that fits a disk.
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Metadata of one architecture, by the key's part behind its name.
struct Keys<'a> {
    gguf: &'a GgufFile,
    architecture: Architecture,
}

impl Keys<'_> {
    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.architecture.name())
    }

    fn part(&self, suffix: &str) -> String {
        format!("metadata key `{}`", self.key(suffix))
    }

    fn unsigned(&self, suffix: &str) -> Result<Option<u64>, Error> {
        self.gguf.unsigned(&self.key(suffix))
    }

    /// A finite number: JSON has no other, and a default in its place would be other arithmetic.
    fn float(&self, suffix: &str) -> Result<Option<f64>, Error> {
        let value = self.gguf.float(&self.key(suffix))?;
        match value {
            Some(value) if !value.is_finite() => Err(self.wrong(suffix, "a finite number", value)),
            value => Ok(value),
        }
    }

    /// A finite number above zero.
    fn positive(&self, suffix: &str) -> Result<Option<f64>, Error> {
        match self.float(suffix)? {
            Some(value) if value <= 0.0 => Err(self.wrong(suffix, "a number above 0", value)),
            value => Ok(value),
        }
    }

    fn wrong(&self, suffix: &str, expected: &str, found: f64) -> Error {
        Error::malformed(
            self.gguf.path(),
            self.part(suffix),
            expected,
            found.to_string(),
        )
    }

    fn required(&self, suffix: &str) -> Result<u64, Error> {
        self.unsigned(suffix)?.ok_or_else(|| self.absent(suffix))
    }

    fn required_positive(&self, suffix: &str) -> Result<f64, Error> {
        self.positive(suffix)?.ok_or_else(|| self.absent(suffix))
    }

    fn absent(&self, suffix: &str) -> Error {
        Error::malformed(
            self.gguf.path(),
            self.part(suffix),
            "a number",
            "no such key",
        )
    }
}
