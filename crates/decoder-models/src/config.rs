//! [`DecoderConfig`]: Hugging Face config.json, with the defaults of each family filled in and every
//! number checked. It knows no file and no tensor. Specification: `configuration_*.py` of
//! transformers for the fields, docs/format/gkq-v2.md for the extra object `gkq`.

mod raw;
mod rope;
#[cfg(test)]
mod tests;

use raw::{RawConfig, RawRope, RawRopes, TokenIds};
use rope::RopeContext;
pub use rope::{RopeConfig, RopeScaling};

use crate::Error;

/// Bound on every width of a model; the widest published ones stay below 2^17.
const MAX_WIDTH: u64 = 1 << 20;
/// Bound on one head's dimension.
const MAX_HEAD_DIM: u64 = 1 << 16;
/// Bound on layers; the deepest published models have 126.
const MAX_LAYERS: u64 = 1 << 12;
/// Token ids are `u32`.
const MAX_VOCABULARY: u64 = 1 << 32;
/// Positions stay exact in the f32 arithmetic of rotary embeddings up to 2^24.
const MAX_POSITIONS: u64 = MAX_CACHE_POSITIONS as u64;
/// The same as a length.
pub(crate) const MAX_CACHE_POSITIONS: usize = 1 << 24;

/// A model family, after config.json's `model_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// `llama`: SmolLM2, Llama 2 and 3.x.
    Llama,
    /// `qwen2`: Qwen2 and Qwen2.5.
    Qwen2,
    /// `qwen3`.
    Qwen3,
    /// `gemma3_text`, or the text part of `gemma3`.
    Gemma3,
    /// `phi3`: Phi-3, Phi-3.5, Phi-4-mini.
    Phi3,
}

/// The non-linearity of the gated feed-forward network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
}

/// What a layer may attend to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerType {
    /// Every earlier position.
    FullAttention,
    /// The last `sliding_window` positions, its own included.
    SlidingAttention,
}

/// Which dimensions of a head rotate together, with `d` the rotary dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RopeLayout {
    /// Dimension `i` with `i + d/2`: Hugging Face checkpoints, and GGUF except for llama.
    #[default]
    Half,
    /// Dimension `2i` with `2i + 1`: llama in a GGUF, whose q and k rows are permuted for it.
    Interleaved,
}

/// A decoder-only model's shape and constants. Sizes count values, not bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// The family that decides the layer's structure.
    pub family: Family,
    /// Rows of the embedding and of the head.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    pub intermediate_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Width of one head; need not be `hidden_size / num_attention_heads`.
    pub head_dim: usize,
    /// Positions the model was made for.
    pub max_position_embeddings: usize,
    /// Added to the mean square before the root.
    pub rms_norm_eps: f32,
    /// Non-linearity of the feed-forward network.
    pub hidden_act: Activation,
    /// Whether q, k and v projections have a bias.
    pub qkv_bias: bool,
    /// Whether the o projection has a bias.
    pub o_bias: bool,
    /// Whether gate, up and down projections have a bias.
    pub mlp_bias: bool,
    /// What the config says; whether a head tensor exists decides.
    pub tie_word_embeddings: bool,
    /// Beginning of sequence, where stated.
    pub bos_token_id: Option<u32>,
    /// Ends of sequence, where stated.
    pub eos_token_ids: Vec<u32>,
    /// One per layer.
    pub layer_types: Vec<LayerType>,
    /// Keys seen by a sliding layer; some where `layer_types` has one.
    pub sliding_window: Option<usize>,
    /// Rotary embedding of full-attention layers.
    pub rope: RopeConfig,
    /// Rotary embedding of sliding layers; differs from `rope` in Gemma 3 only.
    pub rope_local: RopeConfig,
    /// Multiplier of query-key products.
    pub attention_scale: f32,
    /// `cap` of `cap * tanh(score / cap)` on attention scores, where the model has one.
    pub attn_logit_softcapping: Option<f32>,
    /// `cap` of `cap * tanh(logit / cap)`, where the model has one.
    pub final_logit_softcapping: Option<f32>,
    /// Order of the rotated dimensions in the stored weights.
    pub rope_layout: RopeLayout,
    /// Whether norm weights are to be used as they are in a family (Gemma) that otherwise stores
    /// them less one.
    pub norm_weight_includes_one: bool,
}

impl DecoderConfig {
    /// Reads config.json, with its nested `text_config` where there is one.
    ///
    /// # Errors
    /// [`Error::ConfigSyntax`] for text that is not such JSON, [`Error::ConfigMissing`] and
    /// [`Error::ConfigValue`] naming the field at fault, [`Error::Unsupported`] for a family,
    /// activation or rotary scaling that this crate does not have.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        resolve(raw::parse(json)?)
    }

    /// Multiplier of embedding rows: `sqrt(hidden_size)` for Gemma, else 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "hidden_size is at most 2^20")]
    pub fn embedding_scale(&self) -> f32 {
        match self.family {
            Family::Gemma3 => (self.hidden_size as f32).sqrt(),
            Family::Llama | Family::Qwen2 | Family::Qwen3 | Family::Phi3 => 1.0,
        }
    }

    /// The window of a layer, if it is a sliding one.
    #[must_use]
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        match self.layer_types.get(layer) {
            Some(LayerType::SlidingAttention) => self.sliding_window,
            Some(LayerType::FullAttention) | None => None,
        }
    }

    /// Width of all query heads together.
    #[must_use]
    pub fn query_size(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Width of all key heads (or value heads) together.
    #[must_use]
    pub fn key_value_size(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// What norms add to their stored weight: 1 for Gemma checkpoints, else 0.
    pub(crate) fn norm_weight_offset(&self) -> f32 {
        match self.family {
            Family::Gemma3 if !self.norm_weight_includes_one => 1.0,
            _ => 0.0,
        }
    }
}

fn resolve(raw: RawConfig) -> Result<DecoderConfig, Error> {
    let family = family(raw.model_type.as_deref())?;
    refuse_bidirectional(&raw)?;
    let hidden_size = positive("hidden_size", raw.hidden_size, MAX_WIDTH)?;
    let num_hidden_layers = positive("num_hidden_layers", raw.num_hidden_layers, MAX_LAYERS)?;
    let (num_attention_heads, num_key_value_heads, head_dim) = heads(family, &raw, hidden_size)?;
    let max_position_embeddings = positive(
        "max_position_embeddings",
        raw.max_position_embeddings,
        MAX_POSITIONS,
    )?;
    let layer_types = layer_types(family, &raw, num_hidden_layers)?;
    let sliding_window = sliding_window(&raw, &layer_types)?;
    let context = RopeContext {
        family,
        raw: &raw,
        head_dim,
        max_position_embeddings,
    };
    let (rope, rope_local) = ropes(&context)?;
    let attention_bias = raw.attention_bias.unwrap_or(false);
    let gkq = raw.gkq.as_ref();

    Ok(DecoderConfig {
        family,
        vocab_size: positive("vocab_size", raw.vocab_size, MAX_VOCABULARY)?,
        hidden_size,
        intermediate_size: positive("intermediate_size", raw.intermediate_size, MAX_WIDTH)?,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads,
        head_dim,
        max_position_embeddings,
        rms_norm_eps: rms_norm_eps(family, raw.rms_norm_eps)?,
        hidden_act: activation(family, &raw)?,
        qkv_bias: match family {
            Family::Qwen2 => true,
            Family::Phi3 => false,
            Family::Llama | Family::Qwen3 | Family::Gemma3 => attention_bias,
        },
        o_bias: match family {
            Family::Qwen2 | Family::Phi3 => false,
            Family::Llama | Family::Qwen3 | Family::Gemma3 => attention_bias,
        },
        mlp_bias: family == Family::Llama && raw.mlp_bias.unwrap_or(false),
        tie_word_embeddings: raw.tie_word_embeddings.unwrap_or(family == Family::Gemma3),
        layer_types,
        sliding_window,
        rope,
        rope_local,
        attention_scale: attention_scale(family, raw.query_pre_attn_scalar, head_dim)?,
        attn_logit_softcapping: softcapping("attn_logit_softcapping", raw.attn_logit_softcapping)?,
        final_logit_softcapping: softcapping(
            "final_logit_softcapping",
            raw.final_logit_softcapping,
        )?,
        rope_layout: rope_layout(gkq.and_then(|gkq| gkq.rope_layout.as_deref()))?,
        norm_weight_includes_one: gkq
            .and_then(|gkq| gkq.norm_weight_includes_one)
            .unwrap_or(false),
        bos_token_id: raw
            .bos_token_id
            .and_then(|ids| ids.into_vec().first().copied()),
        eos_token_ids: raw.eos_token_id.map(TokenIds::into_vec).unwrap_or_default(),
    })
}

fn family(model_type: Option<&str>) -> Result<Family, Error> {
    match model_type.ok_or(Error::ConfigMissing {
        field: "model_type",
    })? {
        "llama" => Ok(Family::Llama),
        "qwen2" => Ok(Family::Qwen2),
        "qwen3" => Ok(Family::Qwen3),
        "gemma3" | "gemma3_text" => Ok(Family::Gemma3),
        "phi3" => Ok(Family::Phi3),
        other => Err(Error::Unsupported {
            field: "model_type",
            found: other.to_owned(),
            supported: "llama, qwen2, qwen3, gemma3, gemma3_text, phi3",
        }),
    }
}

/// Text models of these families are causal; a checkpoint that is not would answer wrongly here.
fn refuse_bidirectional(raw: &RawConfig) -> Result<(), Error> {
    match &raw.use_bidirectional_attention {
        None | Some(serde_json::Value::Null | serde_json::Value::Bool(false)) => Ok(()),
        Some(other) => Err(Error::Unsupported {
            field: "use_bidirectional_attention",
            found: other.to_string(),
            supported: "false",
        }),
    }
}

fn heads(
    family: Family,
    raw: &RawConfig,
    hidden_size: usize,
) -> Result<(usize, usize, usize), Error> {
    let query_heads = positive("num_attention_heads", raw.num_attention_heads, MAX_WIDTH)?;
    let key_value_heads = match raw.num_key_value_heads {
        None => query_heads,
        stated => positive("num_key_value_heads", stated, MAX_WIDTH)?,
    };
    if !query_heads.is_multiple_of(key_value_heads) {
        let expected = format!("a divisor of num_attention_heads {query_heads}");
        return Err(Error::value(
            "num_key_value_heads",
            expected,
            key_value_heads,
        ));
    }
    let head_dim = match (raw.head_dim, family) {
        (Some(stated), _) => positive("head_dim", Some(stated), MAX_HEAD_DIM)?,
        (None, Family::Gemma3) => 256,
        (None, Family::Qwen3) => 128,
        (None, Family::Llama | Family::Qwen2 | Family::Phi3) => {
            if !hidden_size.is_multiple_of(query_heads) {
                let expected =
                    format!("a divisor of hidden_size {hidden_size}, as head_dim is not stated");
                return Err(Error::value("num_attention_heads", expected, query_heads));
            }
            hidden_size / query_heads
        }
    };
    let widest = query_heads
        .checked_mul(head_dim)
        .and_then(|width| u64::try_from(width).ok());
    if widest.is_none_or(|width| width > MAX_WIDTH) {
        let expected = format!("such that num_attention_heads * head_dim is at most {MAX_WIDTH}");
        return Err(Error::value("head_dim", expected, head_dim));
    }
    Ok((query_heads, key_value_heads, head_dim))
}

fn layer_types(family: Family, raw: &RawConfig, layers: usize) -> Result<Vec<LayerType>, Error> {
    if let Some(names) = &raw.layer_types {
        if names.len() != layers {
            let expected = format!("a list of {layers} layer types, one per layer");
            return Err(Error::value(
                "layer_types",
                expected,
                format!("{} entries", names.len()),
            ));
        }
        return names.iter().map(|name| layer_type(name)).collect();
    }
    let sliding: Box<dyn Fn(usize) -> bool> = match family {
        Family::Llama => Box::new(|_| false),
        Family::Phi3 => {
            let windowed = raw.sliding_window.is_some();
            Box::new(move |_| windowed)
        }
        Family::Gemma3 => {
            let stated = raw
                .sliding_window_pattern
                .or(raw.private_sliding_window_pattern)
                .or(Some(6));
            let period = positive("sliding_window_pattern", stated, MAX_LAYERS)?;
            Box::new(move |layer| !(layer + 1).is_multiple_of(period))
        }
        Family::Qwen2 | Family::Qwen3 => {
            let windowed = raw.use_sliding_window.unwrap_or(false) && raw.sliding_window.is_some();
            let first = raw.max_window_layers.unwrap_or(28);
            Box::new(move |layer| windowed && layer as u64 >= first)
        }
    };
    let of_layer = |layer| {
        if sliding(layer) {
            LayerType::SlidingAttention
        } else {
            LayerType::FullAttention
        }
    };
    Ok((0..layers).map(of_layer).collect())
}

fn layer_type(name: &str) -> Result<LayerType, Error> {
    match name {
        "full_attention" => Ok(LayerType::FullAttention),
        "sliding_attention" => Ok(LayerType::SlidingAttention),
        other => Err(Error::Unsupported {
            field: "layer_types",
            found: other.to_owned(),
            supported: "full_attention, sliding_attention",
        }),
    }
}

/// The window, if any layer uses it.
fn sliding_window(raw: &RawConfig, layer_types: &[LayerType]) -> Result<Option<usize>, Error> {
    if layer_types.contains(&LayerType::SlidingAttention) {
        positive("sliding_window", raw.sliding_window, MAX_POSITIONS).map(Some)
    } else {
        Ok(None)
    }
}

/// Rotary parameters of full and of sliding layers.
fn ropes(context: &RopeContext<'_>) -> Result<(RopeConfig, RopeConfig), Error> {
    let raw = context.raw;
    let gemma = context.family == Family::Gemma3;
    let default_theta = if gemma { 1_000_000.0 } else { 10_000.0 };
    let theta = raw.rope_theta.unwrap_or(default_theta);
    let local_theta = raw.rope_local_base_freq.unwrap_or(10_000.0);

    let ropes = match (&raw.rope_scaling, raw.rope_parameters()?) {
        // Gemma scales its full-attention layers only; the others have one kind of layer.
        (Some(rope), _) if gemma => RawRopes {
            full: rope.clone(),
            sliding: RawRope::default(),
        },
        (Some(rope), _) => RawRopes {
            full: rope.clone(),
            sliding: rope.clone(),
        },
        (None, Some(ropes)) => ropes,
        (None, None) => RawRopes {
            full: RawRope::default(),
            sliding: RawRope::default(),
        },
    };
    let full_config = context.resolve(&ropes.full, theta)?;
    let sliding_config =
        context.resolve(&ropes.sliding, if gemma { local_theta } else { theta })?;
    Ok((full_config, sliding_config))
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "an epsilon needs no more than f32"
)]
fn rms_norm_eps(family: Family, stated: Option<f64>) -> Result<f32, Error> {
    let eps = stated.unwrap_or(if family == Family::Phi3 { 1e-5 } else { 1e-6 });
    if eps.is_finite() && eps >= 0.0 {
        Ok(eps as f32)
    } else {
        Err(Error::value("rms_norm_eps", "finite and not negative", eps))
    }
}

fn activation(family: Family, raw: &RawConfig) -> Result<Activation, Error> {
    let (field, stated) = match (family, &raw.hidden_activation) {
        (Family::Gemma3, Some(name)) => ("hidden_activation", Some(name)),
        _ => ("hidden_act", raw.hidden_act.as_ref()),
    };
    match (stated.map(String::as_str), family) {
        (Some("silu" | "swish"), _) => Ok(Activation::Silu),
        (Some("gelu_pytorch_tanh" | "gelu_new"), _) | (None, Family::Gemma3) => {
            Ok(Activation::GeluTanh)
        }
        (None, _) => Ok(Activation::Silu),
        (Some(other), _) => Err(Error::Unsupported {
            field,
            found: other.to_owned(),
            supported: "silu, gelu_pytorch_tanh",
        }),
    }
}

/// `1 / sqrt(head_dim)`, except that Gemma states the scalar under the root.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "rounded once, from the exact root"
)]
fn attention_scale(family: Family, scalar: Option<f64>, head_dim: usize) -> Result<f32, Error> {
    let under_root = match family {
        Family::Gemma3 => scalar.unwrap_or(256.0),
        Family::Llama | Family::Qwen2 | Family::Qwen3 | Family::Phi3 => head_dim as f64,
    };
    if under_root.is_finite() && under_root > 0.0 {
        Ok((1.0 / under_root.sqrt()) as f32)
    } else {
        Err(Error::value(
            "query_pre_attn_scalar",
            "finite and above 0",
            under_root,
        ))
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a cap needs no more than f32"
)]
fn softcapping(field: &'static str, stated: Option<f64>) -> Result<Option<f32>, Error> {
    match stated {
        Some(cap) if !(cap.is_finite() && cap > 0.0) => {
            Err(Error::value(field, "finite and above 0, or null", cap))
        }
        other => Ok(other.map(|cap| cap as f32)),
    }
}

fn rope_layout(stated: Option<&str>) -> Result<RopeLayout, Error> {
    match stated {
        None | Some("half") => Ok(RopeLayout::Half),
        Some("interleaved") => Ok(RopeLayout::Interleaved),
        Some(other) => Err(Error::Unsupported {
            field: "gkq.rope_layout",
            found: other.to_owned(),
            supported: "half, interleaved",
        }),
    }
}

/// A required count between 1 and `limit`.
fn positive(field: &'static str, stated: Option<u64>, limit: u64) -> Result<usize, Error> {
    let value = stated.ok_or(Error::ConfigMissing { field })?;
    match usize::try_from(value) {
        Ok(size) if value >= 1 && value <= limit => Ok(size),
        _ => Err(Error::value(field, format!("between 1 and {limit}"), value)),
    }
}
