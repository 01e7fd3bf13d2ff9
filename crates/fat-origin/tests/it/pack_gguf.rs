//! GGUF files in, knots and row files out.

use fat_origin::pack::{EmbedDtype, PackOptions};
use fat_origin::verify::verify;
use gkq_v2::{Dtype, SectionKind};
use serde_json::json;

use super::gguf_source::{Gguf, Meta};
use super::packed::{Packed, packed};

const EMBEDDING: &str = "model.embed_tokens.weight";

fn pack_gguf(gguf: &Gguf, options: PackOptions) -> Packed {
    let dir = tempfile::tempdir().unwrap();
    packed(&gguf.write(dir.path()), options)
}

fn bytes_of<'a>(gguf: &'a Gguf, name: &str) -> &'a [u8] {
    &gguf
        .tensors
        .iter()
        .find(|(known, ..)| known == name)
        .unwrap()
        .3
}

#[test]
fn quantised_rows_and_blocks_stay_as_they_are() {
    let gguf = Gguf::llama();
    let packed = pack_gguf(&gguf, PackOptions::default());
    assert_eq!(packed.rows, bytes_of(&gguf, "token_embd.weight"));
    assert_eq!(packed.payload(EMBEDDING), packed.rows);
    assert_eq!(
        packed.payload("model.layers.0.self_attn.q_proj.weight"),
        bytes_of(&gguf, "blk.0.attn_q.weight")
    );
    let columnar = packed.block(EMBEDDING).columnar.clone().unwrap();
    assert_eq!(
        (columnar.rows, columnar.row_bytes, columnar.dtype),
        (260, 68, Dtype::Q8_0)
    );
    assert_eq!(
        packed.block_names(),
        [
            "model.layers.0.input_layernorm.weight",
            "model.layers.0.self_attn.q_proj.weight",
            "model.layers.0.self_attn.k_proj.weight",
            "model.layers.0.self_attn.v_proj.weight",
            "model.layers.0.self_attn.o_proj.weight",
            "model.layers.0.post_attention_layernorm.weight",
            "model.layers.0.mlp.gate_proj.weight",
            "model.layers.0.mlp.up_proj.weight",
            "model.layers.0.mlp.down_proj.weight",
            "model.norm.weight",
            EMBEDDING
        ]
    );
    assert_eq!(
        verify(&packed.knot_path(), Some(&packed.rows_path()))
            .unwrap()
            .differences,
        []
    );
}

#[test]
fn the_config_is_put_together_from_metadata() {
    let mut gguf = Gguf::llama();
    gguf.vector("rope_freqs.weight", 16);
    let packed = pack_gguf(&gguf, PackOptions::default());
    let config = packed.json(SectionKind::ModelConfig);
    let factors: Vec<f32> = (0..16).map(|index| 1.0 + index as f32 * 0.125).collect();
    assert_eq!(
        config,
        json!({
            "model_type": "llama", "vocab_size": 260, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
            "max_position_embeddings": 128, "rms_norm_eps": f64::from(1e-5_f32), "hidden_act": "silu",
            "tie_word_embeddings": true, "bos_token_id": 257, "eos_token_id": 256, "rope_theta": 10_000.0,
            "attention_bias": false, "mlp_bias": false,
            "gkq": {
                "rope_layout": "interleaved", "norm_weight_includes_one": false, "rope_freq_factors": factors,
            },
        })
    );
    assert_eq!(
        packed.json(SectionKind::GenerationConfig),
        json!({"eos_token_id": [256, 257]})
    );
    assert_eq!(packed.text(SectionKind::ChatTemplate), "{{ bos_token }}");
    let tokenizer_config = packed.json(SectionKind::TokenizerConfig);
    let expected =
        json!({"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "add_bos_token": false});
    assert_eq!(tokenizer_config, expected);
    assert_eq!(packed.tokenizer().vocabulary_len(), 258);
}

/// The same file with another architecture's keys.
fn renamed(architecture: &'static str) -> Gguf {
    let mut gguf = Gguf::llama();
    for (key, _) in &mut gguf.metadata {
        if let Some(rest) = key.strip_prefix("llama.") {
            *key = format!("{architecture}.{rest}");
        }
    }
    gguf.set("general.architecture", Meta::Text(architecture));
    gguf
}

#[test]
fn gemma_says_that_its_norms_include_the_one() {
    let mut gguf = renamed("gemma3");
    gguf.set("gemma3.attention.key_length", Meta::U32(48));
    gguf.set("gemma3.attention.value_length", Meta::U32(48));
    gguf.set("gemma3.rope.dimension_count", Meta::U32(48));
    gguf.set("gemma3.attention.sliding_window", Meta::U32(512));
    gguf.set("gemma3.rope.scaling.type", Meta::Text("linear"));
    gguf.set("gemma3.rope.scaling.factor", Meta::F32(8.0));
    for (name, rows, cols) in [
        ("attn_q", 96, 64),
        ("attn_k", 48, 64),
        ("attn_v", 48, 64),
        ("attn_output", 64, 96),
    ] {
        let name = format!("blk.0.{name}.weight");
        gguf.without(&name);
        gguf.matrix(&name, rows, cols);
    }
    for (name, len) in [
        ("attn_q_norm", 48),
        ("attn_k_norm", 48),
        ("post_attention_norm", 64),
        ("post_ffw_norm", 64),
    ] {
        gguf.vector(&format!("blk.0.{name}.weight"), len);
    }
    let config = pack_gguf(&gguf, PackOptions::default()).json(SectionKind::ModelConfig);
    for (field, value) in [
        ("model_type", json!("gemma3_text")),
        ("head_dim", json!(48)),
        ("query_pre_attn_scalar", json!(48)),
        ("sliding_window", json!(512)),
        ("sliding_window_pattern", json!(6)),
        ("rope_local_base_freq", json!(10_000.0)),
        ("hidden_activation", json!("gelu_pytorch_tanh")),
        (
            "rope_scaling",
            json!({"rope_type": "linear", "factor": 8.0}),
        ),
        (
            "gkq",
            json!({"rope_layout": "half", "norm_weight_includes_one": true}),
        ),
    ] {
        assert_eq!(config[field], value, "{field}");
    }
}

#[test]
fn phi_carries_its_longrope_factors() {
    let mut gguf = renamed("phi3");
    for name in ["attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"] {
        gguf.without(&format!("blk.0.{name}.weight"));
    }
    gguf.matrix("blk.0.attn_qkv.weight", 128, 64);
    gguf.matrix("blk.0.ffn_up.weight", 192, 64);
    gguf.set("phi3.rope.dimension_count", Meta::U32(24));
    gguf.set("phi3.rope.scaling.original_context_length", Meta::U32(64));
    gguf.set("phi3.rope.scaling.attn_factor", Meta::F32(1.25));
    gguf.vector("rope_factors_short.weight", 12);
    gguf.vector("rope_factors_long.weight", 12);
    let packed = pack_gguf(&gguf, PackOptions::default());
    let config = packed.json(SectionKind::ModelConfig);
    let factors: Vec<f32> = (0..12).map(|index| 1.0 + index as f32 * 0.125).collect();
    let scaling = json!({
        "rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.25,
    });
    assert_eq!(config["rope_scaling"], scaling);
    assert_eq!(config["original_max_position_embeddings"], 64);
    assert_eq!(config["partial_rotary_factor"], 0.75);
    assert!(
        packed
            .knot
            .block("model.layers.0.self_attn.qkv_proj.weight")
            .is_some()
    );
    assert!(
        !packed
            .block_names()
            .iter()
            .any(|name| name.contains("rope"))
    );
}

#[test]
fn quantised_rows_can_be_widened() {
    let gguf = Gguf::llama();
    let packed = pack_gguf(
        &gguf,
        PackOptions {
            embed_dtype: EmbedDtype::F32,
            ..PackOptions::default()
        },
    );
    let block = packed.block(EMBEDDING);
    assert_eq!(
        (block.dtype(), block.source_dtype, block.error),
        (Dtype::F32, Dtype::Q8_0, 0.0)
    );
    let source = bytes_of(&gguf, "token_embd.weight");
    let expected: Vec<u8> = source
        .chunks(34)
        .flat_map(|block| {
            let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
            block[2..]
                .iter()
                .flat_map(move |&level| (f32::from(level.cast_signed()) * scale).to_le_bytes())
        })
        .collect();
    assert_eq!(packed.rows, expected);
}

#[test]
fn the_place_of_the_matrix_in_its_source_is_noted_where_its_rows_are_the_knots() {
    let dir = tempfile::tempdir().unwrap();
    let path = Gguf::llama().write(dir.path());
    let source = std::fs::read(&path).unwrap();
    let kept = packed(&path, PackOptions::default());
    let place = kept.json(SectionKind::Provenance)["embedding"].clone();
    let base = usize::try_from(place["base_bytes"].as_u64().unwrap()).unwrap();
    assert_eq!(&source[base..base + kept.rows.len()], kept.rows);
    assert_eq!(place["file_bytes"], json!(source.len()));
    assert_eq!(
        place["file"],
        json!(path.file_name().unwrap().to_str().unwrap())
    );
    let options = PackOptions {
        embed_dtype: EmbedDtype::F32,
        ..PackOptions::default()
    };
    let converted = packed(&path, options);
    let place = &converted.json(SectionKind::Provenance)["embedding"];
    assert!(place.is_null(), "converted rows are not the source's");
}
