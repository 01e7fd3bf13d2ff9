//! Self-attention with grouped key and value heads, as all families have it: projections, optional
//! norm per head, rotary embedding, cache, kernel, output projection. The product of scores is
//! `low_bit_kernels::attention`; no mask is ever built.

use candle_core::{CpuStorage, CustomOp1, Layout, Result as CandleResult, Shape, Tensor};
use low_bit_kernels::attention::{AttentionShape, KeyValues, attend};

use crate::Error;
use crate::config::DecoderConfig;
use crate::kv_cache::LayerCache;
use crate::linear::{Bias, Linear};
use crate::norm::RmsNorm;
use crate::rope::RopeAngles;
use crate::slices::{contiguous_f32, with_f32};
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

    pub(crate) fn forward(
        &self,
        hidden: &Tensor,
        step: &mut LayerStep<'_>,
    ) -> Result<Tensor, Error> {
        let Projections {
            q_proj,
            k_proj,
            v_proj,
            o_proj,
        } = &self.projections;
        let [mut query, mut key, value] =
            Linear::forward_together([q_proj, k_proj, v_proj], hidden)?;
        if let Some(norms) = &self.head_norms {
            query = norms.q_norm.forward(&query)?;
            key = norms.k_norm.forward(&key)?;
        }
        let query = step.angles.rotate(&query, self.shape.head_dim)?;
        let key = step.angles.rotate(&key, self.shape.head_dim)?;
        append(step, &key, &value)?;
        let mixed = query.apply_op1_no_bwd(&Attend {
            shape: self.shape,
            cache: step.cache,
            start: step.start,
        })?;
        o_proj.forward(&mixed)
    }
}

/// Copies new keys and values, `[rows, kv_heads * head_dim]` each, into the layer's cache.
fn append(step: &mut LayerStep<'_>, key: &Tensor, value: &Tensor) -> Result<(), Error> {
    with_f32(key, |keys| {
        with_f32(value, |values| {
            step.cache.append(step.start, keys, values, step.capacity);
            Ok(())
        })
    })
}

/// Queries `[rows, heads * head_dim]` over a cache that already holds the rows' own keys.
struct Attend<'a> {
    shape: HeadShape,
    cache: &'a LayerCache,
    start: usize,
}

impl CustomOp1 for Attend<'_> {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> CandleResult<(CpuStorage, Shape)> {
        let queries = contiguous_f32(storage, layout, self.name())?;
        let shape = AttentionShape {
            heads: self.shape.heads,
            kv_heads: self.shape.kv_heads,
            head_dim: self.shape.head_dim,
            capacity: self.cache.slots(),
            window: self.shape.window,
            scale: self.shape.scale,
            soft_cap: self.shape.soft_cap,
        };
        let mut output = vec![0.0; queries.len()];
        // Scores depend on distances only, so positions may be counted from the oldest one kept.
        let start_slot = self.start - self.cache.first();
        let cache = KeyValues {
            keys: self.cache.keys(),
            values: self.cache.values(),
        };
        attend(&shape, queries, cache, start_slot, &mut output)
            .map_err(candle_core::Error::wrap)?;
        Ok((CpuStorage::F32(output), layout.shape().clone()))
    }
}
