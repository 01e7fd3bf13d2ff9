//! Tensor names: GGUF names to Hugging Face names, and the prefixes of multimodal checkpoints taken
//! off. Specification: `gguf-py/gguf/tensor_mapping.py` of llama.cpp for one side, the module trees of
//! transformers for the other.

/// The families whose GGUF names are mapped; the values are `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
    Gemma3,
    Phi3,
}

impl Architecture {
    pub(super) const SUPPORTED: &'static str = "llama, qwen2, qwen3, gemma3, phi3";

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "llama" => Self::Llama,
            "qwen2" => Self::Qwen2,
            "qwen3" => Self::Qwen3,
            "gemma3" => Self::Gemma3,
            "phi3" => Self::Phi3,
            _ => return None,
        })
    }

    /// The name in GGUF, which for these five begins every metadata key too.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3",
            Self::Phi3 => "phi3",
        }
    }
}

/// What becomes of a tensor of a GGUF.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    /// A weight, by its Hugging Face name.
    Weight(String),
    /// Rotary factors, which go into the config.
    RopeFactors(RopeFactors),
    /// No tensor of this architecture.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RopeFactors {
    /// Llama 3's divisors for every length.
    All,
    /// LongRoPE's for sequences up to the original length.
    Short,
    /// LongRoPE's for longer ones.
    Long,
}

/// Maps one GGUF tensor name.
pub(super) fn from_gguf(architecture: Architecture, name: &str) -> Mapped {
    let whole = match name {
        "token_embd.weight" => "model.embed_tokens.weight",
        "output_norm.weight" => "model.norm.weight",
        "output.weight" => "lm_head.weight",
        "rope_freqs.weight" => return Mapped::RopeFactors(RopeFactors::All),
        "rope_factors_short.weight" => return Mapped::RopeFactors(RopeFactors::Short),
        "rope_factors_long.weight" => return Mapped::RopeFactors(RopeFactors::Long),
        _ => return of_layer(architecture, name).map_or(Mapped::Unknown, Mapped::Weight),
    };
    Mapped::Weight(whole.to_owned())
}

fn of_layer(architecture: Architecture, name: &str) -> Option<String> {
    use Architecture::{Gemma3, Llama, Phi3, Qwen2, Qwen3};
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let layer: u32 = layer.parse().ok()?;
    let (module, parameter) = rest.rsplit_once('.')?;
    let mapped = match (module, architecture) {
        ("attn_norm", _) => "input_layernorm",
        ("attn_q", Llama | Qwen2 | Qwen3 | Gemma3) => "self_attn.q_proj",
        ("attn_k", Llama | Qwen2 | Qwen3 | Gemma3) => "self_attn.k_proj",
        ("attn_v", Llama | Qwen2 | Qwen3 | Gemma3) => "self_attn.v_proj",
        ("attn_qkv", Phi3) => "self_attn.qkv_proj",
        ("attn_output", _) => "self_attn.o_proj",
        ("attn_q_norm", Qwen3 | Gemma3) => "self_attn.q_norm",
        ("attn_k_norm", Qwen3 | Gemma3) => "self_attn.k_norm",
        // Gemma 3 has four norms a layer; `ffn_norm` is the one before the feed-forward network, which
        // the others call after what it follows.
        ("post_attention_norm", Gemma3) => "post_attention_layernorm",
        ("ffn_norm", Gemma3) => "pre_feedforward_layernorm",
        ("post_ffw_norm", Gemma3) => "post_feedforward_layernorm",
        ("ffn_norm", _) => "post_attention_layernorm",
        ("ffn_gate", Llama | Qwen2 | Qwen3 | Gemma3) => "mlp.gate_proj",
        ("ffn_up", Phi3) => "mlp.gate_up_proj",
        ("ffn_up", _) => "mlp.up_proj",
        ("ffn_down", _) => "mlp.down_proj",
        _ => return None,
    };
    matches!(parameter, "weight" | "bias")
        .then(|| format!("model.layers.{layer}.{mapped}.{parameter}"))
}

/// The text model's name of a Hugging Face tensor: multimodal checkpoints nest the language model,
/// and base models leave `model.` off. `None` for what is no weight of the text model.
pub(super) fn text_model(name: &str) -> Option<String> {
    const NESTINGS: [(&str, &str); 4] = [
        ("language_model.model.", "model."),
        ("model.language_model.", "model."),
        ("language_model.lm_head.", "lm_head."),
        ("model.lm_head.", "lm_head."),
    ];
    let nested = NESTINGS.iter().find_map(|(prefix, plain)| {
        name.strip_prefix(prefix)
            .map(|rest| format!("{plain}{rest}"))
    });
    let plain = nested.unwrap_or_else(|| name.to_owned());
    // Frequencies that old checkpoints saved; they follow from the config.
    if plain.ends_with(".rotary_emb.inv_freq") {
        return None;
    }
    if [
        "model.layers.",
        "model.embed_tokens.",
        "model.norm.",
        "lm_head.",
    ]
    .iter()
    .any(|start| plain.starts_with(start))
    {
        return Some(plain);
    }
    let bare = ["layers.", "embed_tokens.", "norm."]
        .iter()
        .any(|start| plain.starts_with(start));
    bare.then(|| format!("model.{plain}"))
}

#[cfg(test)]
mod tests {
    use super::{Architecture, Mapped, RopeFactors, from_gguf, text_model};

    #[track_caller]
    fn check(architecture: Architecture, gguf: &str, expected: &str) {
        assert_eq!(
            from_gguf(architecture, gguf),
            Mapped::Weight(expected.to_owned())
        );
    }

    #[test]
    fn gguf_names_become_hugging_face_names() {
        use Architecture::{Gemma3, Llama, Phi3, Qwen2, Qwen3};
        check(Llama, "token_embd.weight", "model.embed_tokens.weight");
        check(Llama, "output.weight", "lm_head.weight");
        check(
            Llama,
            "blk.11.attn_q.weight",
            "model.layers.11.self_attn.q_proj.weight",
        );
        check(
            Llama,
            "blk.0.ffn_norm.weight",
            "model.layers.0.post_attention_layernorm.weight",
        );
        check(
            Gemma3,
            "blk.0.ffn_norm.weight",
            "model.layers.0.pre_feedforward_layernorm.weight",
        );
        check(
            Gemma3,
            "blk.0.post_attention_norm.weight",
            "model.layers.0.post_attention_layernorm.weight",
        );
        check(
            Gemma3,
            "blk.0.post_ffw_norm.weight",
            "model.layers.0.post_feedforward_layernorm.weight",
        );
        check(
            Qwen2,
            "blk.3.attn_k.bias",
            "model.layers.3.self_attn.k_proj.bias",
        );
        check(
            Qwen3,
            "blk.3.attn_q_norm.weight",
            "model.layers.3.self_attn.q_norm.weight",
        );
        check(
            Phi3,
            "blk.3.attn_qkv.weight",
            "model.layers.3.self_attn.qkv_proj.weight",
        );
        check(
            Phi3,
            "blk.3.ffn_up.weight",
            "model.layers.3.mlp.gate_up_proj.weight",
        );
    }

    #[test]
    fn factors_and_strangers_are_told_apart() {
        let factors = from_gguf(Architecture::Llama, "rope_freqs.weight");
        assert_eq!(factors, Mapped::RopeFactors(RopeFactors::All));
        for stranger in [
            "blk.x.attn_q.weight",
            "blk.0.ffn_gate_exps.weight",
            "blk.0.attn_q.scale",
            "v.patch_embd.weight",
        ] {
            assert_eq!(
                from_gguf(Architecture::Llama, stranger),
                Mapped::Unknown,
                "{stranger}"
            );
        }
        assert_eq!(
            from_gguf(Architecture::Llama, "blk.0.attn_qkv.weight"),
            Mapped::Unknown
        );
    }

    #[test]
    fn nested_language_models_lose_their_prefix() {
        let plain = |name: &str| text_model(name);
        assert_eq!(
            plain("model.norm.weight").as_deref(),
            Some("model.norm.weight")
        );
        assert_eq!(
            plain("language_model.model.norm.weight").as_deref(),
            Some("model.norm.weight")
        );
        assert_eq!(
            plain("model.language_model.norm.weight").as_deref(),
            Some("model.norm.weight")
        );
        assert_eq!(
            plain("language_model.lm_head.weight").as_deref(),
            Some("lm_head.weight")
        );
        assert_eq!(
            plain("layers.0.mlp.up_proj.weight").as_deref(),
            Some("model.layers.0.mlp.up_proj.weight")
        );
        assert_eq!(plain("model.layers.0.self_attn.rotary_emb.inv_freq"), None);
        assert_eq!(plain("vision_tower.encoder.layers.0.weight"), None);
    }
}
