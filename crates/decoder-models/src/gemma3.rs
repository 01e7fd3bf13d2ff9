//! Gemma 3, text: norms before and after attention and feed-forward network, head norms, layers
//! with a sliding window between full ones, each kind with its rotary base. Norm weights are stored
//! less one, except in a GGUF. Reference: `modeling_gemma3.py` of transformers.

use crate::attention::{Attention, HeadNorms, LayerStep, Projections};
use crate::layer::{DecoderLayer, add, layer_prefix, normed};
use crate::linear::Bias;
use crate::mlp::GatedMlp;
use crate::norm::RmsNorm;
use crate::weights::WeightSource;
use crate::{DecoderConfig, Error, llama};

/// `x + norm(attention(norm(x)))`, then `x + norm(mlp(norm(x)))`.
#[derive(Debug)]
pub(crate) struct SandwichNormLayer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    pre_feedforward_layernorm: RmsNorm,
    mlp: GatedMlp,
    post_feedforward_layernorm: RmsNorm,
}

/// Loads layer `layer`.
pub(crate) fn load_layer(
    config: &DecoderConfig,
    source: &dyn WeightSource,
    layer: usize,
) -> Result<SandwichNormLayer, Error> {
    let prefix = layer_prefix(layer);
    let qkv_bias = Bias::stated(config.qkv_bias, "attention_bias");
    let o_bias = Bias::stated(config.o_bias, "attention_bias");
    let projections = Projections::load(config, source, &prefix, qkv_bias, o_bias)?;
    let head_norms = HeadNorms::load(config, source, &prefix)?;
    let norm = |name: &str| {
        RmsNorm::load(
            config,
            source,
            &format!("{prefix}.{name}.weight"),
            config.hidden_size,
        )
    };
    Ok(SandwichNormLayer {
        input_layernorm: norm("input_layernorm")?,
        self_attn: Attention::new(config, layer, projections, Some(head_norms)),
        post_attention_layernorm: norm("post_attention_layernorm")?,
        pre_feedforward_layernorm: norm("pre_feedforward_layernorm")?,
        mlp: GatedMlp::load(config, source, &prefix, Bias::None)?,
        post_feedforward_layernorm: norm("post_feedforward_layernorm")?,
    })
}

impl DecoderLayer for SandwichNormLayer {
    fn forward(&self, hidden: &mut [f32], step: &mut LayerStep<'_>) -> Result<(), Error> {
        normed(&self.input_layernorm, hidden, step.buffers);
        self.self_attn.forward(step)?;
        self.post_attention_layernorm
            .apply_in_place(&mut step.buffers.out);
        add(hidden, &step.buffers.out, step.rows);
        normed(&self.pre_feedforward_layernorm, hidden, step.buffers);
        self.mlp.forward(step.rows, step.buffers)?;
        self.post_feedforward_layernorm
            .apply_in_place(&mut step.buffers.out);
        add(hidden, &step.buffers.out, step.rows);
        Ok(())
    }
}

/// Names of a layer's tensors within `model.layers.N`: llama's, head norms, feed-forward norms.
pub(crate) fn tensor_names(config: &DecoderConfig) -> Vec<&'static str> {
    let mut names = llama::tensor_names(config);
    names.extend(["self_attn.q_norm.weight", "self_attn.k_norm.weight"]);
    names.extend([
        "pre_feedforward_layernorm.weight",
        "post_feedforward_layernorm.weight",
    ]);
    names
}
