//! Llama: SmolLM2, Llama 2 and 3.x. A pre-norm layer with separate projections, biases where the
//! config states them. Reference: `modeling_llama.py` of transformers.

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
    let qkv_bias = Bias::stated(config.qkv_bias, "attention_bias");
    let o_bias = Bias::stated(config.o_bias, "attention_bias");
    let projections = Projections::load(config, source, &prefix, qkv_bias, o_bias)?;
    let self_attn = Attention::new(config, layer, projections, None);
    let mlp = GatedMlp::load(
        config,
        source,
        &prefix,
        Bias::stated(config.mlp_bias, "mlp_bias"),
    )?;
    PreNormLayer::load(config, source, &prefix, self_attn, mlp)
}

/// Names of a layer's tensors within `model.layers.N`, biases included where the config has them.
pub(crate) fn tensor_names(config: &DecoderConfig) -> Vec<&'static str> {
    let mut names = vec!["input_layernorm.weight"];
    names.extend([
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
    ]);
    if config.qkv_bias {
        names.extend([
            "self_attn.q_proj.bias",
            "self_attn.k_proj.bias",
            "self_attn.v_proj.bias",
        ]);
    }
    names.push("self_attn.o_proj.weight");
    if config.o_bias {
        names.push("self_attn.o_proj.bias");
    }
    names.push("post_attention_layernorm.weight");
    names.extend([
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
    ]);
    if config.mlp_bias {
        names.extend([
            "mlp.gate_proj.bias",
            "mlp.up_proj.bias",
            "mlp.down_proj.bias",
        ]);
    }
    names
}
