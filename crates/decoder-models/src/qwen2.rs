//! Qwen2 and Qwen2.5: llama's layer with a bias on q, k and v, and on nothing else. Reference:
//! `modeling_qwen2.py` of transformers.

use crate::attention::{Attention, Projections};
use crate::layer::{PreNormLayer, layer_prefix};
use crate::linear::Bias;
use crate::mlp::GatedMlp;
use crate::weights::WeightSource;
use crate::{DecoderConfig, Error};

/// Loads layer `layer`.
pub(crate) fn load_layer(
    config: &DecoderConfig,
    source: &dyn WeightSource,
    layer: usize,
) -> Result<PreNormLayer, Error> {
    let prefix = layer_prefix(layer);
    let projections = Projections::load(config, source, &prefix, Bias::Required, Bias::None)?;
    let self_attn = Attention::new(config, layer, projections, None);
    let mlp = GatedMlp::load(config, source, &prefix, Bias::None)?;
    PreNormLayer::load(config, source, &prefix, self_attn, mlp)
}

/// Names of a layer's tensors within `model.layers.N`.
pub(crate) const TENSOR_NAMES: [&str; 12] = [
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.bias",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
];
