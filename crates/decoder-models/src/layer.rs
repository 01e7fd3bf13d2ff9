//! What a decoder asks of a layer, and the pre-norm layer that four of the five families share.
//! Which tensors a layer is made of is told in the family's own file.

use crate::attention::{Attention, LayerStep};
use crate::buffers::{Buffers, sized};
use crate::mlp::GatedMlp;
use crate::norm::RmsNorm;
use crate::slices::for_rows;
use crate::weights::WeightSource;
use crate::{DecoderConfig, Error};

/// One decoder layer: `hidden`, `[rows, hidden]`, becomes what the next one reads.
pub(crate) trait DecoderLayer: Send + Sync + std::fmt::Debug {
    fn forward(&self, hidden: &mut [f32], step: &mut LayerStep<'_>) -> Result<(), Error>;
}

/// `x + attention(norm(x))`, then `x + mlp(norm(x))`.
#[derive(Debug)]
pub(crate) struct PreNormLayer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: GatedMlp,
}

impl PreNormLayer {
    /// Adds the norms of `{prefix}` to an attention and a feed-forward network.
    pub(crate) fn load(
        config: &DecoderConfig,
        source: &dyn WeightSource,
        prefix: &str,
        self_attn: Attention,
        mlp: GatedMlp,
    ) -> Result<Self, Error> {
        let norm = |name: &str| {
            RmsNorm::load(
                config,
                source,
                &format!("{prefix}.{name}.weight"),
                config.hidden_size,
            )
        };
        Ok(Self {
            input_layernorm: norm("input_layernorm")?,
            self_attn,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            mlp,
        })
    }
}

impl DecoderLayer for PreNormLayer {
    fn forward(&self, hidden: &mut [f32], step: &mut LayerStep<'_>) -> Result<(), Error> {
        normed(&self.input_layernorm, hidden, step.buffers);
        self.self_attn.forward(step)?;
        add(hidden, &step.buffers.out, step.rows);
        normed(&self.post_attention_layernorm, hidden, step.buffers);
        self.mlp.forward(step.rows, step.buffers)?;
        add(hidden, &step.buffers.out, step.rows);
        Ok(())
    }
}

/// What the next module reads: `hidden` through its norm.
pub(crate) fn normed(norm: &RmsNorm, hidden: &[f32], buffers: &mut Buffers) {
    norm.apply(hidden, sized(&mut buffers.normed, hidden.len()));
}

/// What a module has left joins the residual stream.
pub(crate) fn add(hidden: &mut [f32], out: &[f32], rows: usize) {
    let width = hidden.len() / rows;
    for_rows(hidden, width, |index, row| {
        let out = &out[index * width..][..width];
        row.iter_mut().zip(out).for_each(|(x, y)| *x += y);
    });
}

/// Begins the name of every layer's tensors; its number follows.
pub(crate) const LAYERS: &str = "model.layers.";

/// `model.layers.{layer}`, the prefix of a layer's tensors.
pub(crate) fn layer_prefix(layer: usize) -> String {
    format!("{LAYERS}{layer}")
}
