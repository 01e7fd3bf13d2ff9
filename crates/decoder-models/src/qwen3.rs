//! Qwen3: llama's layer with an RMS norm on each query and key head before rotation, and a head
//! width of its own. Reference: `modeling_qwen3.py` of transformers.

use crate::attention::{Attention, HeadNorms, Projections};
use crate::layer::{PreNormLayer, layer_prefix};
use crate::linear::Bias;
use crate::mlp::GatedMlp;
use crate::weights::WeightSource;
use crate::{DecoderConfig, Error, llama};

/// Loads layer `layer`.
pub(crate) fn load_layer(
    config: &DecoderConfig,
    source: &dyn WeightSource,
    layer: usize,
) -> Result<PreNormLayer, Error> {
    let prefix = layer_prefix(layer);
    let qkv_bias = Bias::stated(config.qkv_bias, "attention_bias");
    let o_bias = Bias::stated(config.o_bias, "attention_bias");
    let projections = Projections::load(config, source, &prefix, qkv_bias, o_bias)?;
    let head_norms = HeadNorms::load(config, source, &prefix)?;
    let self_attn = Attention::new(config, layer, projections, Some(head_norms));
    let mlp = GatedMlp::load(config, source, &prefix, Bias::None)?;
    PreNormLayer::load(config, source, &prefix, self_attn, mlp)
}

/// Names of a layer's tensors within `model.layers.N`: llama's and the two head norms.
pub(crate) fn tensor_names(config: &DecoderConfig) -> Vec<&'static str> {
    let mut names = llama::tensor_names(config);
    names.extend(["self_attn.q_norm.weight", "self_attn.k_norm.weight"]);
    names
}
