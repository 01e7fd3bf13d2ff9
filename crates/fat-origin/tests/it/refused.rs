//! Every bad input is refused by name, and nothing stays in the output directory.

use std::path::Path;

use fat_origin::Error;
use fat_origin::pack::{EmbedDtype, PackOptions, Stop, pack};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::gguf_source::{Gguf, Meta};
use super::huggingface_source::{
    self as source, HIDDEN, TestTensor, directory, edit_index, f32_bytes, sharded, tensor,
    texts_only, tiny_tensors,
};
use super::packed::files;

fn pack_error(source: &Path, options: PackOptions) -> Error {
    let out = tempfile::tempdir().unwrap();
    // Temporary directories have hidden names, which are none for a model.
    let name = options.name.or(Some("tiny".to_owned()));
    let options = PackOptions {
        out: out.path().to_path_buf(),
        name,
        ..options
    };
    let error = pack(source, &options).expect_err("the source was accepted");
    assert_eq!(
        files(out.path()),
        Vec::<String>::new(),
        "left behind by: {error}"
    );
    error
}

/// The error's text, causes included, holds each of these.
#[track_caller]
fn names(error: &Error, parts: &[&str]) {
    let text = chain(error);
    for part in parts {
        assert!(text.contains(part), "`{text}` does not name `{part}`");
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or(error.to_string(), |cause| {
        format!("{error}: {}", chain(cause))
    })
}

#[track_caller]
pub(crate) fn refused(dir: &TempDir, parts: &[&str]) -> Error {
    let error = pack_error(dir.path(), PackOptions::default());
    names(&error, parts);
    error
}

#[test]
fn shards_are_checked_before_they_are_read() {
    let tensors = tiny_tensors();
    let dir = sharded(&tensors);
    std::fs::remove_file(dir.path().join("model-00002-of-00002.safetensors")).unwrap();
    let error = pack_error(dir.path(), PackOptions::default());
    assert!(
        matches!(&error, Error::MissingShard { tensors: 13, .. }),
        "{error}"
    );
    names(&error, &["model-00002-of-00002.safetensors", "index.json"]);

    let dir = sharded(&tensors);
    edit_index(dir.path(), |map| {
        map.insert(
            "model.layers.9.mlp.up_proj.weight".to_owned(),
            json!("model-00001-of-00002.safetensors"),
        );
    });
    let error = pack_error(dir.path(), PackOptions::default());
    assert!(matches!(error, Error::AbsentTensor { .. }), "{error}");
    names(
        &error,
        &[
            "model.layers.9.mlp.up_proj.weight",
            "model-00001-of-00002.safetensors",
        ],
    );

    let absolute = dir.path().join("model-00001-of-00002.safetensors");
    for path in [
        "../model-00001-of-00002.safetensors",
        absolute.to_str().unwrap(),
        "a/../../b",
        "",
        "..\\b",
    ] {
        let dir = sharded(&tensors);
        edit_index(dir.path(), |map| {
            map.insert("model.norm.weight".to_owned(), json!(path));
        });
        let error = pack_error(dir.path(), PackOptions::default());
        assert!(matches!(error, Error::ShardPath { .. }), "{path}: {error}");
        names(&error, &[path]);
    }
}

#[test]
fn shards_beyond_the_index_are_ignored() {
    let dir = sharded(&tiny_tensors());
    source::write(
        dir.path(),
        "model-00003-of-00003.safetensors",
        b"not one at all",
    );
    let out = tempfile::tempdir().unwrap();
    let options = PackOptions {
        out: out.path().to_path_buf(),
        name: Some("tiny".to_owned()),
        ..PackOptions::default()
    };
    assert!(pack(dir.path(), &options).is_ok());
}

#[test]
fn a_directory_without_its_parts_says_which() {
    let dir = directory(&tiny_tensors());
    std::fs::remove_file(dir.path().join("config.json")).unwrap();
    refused(&dir, &["config.json"]);
    let dir = directory(&tiny_tensors());
    std::fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    refused(&dir, &["tokenizer.json"]);
    refused(&texts_only(), &["model.safetensors"]);
    let dir = directory(&tiny_tensors());
    source::write(dir.path(), "generation_config.json", "{");
    refused(&dir, &["generation_config.json", "JSON"]);

    let mut tensors = tiny_tensors();
    tensors.retain(|tensor| tensor.name != "model.embed_tokens.weight");
    refused(
        &directory(&tensors),
        &["model.embed_tokens.weight", "missing"],
    );
}

#[test]
fn a_tokenizer_wider_than_the_matrix_is_refused() {
    let mut tensors = tiny_tensors();
    tensors[1] = tensor("model.embed_tokens.weight", &[source::TOKENS - 1, HIDDEN]);
    let error = pack_error(directory(&tensors).path(), PackOptions::default());
    assert!(
        matches!(
            error,
            Error::TokenizerTooWide {
                tokens: 257,
                rows: 256,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn truncated_weights_and_foreign_dtypes_name_their_tensor() {
    let dir = directory(&tiny_tensors());
    let path = dir.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    refused(&dir, &["tensor `model.layers.0.input_layernorm.weight`"]);

    let mut tensors = tiny_tensors();
    let packed = TestTensor {
        name: "model.layers.0.mlp.gate_proj.qweight".to_owned(),
        dtype: "I32",
        shape: vec![8, 8],
        bytes: vec![0; 256],
    };
    tensors.push(packed);
    refused(
        &directory(&tensors),
        &["model.layers.0.mlp.gate_proj.qweight", "I32", "bf16"],
    );
}

#[test]
fn values_that_do_not_fit_are_refused_with_their_place() {
    let mut tensors = tiny_tensors();
    let mut values = source::values("big", source::ROWS * HIDDEN);
    values[3 * HIDDEN as usize + 5] = 1e6;
    tensors[1] = TestTensor {
        dtype: "F32",
        bytes: f32_bytes(&values),
        ..tensors[1].clone()
    };
    let dir = directory(&tensors);
    let error = pack_error(
        dir.path(),
        PackOptions {
            embed_dtype: EmbedDtype::F16,
            ..PackOptions::default()
        },
    );
    assert!(
        matches!(
            error,
            Error::ConversionOverflow {
                row: 3,
                column: 5,
                dtype: "f16",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn options_that_cannot_be_had_are_named() {
    let dir = directory(&tiny_tensors());
    for tolerance in [0.0, 1.5, f64::NAN, -1.0] {
        let options = PackOptions {
            spectral_tolerance: Some(tolerance),
            ..PackOptions::default()
        };
        names(&pack_error(dir.path(), options), &["--spectral-tolerance"]);
    }
    for name in ["", "../x", ".hidden", "a/b"] {
        let options = PackOptions {
            name: Some(name.to_owned()),
            ..PackOptions::default()
        };
        names(&pack_error(dir.path(), options), &["--name"]);
    }
    source::write(dir.path(), "notes.txt", "text");
    let error = pack_error(&dir.path().join("notes.txt"), PackOptions::default());
    assert!(matches!(error, Error::NoCheckpoint { .. }), "{error}");
    let error = pack_error(&dir.path().join("nothing"), PackOptions::default());
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn an_interrupted_pack_leaves_nothing() {
    let stop = Stop::default();
    stop.set();
    let error = pack_error(
        directory(&tiny_tensors()).path(),
        PackOptions {
            stop,
            ..PackOptions::default()
        },
    );
    assert!(matches!(error, Error::Interrupted), "{error}");
}

#[track_caller]
pub(crate) fn refused_gguf(gguf: &Gguf, parts: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    names(
        &pack_error(&gguf.write(dir.path()), PackOptions::default()),
        parts,
    );
}

#[test]
fn gguf_files_that_lie_are_refused() {
    let mut gguf = Gguf::llama();
    gguf.set("general.alignment", Meta::U32(0));
    refused_gguf(&gguf, &["general.alignment"]);

    let mut gguf = Gguf::llama();
    gguf.tensors[0].2 = vec![1 << 33, 1 << 31];
    refused_gguf(&gguf, &["token_embd.weight"]);

    let mut gguf = Gguf::llama();
    gguf.set("general.architecture", Meta::Text("mamba"));
    refused_gguf(&gguf, &["architecture", "mamba", "llama, qwen2"]);

    let mut gguf = Gguf::llama();
    gguf.vector("blk.0.attn_sinks.weight", 4);
    refused_gguf(&gguf, &["blk.0.attn_sinks.weight"]);

    let mut gguf = Gguf::llama();
    gguf.set("llama.expert_count", Meta::U32(8));
    refused_gguf(&gguf, &["mixture of experts"]);

    let mut gguf = Gguf::llama();
    gguf.metadata
        .retain(|(key, _)| key != "llama.embedding_length");
    refused_gguf(&gguf, &["llama.embedding_length"]);

    let mut gguf = Gguf::llama();
    gguf.set("llama.rope.scaling.type", Meta::Text("longrope"));
    refused_gguf(&gguf, &["llama.rope.scaling.type", "longrope"]);

    let mut gguf = Gguf::llama();
    gguf.vector("rope_factors_short.weight", 16);
    refused_gguf(&gguf, &["rotary factors", "one of them"]);

    let mut gguf = Gguf::llama();
    gguf.set("split.count", Meta::U32(3));
    refused_gguf(&gguf, &["split.count"]);

    let mut gguf = Gguf::llama();
    gguf.tensors.remove(0);
    gguf.matrix("token_embd.weight", 128, 64);
    refused_gguf(&gguf, &["tokenizer is wider"]);
}

#[test]
fn every_truncation_of_a_gguf_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let whole = Gguf::llama().bytes();
    let path = dir.path().join("cut.gguf");
    for len in (0..whole.len()).step_by(97).chain([whole.len() - 1]) {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = pack_error(&path, PackOptions::default());
        let expected = matches!(error, Error::Malformed { .. } | Error::NoCheckpoint { .. });
        assert!(expected, "{len} of {} bytes: {error}", whole.len());
    }
}

#[test]
fn errors_are_json_free_and_carry_no_debug_noise() {
    let dir = sharded(&tiny_tensors());
    std::fs::write(
        dir.path().join("model.safetensors.index.json"),
        Value::Null.to_string(),
    )
    .unwrap();
    let error = pack_error(dir.path(), PackOptions::default()).to_string();
    assert!(
        error.contains("weight_map") && !error.contains("Error("),
        "{error}"
    );
}
