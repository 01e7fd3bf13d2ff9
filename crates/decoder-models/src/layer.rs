//! What a decoder asks of a layer, and the pre-norm layer that four of the five families share.
//! Which tensors a layer is made of is told in the family's own file.

use candle_core::Tensor;

use crate::attention::{Attention, LayerStep};
use crate::mlp::GatedMlp;
use crate::norm::RmsNorm;
use crate::weights::WeightSource;
use crate::{DecoderConfig, Error};

/// One decoder layer, `[rows, hidden]` to `[rows, hidden]`.
pub(crate) trait DecoderLayer: Send + Sync + std::fmt::Debug {
    fn forward(&self, hidden: &Tensor, step: &mut LayerStep<'_>) -> Result<Tensor, Error>;
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
    fn forward(&self, hidden: &Tensor, step: &mut LayerStep<'_>) -> Result<Tensor, Error> {
        let attended = self
            .self_attn
            .forward(&self.input_layernorm.forward(hidden)?, step)?;
        let hidden = (hidden + attended)?;
        let widened = self
            .mlp
            .forward(&self.post_attention_layernorm.forward(&hidden)?)?;
        Ok((hidden + widened)?)
    }
}

/// `model.layers.{layer}`, the prefix of a layer's tensors.
pub(crate) fn layer_prefix(layer: usize) -> String {
    format!("model.layers.{layer}")
}
