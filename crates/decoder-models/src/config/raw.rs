//! config.json as Hugging Face writes it, every field optional. Defaults and checks are the
//! business of the parent module. Specification: `configuration_*.py` of transformers.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Error;

/// The fields that any supported family reads; others are ignored, as transformers does.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawConfig {
    pub(super) model_type: Option<String>,
    pub(super) vocab_size: Option<u64>,
    pub(super) hidden_size: Option<u64>,
    pub(super) intermediate_size: Option<u64>,
    pub(super) num_hidden_layers: Option<u64>,
    pub(super) num_attention_heads: Option<u64>,
    pub(super) num_key_value_heads: Option<u64>,
    pub(super) head_dim: Option<u64>,
    pub(super) max_position_embeddings: Option<u64>,
    pub(super) original_max_position_embeddings: Option<u64>,
    pub(super) rms_norm_eps: Option<f64>,
    pub(super) hidden_act: Option<String>,
    pub(super) hidden_activation: Option<String>,
    pub(super) attention_bias: Option<bool>,
    pub(super) mlp_bias: Option<bool>,
    pub(super) tie_word_embeddings: Option<bool>,
    pub(super) bos_token_id: Option<TokenIds>,
    pub(super) eos_token_id: Option<TokenIds>,
    pub(super) sliding_window: Option<u64>,
    pub(super) use_sliding_window: Option<bool>,
    pub(super) max_window_layers: Option<u64>,
    pub(super) layer_types: Option<Vec<String>>,
    pub(super) sliding_window_pattern: Option<u64>,
    /// What newer configs call it; both may be there.
    #[serde(rename = "_sliding_window_pattern")]
    pub(super) private_sliding_window_pattern: Option<u64>,
    pub(super) rope_theta: Option<f64>,
    pub(super) rope_local_base_freq: Option<f64>,
    pub(super) partial_rotary_factor: Option<f64>,
    pub(super) rope_scaling: Option<RawRope>,
    pub(super) rope_parameters: Option<Map<String, Value>>,
    pub(super) query_pre_attn_scalar: Option<f64>,
    pub(super) attn_logit_softcapping: Option<f64>,
    pub(super) final_logit_softcapping: Option<f64>,
    pub(super) use_bidirectional_attention: Option<Value>,
    pub(super) gkq: Option<RawGkq>,
}

/// `eos_token_id` is a number in some checkpoints and a list in others.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum TokenIds {
    One(u32),
    Many(Vec<u32>),
}

impl TokenIds {
    pub(super) fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

/// One set of rotary parameters (`rope_scaling`, or `rope_parameters` since transformers 5).
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct RawRope {
    pub(super) rope_type: Option<String>,
    /// The name of `rope_type` before transformers 4.43.
    #[serde(rename = "type")]
    pub(super) legacy_type: Option<String>,
    pub(super) rope_theta: Option<f64>,
    pub(super) partial_rotary_factor: Option<f64>,
    pub(super) factor: Option<f64>,
    pub(super) original_max_position_embeddings: Option<u64>,
    pub(super) low_freq_factor: Option<f64>,
    pub(super) high_freq_factor: Option<f64>,
    pub(super) short_factor: Option<Vec<f32>>,
    pub(super) long_factor: Option<Vec<f32>>,
    pub(super) attention_factor: Option<f64>,
    pub(super) beta_fast: Option<f64>,
    pub(super) beta_slow: Option<f64>,
    pub(super) mscale: Option<f64>,
    pub(super) mscale_all_dim: Option<f64>,
    pub(super) truncate: Option<bool>,
}

/// What a knot adds for weights that come from a GGUF and are kept byte for byte.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawGkq {
    pub(super) rope_layout: Option<String>,
    pub(super) norm_weight_includes_one: Option<bool>,
    pub(super) rope_freq_factors: Option<Vec<f32>>,
}

/// Rotary parameters of full and of sliding layers.
pub(super) struct RawRopes {
    pub(super) full: RawRope,
    pub(super) sliding: RawRope,
}

impl RawConfig {
    /// `rope_parameters` (transformers 5): one set for all layers, or one per layer type (Gemma 3).
    pub(super) fn rope_parameters(&self) -> Result<Option<RawRopes>, Error> {
        let Some(fields) = &self.rope_parameters else {
            return Ok(None);
        };
        let of_type = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(RawRope::default()),
            Some(value) => RawRope::deserialize(value).map_err(Error::ConfigSyntax),
        };
        if fields.contains_key("full_attention") || fields.contains_key("sliding_attention") {
            let ropes = RawRopes {
                full: of_type("full_attention")?,
                sliding: of_type("sliding_attention")?,
            };
            return Ok(Some(ropes));
        }
        let shared =
            RawRope::deserialize(Value::Object(fields.clone())).map_err(Error::ConfigSyntax)?;
        Ok(Some(RawRopes {
            sliding: shared.clone(),
            full: shared,
        }))
    }
}

/// Parses config.json; of a multimodal model the nested `text_config` wins over the outer fields.
pub(super) fn parse(json: &str) -> Result<RawConfig, Error> {
    let mut fields: Map<String, Value> = serde_json::from_str(json).map_err(Error::ConfigSyntax)?;
    if let Some(text_config) = fields.remove("text_config")
        && !text_config.is_null()
    {
        let Value::Object(text_fields) = text_config else {
            return Err(Error::value("text_config", "an object", text_config));
        };
        for (name, value) in text_fields {
            // A null inside means "not said here" and must not hide what the outer object says.
            if !value.is_null() || !fields.contains_key(&name) {
                fields.insert(name, value);
            }
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(Error::ConfigSyntax)
}
