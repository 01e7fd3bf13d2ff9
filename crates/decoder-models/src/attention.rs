//! Self-attention with grouped key and value heads, as all families have it: projections, optional
//! norm per head, rotary embedding, cache, kernel, output projection. The product of scores is
//! `low_bit_kernels::attention`; no mask is ever built.

use low_bit_kernels::attention::AttentionShape;

use crate::Error;
use crate::buffers::{Buffers, sized};
use crate::config::DecoderConfig;
use crate::kv_cache::LayerCache;
use crate::linear::{Bias, Linear};
use crate::norm::RmsNorm;
use crate::rope::RopeAngles;
use crate::weights::WeightSource;

/// One layer's attention, `[rows, hidden]` to `[rows, hidden]`.
#[derive(Debug)]
pub(crate) struct Attention {
    projections: Projections,
    head_norms: Option<HeadNorms>,
    shape: HeadShape,
}

/// The four projections of an attention module.
#[derive(Debug)]
pub(crate) struct Projections {
    pub(crate) q_proj: Linear,
    pub(crate) k_proj: Linear,
    pub(crate) v_proj: Linear,
    pub(crate) o_proj: Linear,
}

/// Norms of each query and key head before rotation (Qwen 3, Gemma 3).
#[derive(Debug)]
pub(crate) struct HeadNorms {
    q_norm: RmsNorm,
    k_norm: RmsNorm,
}

#[derive(Debug, Clone, Copy)]
struct HeadShape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
    scale: f32,
    soft_cap: Option<f32>,
}

/// What a layer needs to know of the pass it takes part in.
pub(crate) struct LayerStep<'a> {
    /// Angles of the rows' positions.
    pub(crate) angles: &'a RopeAngles,
    /// This layer's keys and values.
    pub(crate) cache: &'a mut LayerCache,
    /// Position of the first row.
    pub(crate) start: usize,
    /// Positions that the cache may come to hold.
    pub(crate) capacity: usize,
    /// Rows of the pass.
    pub(crate) rows: usize,
    /// Activations on their way through a layer.
    pub(crate) buffers: &'a mut Buffers,
}

impl Projections {
    /// Loads `{prefix}.self_attn.{q,k,v,o}_proj`.
    pub(crate) fn load(
        config: &DecoderConfig,
        source: &dyn WeightSource,
        prefix: &str,
        qkv_bias: Bias,
        o_bias: Bias,
    ) -> Result<Self, Error> {
        let hidden = config.hidden_size;
        let (query, key_value) = (config.query_size(), config.key_value_size());
        let module = |name: &str| format!("{prefix}.self_attn.{name}");
        Ok(Self {
            q_proj: Linear::load(source, &module("q_proj"), [query, hidden], qkv_bias)?,
            k_proj: Linear::load(source, &module("k_proj"), [key_value, hidden], qkv_bias)?,
            v_proj: Linear::load(source, &module("v_proj"), [key_value, hidden], qkv_bias)?,
            o_proj: Linear::load(source, &module("o_proj"), [hidden, query], o_bias)?,
        })
    }
}

impl HeadNorms {
    /// Loads `{prefix}.self_attn.{q,k}_norm.weight`, `[head_dim]` each.
    pub(crate) fn load(
        config: &DecoderConfig,
        source: &dyn WeightSource,
        prefix: &str,
    ) -> Result<Self, Error> {
        let norm = |name: &str| {
            RmsNorm::load(
                config,
                source,
                &format!("{prefix}.self_attn.{name}.weight"),
                config.head_dim,
            )
        };
        Ok(Self {
            q_norm: norm("q_norm")?,
            k_norm: norm("k_norm")?,
        })
    }
}

impl Attention {
    pub(crate) fn new(
        config: &DecoderConfig,
        layer: usize,
        projections: Projections,
        head_norms: Option<HeadNorms>,
    ) -> Self {
        let shape = HeadShape {
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            window: config.layer_window(layer),
            scale: config.attention_scale,
            soft_cap: config.attn_logit_softcapping,
        };
        Self {
            projections,
            head_norms,
            shape,
        }
    }

    /// `step.buffers.normed` to `step.buffers.out`, `[rows, hidden]` both.
    pub(crate) fn forward(&self, step: &mut LayerStep<'_>) -> Result<(), Error> {
        let Projections {
            q_proj,
            k_proj,
            v_proj,
            o_proj,
        } = &self.projections;
        let rows = step.rows;
        let Buffers {
            normed,
            query,
            key,
            value,
            mixed,
            out,
            ..
        } = &mut *step.buffers;
        let query = sized(query, rows * q_proj.out_features());
        let key = sized(key, rows * k_proj.out_features());
        let value = sized(value, rows * v_proj.out_features());
        let parts = [
            (q_proj, &mut *query),
            (k_proj, &mut *key),
            (v_proj, &mut *value),
        ];
        Linear::apply_together(parts, normed, rows)?;
        if let Some(norms) = &self.head_norms {
            norms.q_norm.apply_in_place(query);
            norms.k_norm.apply_in_place(key);
        }
        step.angles.rotate(query, self.shape.head_dim);
        step.angles.rotate(key, self.shape.head_dim);
        step.cache.append(step.start, key, value, step.capacity)?;
        let shape = AttentionShape {
            heads: self.shape.heads,
            kv_heads: self.shape.kv_heads,
            head_dim: self.shape.head_dim,
            capacity: 0,
            window: self.shape.window,
            scale: self.shape.scale,
            soft_cap: self.shape.soft_cap,
        };
        let mixed = sized(mixed, query.len());
        step.cache.attend(shape, query, step.start, mixed)?;
        o_proj.apply(mixed, rows, sized(out, rows * o_proj.out_features()))
    }
}
