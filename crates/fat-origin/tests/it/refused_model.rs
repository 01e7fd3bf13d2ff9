//! Checkpoints that could be packed but not run are refused by the name of what is wrong.

use fat_origin::Error;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::gguf_source::{Gguf, Meta};
use super::huggingface_source::{
    self as source, HIDDEN, ROWS, directory, tensor, texts_only, tiny_tensors,
};
use super::refused::{refused, refused_gguf};

/// The tiny model with one field of its config changed.
fn with_config(field: &str, value: Value) -> TempDir {
    let dir = directory(&tiny_tensors());
    let mut config = source::config();
    config[field] = value;
    source::write(dir.path(), "config.json", config.to_string());
    dir
}

#[test]
fn every_tensor_of_the_model_must_be_there() {
    for name in [
        "model.norm.weight",
        "model.layers.1.self_attn.k_proj.bias",
        "model.layers.0.mlp.down_proj.weight",
    ] {
        let mut tensors = tiny_tensors();
        tensors.retain(|tensor| tensor.name != name);
        let error = refused(&directory(&tensors), &[name, "missing"]);
        assert!(matches!(error, Error::MissingTensor { .. }), "{error}");
    }
    let mut gguf = Gguf::llama();
    gguf.without("blk.0.ffn_up.weight");
    refused_gguf(&gguf, &["model.layers.0.mlp.up_proj.weight", "missing"]);
}

#[test]
fn tensors_that_the_config_does_not_know_are_refused() {
    let dir = with_config("num_hidden_layers", json!(1));
    let error = refused(&dir, &["model.layers.1.input_layernorm.weight", "1 layers"]);
    assert!(
        matches!(error, Error::UnknownTensor { layers: 1, .. }),
        "{error}"
    );
    for name in ["lm_head.bias", "model.layers.0.self_attn.o_proj.bias"] {
        let mut tensors = tiny_tensors();
        tensors.push(tensor(name, &[HIDDEN]));
        refused(&directory(&tensors), &[name]);
    }
}

#[test]
fn shapes_follow_from_the_config() {
    for (field, value, parts) in [
        (
            "hidden_size",
            json!(32),
            ["model.embed_tokens.weight", "32"],
        ),
        (
            "vocab_size",
            json!(265),
            ["model.embed_tokens.weight", "265"],
        ),
        (
            "intermediate_size",
            json!(96),
            ["mlp.gate_proj.weight", "96"],
        ),
        ("num_key_value_heads", json!(2), ["self_attn.k_proj", "64"]),
        ("model_type", json!("mamba"), ["model_type", "mamba"]),
        (
            "rope_scaling",
            json!({"rope_type": "linear"}),
            ["rope_scaling", "factor"],
        ),
    ] {
        let error = refused(&with_config(field, value), &parts);
        let expected = matches!(error, Error::Model { .. } | Error::Malformed { .. });
        assert!(expected, "{field}: {error}");
    }
    let mut tensors = tiny_tensors();
    tensors.push(tensor("lm_head.weight", &[ROWS - 1, HIDDEN]));
    refused(&directory(&tensors), &["lm_head.weight", "263", "264"]);
}

#[test]
fn stop_ids_have_a_row() {
    refused(
        &with_config("eos_token_id", json!([256, 264])),
        &["end-of-sequence id", "below 264", "found 264"],
    );
    let dir = directory(&tiny_tensors());
    for (ids, found) in [(json!(4_000_000), "4000000"), (json!(-1), "-1")] {
        let generation = json!({ "eos_token_id": ids });
        source::write(dir.path(), "generation_config.json", generation.to_string());
        refused(&dir, &[found]);
    }
}

#[test]
fn numbers_of_a_gguf_that_would_change_the_arithmetic_are_refused() {
    for key in [
        "llama.rope.freq_base",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        for value in [f32::NAN, f32::INFINITY, 0.0, -1.0] {
            let mut gguf = Gguf::llama();
            gguf.set(key, Meta::F32(value));
            refused_gguf(&gguf, &[key]);
        }
    }
    for value in [f32::NAN, -2.0] {
        let mut gguf = Gguf::llama();
        gguf.set("llama.rope.scaling.factor", Meta::F32(value));
        refused_gguf(&gguf, &["llama.rope.scaling.factor"]);
    }
    let mut gguf = Gguf::llama();
    gguf.set("llama.rope.scaling.type", Meta::Text("yarn"));
    refused_gguf(&gguf, &["yarn", "factor"]);
}

#[test]
fn texts_are_read_within_bounds_and_from_regular_files_only() {
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        "model.safetensors",
    ] {
        let dir = directory(&tiny_tensors());
        let path = dir.path().join(name);
        let _ = std::fs::remove_file(&path);
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        refused(&dir, &[name, "a regular file"]);

        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        refused(&dir, &[name, "a regular file"]);

        // Sparse, so that the length alone must speak; weights may be of any length.
        std::fs::remove_file(&path).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(300 << 20).unwrap();
        if !name.ends_with("safetensors") {
            refused(&dir, &[name, "at most"]);
        }
    }
    let dir = texts_only();
    let index = "model.safetensors.index.json";
    std::os::unix::fs::symlink("/dev/zero", dir.path().join(index)).unwrap();
    refused(&dir, &[index, "a regular file"]);
}

#[test]
fn a_template_inside_another_file_is_bounded_too() {
    let template = "x".repeat((1 << 20) + 1);
    let dir = directory(&tiny_tensors());
    let config = json!({ "chat_template": template });
    source::write(dir.path(), "tokenizer_config.json", config.to_string());
    refused(&dir, &["chat template", "at most 1048576", "1048577"]);
}
