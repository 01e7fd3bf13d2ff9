//! Phi-3, Phi-3.5 and Phi-4-mini: q, k and v fused in one matrix, gate and up in another. Partial
//! rotation and LongRoPE come through the config. Reference: `modeling_phi3.py` of transformers.

use crate::attention::{Attention, Projections};
use crate::layer::{PreNormLayer, layer_prefix};
use crate::linear::{Bias, Linear};
use crate::mlp::GatedMlp;
use crate::weights::WeightSource;
use crate::{DecoderConfig, Error};

/// Loads layer `layer`; the fused matrices are cut by rows, which copies nothing.
pub(crate) fn load_layer(
    config: &DecoderConfig,
    source: &dyn WeightSource,
    layer: usize,
) -> Result<PreNormLayer, Error> {
    let prefix = layer_prefix(layer);
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let (query, key_value) = (config.query_size(), config.key_value_size());
    let fused = format!("{prefix}.self_attn.qkv_proj");
    let [q_proj, k_proj, v_proj] =
        Linear::load_fused(source, &fused, [query, key_value, key_value], hidden)?;
    let o_proj = Linear::load(
        source,
        &format!("{prefix}.self_attn.o_proj"),
        [hidden, query],
        Bias::None,
    )?;
    let projections = Projections {
        q_proj,
        k_proj,
        v_proj,
        o_proj,
    };
    let self_attn = Attention::new(config, layer, projections, None);
    let fused = format!("{prefix}.mlp.gate_up_proj");
    let [gate_proj, up_proj] = Linear::load_fused(source, &fused, [inner, inner], hidden)?;
    let down_proj = Linear::load(
        source,
        &format!("{prefix}.mlp.down_proj"),
        [hidden, inner],
        Bias::None,
    )?;
    let mlp = GatedMlp {
        gate_proj,
        up_proj,
        down_proj,
        activation: config.hidden_act,
    };
    PreNormLayer::load(config, source, &prefix, self_attn, mlp)
}

/// Names of a layer's tensors within `model.layers.N`.
pub(crate) const TENSOR_NAMES: [&str; 6] = [
    "input_layernorm.weight",
    "self_attn.qkv_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_up_proj.weight",
    "mlp.down_proj.weight",
];
