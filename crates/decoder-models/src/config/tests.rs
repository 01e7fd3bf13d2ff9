//! Configs as published, defaults of each family, and one fault per rule.

use super::{Activation, DecoderConfig, Family, LayerType, RopeLayout, RopeScaling};

const SMOLLM2: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
    "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
    "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
    "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers.js_config": { "kv_cache_dtype": { "q4f16": "float16" } },
    "use_cache": true, "vocab_size": 49152 }"#;

const GEMMA_3_270M: &str = r#"{
    "_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
    "attn_logit_softcapping": null, "bos_token_id": 2, "eos_token_id": [1, 106],
    "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 640, "intermediate_size": 2048, "max_position_embeddings": 32768,
    "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 18,
    "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000.0, "rope_scaling": null, "rope_theta": 1000000.0,
    "sliding_window": 512, "use_bidirectional_attention": false, "vocab_size": 262144 }"#;

fn parse(json: &str) -> DecoderConfig {
    DecoderConfig::from_json(json).unwrap()
}

fn refusal(json: &str) -> String {
    DecoderConfig::from_json(json).unwrap_err().to_string()
}

/// SmolLM2's config with fields replaced, added or (null) taken away.
fn with(base: &str, changes: &str) -> String {
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(base).unwrap();
    let changes: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(changes).unwrap();
    fields.extend(changes);
    serde_json::to_string(&fields).unwrap()
}

#[test]
fn smollm2() {
    let config = parse(SMOLLM2);
    assert_eq!(config.family, Family::Llama);
    assert_eq!(
        (
            config.vocab_size,
            config.hidden_size,
            config.intermediate_size
        ),
        (49_152, 576, 1536)
    );
    assert_eq!((config.num_hidden_layers, config.head_dim), (30, 64));
    assert_eq!((config.query_size(), config.key_value_size()), (576, 192));
    assert_eq!(config.rope.rope_theta, 100_000.0);
    assert_eq!(
        (config.rope.rotary_dim, &config.rope.scaling),
        (64, &RopeScaling::Default)
    );
    assert_eq!(config.attention_scale, 0.125);
    assert_eq!(config.rms_norm_eps, 1e-5);
    assert!(config.tie_word_embeddings && !config.qkv_bias && !config.mlp_bias);
    assert_eq!(
        (config.bos_token_id, config.eos_token_ids.as_slice()),
        (Some(1), [2].as_slice())
    );
    assert_eq!(config.embedding_scale(), 1.0);
    assert_eq!(config.layer_window(0), None);
    assert_eq!(config.rope_layout, RopeLayout::Half);
}

#[test]
fn gemma_3_270m() {
    for json in [GEMMA_3_270M.to_owned(), nested(GEMMA_3_270M)] {
        let config = parse(&json);
        assert_eq!(config.family, Family::Gemma3);
        assert_eq!(
            (
                config.num_hidden_layers,
                config.hidden_size,
                config.head_dim
            ),
            (18, 640, 256)
        );
        assert_eq!(
            (config.num_attention_heads, config.num_key_value_heads),
            (4, 1)
        );
        let full: Vec<usize> = (0..18)
            .filter(|layer| config.layer_window(*layer).is_none())
            .collect();
        assert_eq!(full, [5, 11, 17]);
        assert_eq!(config.layer_window(0), Some(512));
        assert_eq!(
            (config.rope.rope_theta, config.rope_local.rope_theta),
            (1e6, 1e4)
        );
        assert_eq!(config.attention_scale, 0.0625);
        assert_eq!(config.hidden_act, Activation::GeluTanh);
        assert_eq!(config.embedding_scale(), 640_f32.sqrt());
        assert_eq!(config.norm_weight_offset(), 1.0);
        assert_eq!(config.eos_token_ids, [1, 106]);
        assert!(config.tie_word_embeddings);
    }
}

/// As a multimodal checkpoint has it: the outer object says what the inner one leaves out.
fn nested(text_config: &str) -> String {
    let mut text: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text_config).unwrap();
    let eos = text.remove("eos_token_id").unwrap();
    let text = serde_json::Value::Object(text);
    format!(
        r#"{{ "model_type": "gemma3", "eos_token_id": {eos}, "text_config": {text}, "hidden_size": 7,
        "vision_config": {{ "hidden_size": 1152 }} }}"#
    )
}

#[test]
fn the_same_model_as_transformers_5_writes_it() {
    let new = with(
        GEMMA_3_270M,
        r#"{ "rope_theta": null, "rope_local_base_freq": null, "rope_scaling": null,
             "rope_parameters": {
                "full_attention": { "rope_theta": 1000000.0, "rope_type": "default" },
                "sliding_attention": { "rope_theta": 10000.0, "rope_type": "default" } } }"#,
    );
    assert_eq!(parse(&new), parse(GEMMA_3_270M));
    let shared = r#"{ "rope_theta": null, "rope_parameters": { "rope_theta": 100000, "rope_type": "default" } }"#;
    assert_eq!(parse(&with(SMOLLM2, shared)), parse(SMOLLM2));
}

#[test]
fn what_a_knot_says_of_a_gguf() {
    let llama = parse(&with(
        SMOLLM2,
        r#"{ "gkq": { "rope_layout": "interleaved" } }"#,
    ));
    assert_eq!(llama.rope_layout, RopeLayout::Interleaved);
    let gemma = parse(&with(
        GEMMA_3_270M,
        r#"{ "gkq": { "rope_layout": "half", "norm_weight_includes_one": true } }"#,
    ));
    assert_eq!(gemma.norm_weight_offset(), 0.0);
    assert_eq!(gemma.rope_layout, RopeLayout::Half);
    let typo = refusal(&with(SMOLLM2, r#"{ "gkq": { "rope_layuot": "half" } }"#));
    assert_eq!(typo, "model config is not readable as config.json");
}

#[test]
fn llama_3_scaling() {
    let scaling = r#"{ "rope_theta": 500000.0, "rope_scaling": { "factor": 32.0, "high_freq_factor": 4.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3" } }"#;
    let expected = RopeScaling::Llama3 {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    assert_eq!(parse(&with(SMOLLM2, scaling)).rope.scaling, expected);
}

#[test]
fn phi_3_longrope_and_its_older_names() {
    for kind in ["longrope", "su", "yarn"] {
        let phi = format!(
            r#"{{ "model_type": "phi3", "partial_rotary_factor": 0.75, "max_position_embeddings": 131072,
                 "original_max_position_embeddings": 4096, "sliding_window": 262144,
                 "rope_scaling": {{ "type": "{kind}", "short_factor": {short:?}, "long_factor": {long:?} }} }}"#,
            short = [1.0; 24],
            long = [2.5; 24],
        );
        let config = parse(&with(SMOLLM2, &phi));
        assert_eq!(config.rope.rotary_dim, 48);
        assert_eq!(config.layer_types, [LayerType::SlidingAttention; 30]);
        let RopeScaling::LongRope {
            attention_factor,
            original_max_position_embeddings,
            ..
        } = config.rope.scaling
        else {
            panic!("{kind}: {:?}", config.rope.scaling);
        };
        assert_eq!(original_max_position_embeddings, 4096);
        // sqrt(1 + ln 32 / ln 4096), the published 1.1902...
        assert!(
            (attention_factor - 1.190_238_071).abs() < 1e-8,
            "{attention_factor}"
        );
    }
}

#[test]
fn qwen_windows_start_at_max_window_layers() {
    let qwen = |more: &str| {
        parse(&with(
            &with(
                SMOLLM2,
                r#"{ "model_type": "qwen2", "sliding_window": 4096 }"#,
            ),
            more,
        ))
    };
    let off = qwen("{}");
    assert!(off.qkv_bias && !off.o_bias);
    assert_eq!(off.layer_window(29), None);
    let on = qwen(r#"{ "use_sliding_window": true, "max_window_layers": 21 }"#);
    assert_eq!(
        (on.layer_window(20), on.layer_window(21)),
        (None, Some(4096))
    );
    assert_eq!(
        parse(&with(SMOLLM2, r#"{ "model_type": "qwen3" }"#)).head_dim,
        128
    );
}

/// A change to SmolLM2's config, and what is said of it.
const FAULTS: &[(&str, &str)] = &[
    (
        r#"{ "model_type": null }"#,
        "model config lacks `model_type`",
    ),
    (
        r#"{ "model_type": "mamba" }"#,
        "model config: `model_type` = mamba is not supported, only llama, qwen2, qwen3, gemma3, gemma3_text, phi3",
    ),
    (
        r#"{ "hidden_size": null }"#,
        "model config lacks `hidden_size`",
    ),
    (
        r#"{ "hidden_size": 0 }"#,
        "model config: `hidden_size` must be between 1 and 1048576, found 0",
    ),
    (
        r#"{ "hidden_size": 18446744073709551615 }"#,
        "model config: `hidden_size` must be between 1 and 1048576, found 18446744073709551615",
    ),
    (
        r#"{ "num_hidden_layers": 5000000 }"#,
        "model config: `num_hidden_layers` must be between 1 and 4096, found 5000000",
    ),
    (
        r#"{ "num_key_value_heads": 4 }"#,
        "model config: `num_key_value_heads` must be a divisor of num_attention_heads 9, found 4",
    ),
    (
        r#"{ "num_attention_heads": 7, "num_key_value_heads": 7 }"#,
        "model config: `num_attention_heads` must be a divisor of hidden_size 576, as head_dim is not stated, found 7",
    ),
    (
        r#"{ "num_attention_heads": 1048576, "num_key_value_heads": 1, "head_dim": 65536 }"#,
        "model config: `head_dim` must be such that num_attention_heads * head_dim is at most 1048576, found 65536",
    ),
    (
        r#"{ "rms_norm_eps": -1.0 }"#,
        "model config: `rms_norm_eps` must be finite and not negative, found -1",
    ),
    (
        r#"{ "rope_theta": 0.5 }"#,
        "model config: `rope_theta` must be finite and above 1, found 0.5",
    ),
    (
        r#"{ "hidden_act": "relu" }"#,
        "model config: `hidden_act` = relu is not supported, only silu, gelu_pytorch_tanh",
    ),
    (
        r#"{ "partial_rotary_factor": 1.5 }"#,
        "model config: `partial_rotary_factor` must be in (0, 1], found 1.5",
    ),
    (
        r#"{ "partial_rotary_factor": 0.05 }"#,
        "model config: `partial_rotary_factor` must be such that head_dim 64 * factor is even and not 0, found 0.05",
    ),
    (
        r#"{ "rope_scaling": { "type": "dynamic", "factor": 2.0 } }"#,
        "model config: `rope_scaling.rope_type` = dynamic is not supported, only default, linear, llama3, longrope (su), yarn",
    ),
    (
        r#"{ "rope_scaling": { "type": "linear" } }"#,
        "model config lacks `rope_scaling.factor`",
    ),
    (
        r#"{ "rope_scaling": { "type": "linear", "factor": 0.5 } }"#,
        "model config: `rope_scaling.factor` must be at least 1, found 0.5",
    ),
    (
        r#"{ "rope_scaling": { "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0 } }"#,
        "model config: `rope_scaling.high_freq_factor` must be above low_freq_factor 4, found 4",
    ),
    (
        r#"{ "rope_scaling": { "type": "su", "short_factor": [1.0], "long_factor": [1.0] } }"#,
        "model config: `rope_scaling.short_factor` must be a list of 32 numbers, half the rotary dimension, found 1 numbers",
    ),
    (
        r#"{ "layer_types": ["full_attention"] }"#,
        "model config: `layer_types` must be a list of 30 layer types, one per layer, found 1 entries",
    ),
    (
        r#"{ "model_type": "gemma3_text" }"#,
        "model config lacks `sliding_window`",
    ),
    (
        r#"{ "use_bidirectional_attention": true }"#,
        "model config: `use_bidirectional_attention` = true is not supported, only false",
    ),
    (
        r#"{ "final_logit_softcapping": 0 }"#,
        "model config: `final_logit_softcapping` must be finite and above 0, or null, found 0",
    ),
    (
        r#"{ "gkq": { "rope_layout": "spiral" } }"#,
        "model config: `gkq.rope_layout` = spiral is not supported, only half, interleaved",
    ),
    (
        r#"{ "gkq": { "rope_freq_factors": [1.0, 0.0] } }"#,
        "model config: `gkq.rope_freq_factors` must be a list of 32 numbers, half the rotary dimension, found 2 numbers",
    ),
    (
        r#"{ "text_config": 3 }"#,
        "model config: `text_config` must be an object, found 3",
    ),
    (
        r#"{ "vocab_size": "many" }"#,
        "model config is not readable as config.json",
    ),
];

#[test]
fn each_fault_is_named() {
    for (changes, expected) in FAULTS {
        assert_eq!(refusal(&with(SMOLLM2, changes)), *expected, "{changes}");
    }
    for text in ["", "[]", "null", "{", "\u{0}"] {
        assert_eq!(
            refusal(text),
            "model config is not readable as config.json",
            "{text:?}"
        );
    }
}
