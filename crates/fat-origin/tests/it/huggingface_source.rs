//! Tiny Hugging Face directories, written by the test itself.

use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

pub(crate) const HIDDEN: u64 = 64;
pub(crate) const INTERMEDIATE: u64 = 128;
/// One key and value head; two query heads of this width make up `HIDDEN`.
pub(crate) const KEY_VALUE: u64 = 32;
/// 256 bytes, one special token, and seven rows that no token has.
pub(crate) const ROWS: u64 = 264;
pub(crate) const TOKENS: u64 = 257;

/// A tensor of a checkpoint under construction.
#[derive(Clone, Debug)]
pub(crate) struct TestTensor {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// Values that are finite, differ, and depend on the name.
pub(crate) fn values(name: &str, count: u64) -> Vec<f32> {
    let seed = name.bytes().fold(1_u64, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    }) % 997;
    (0..count)
        .map(|index| ((seed * 131 + index * (seed % 89 + 7)) as f32 * 0.0137).sin())
        .collect()
}

pub(crate) fn bf16(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|&value| half::bf16::from_f32(value).to_le_bytes())
        .collect()
}

pub(crate) fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// A tensor of bf16 values.
pub(crate) fn tensor(name: &str, shape: &[u64]) -> TestTensor {
    let bytes = bf16(&values(name, shape.iter().product()));
    TestTensor {
        name: name.to_owned(),
        dtype: "BF16",
        shape: shape.to_vec(),
        bytes,
    }
}

/// A two-layer model of family qwen2, its layers in the wrong order on purpose.
pub(crate) fn tiny_tensors() -> Vec<TestTensor> {
    let mut tensors = vec![
        tensor("model.norm.weight", &[HIDDEN]),
        tensor("model.embed_tokens.weight", &[ROWS, HIDDEN]),
    ];
    for layer in [1, 0] {
        for (module, shape) in [
            ("mlp.down_proj.weight", &[HIDDEN, INTERMEDIATE][..]),
            ("mlp.up_proj.weight", &[INTERMEDIATE, HIDDEN]),
            ("mlp.gate_proj.weight", &[INTERMEDIATE, HIDDEN]),
            ("post_attention_layernorm.weight", &[HIDDEN]),
            ("self_attn.o_proj.weight", &[HIDDEN, HIDDEN]),
            ("self_attn.v_proj.weight", &[KEY_VALUE, HIDDEN]),
            ("self_attn.v_proj.bias", &[KEY_VALUE]),
            ("self_attn.k_proj.weight", &[KEY_VALUE, HIDDEN]),
            ("self_attn.k_proj.bias", &[KEY_VALUE]),
            ("self_attn.q_proj.weight", &[HIDDEN, HIDDEN]),
            ("self_attn.q_proj.bias", &[HIDDEN]),
            ("input_layernorm.weight", &[HIDDEN]),
        ] {
            tensors.push(tensor(&format!("model.layers.{layer}.{module}"), shape));
        }
    }
    tensors
}

/// The bytes of a safetensors file.
pub(crate) fn safetensors(tensors: &[TestTensor]) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for tensor in tensors {
        let start = data.len();
        data.extend_from_slice(&tensor.bytes);
        let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, data.len()]});
        header.insert(tensor.name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

pub(crate) fn config() -> Value {
    json!({
        "model_type": "qwen2", "vocab_size": ROWS, "hidden_size": HIDDEN, "num_hidden_layers": 2,
        "intermediate_size": INTERMEDIATE, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0,
        "eos_token_id": 256,
    })
}

/// A byte-level tokenizer: every byte a token, and `<|end|>`.
pub(crate) fn tokenizer_json() -> Value {
    let mut vocabulary = Map::new();
    for (id, letter) in alphabet().into_iter().enumerate() {
        vocabulary.insert(letter.to_string(), json!(id));
    }
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{
            "id": 256, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        }],
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": [],
        },
    })
}

/// GPT-2's printable letter of each byte.
pub(crate) fn alphabet() -> Vec<char> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100;
    (0..256_u32)
        .map(|byte| {
            let code = if printable(byte) { byte } else { next };
            next += u32::from(!printable(byte));
            char::from_u32(code).unwrap()
        })
        .collect()
}

/// A directory with everything but weights.
pub(crate) fn texts_only() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "config.json", config().to_string());
    write(dir.path(), "tokenizer.json", tokenizer_json().to_string());
    let tokenizer_config = json!({
        "eos_token": "<|end|>", "chat_template": [{"name": "default", "template": "{{ messages }}"}],
        "added_tokens_decoder": {"256": {"content": "<|end|>", "special": true}},
    });
    write(
        dir.path(),
        "tokenizer_config.json",
        tokenizer_config.to_string(),
    );
    write(
        dir.path(),
        "generation_config.json",
        json!({"top_k": 20, "eos_token_id": [7]}).to_string(),
    );
    dir
}

/// A whole directory with one file of weights.
pub(crate) fn directory(tensors: &[TestTensor]) -> TempDir {
    let dir = texts_only();
    write(dir.path(), "model.safetensors", safetensors(tensors));
    dir
}

/// A directory whose weights lie in two shards.
pub(crate) fn sharded(tensors: &[TestTensor]) -> TempDir {
    let dir = texts_only();
    let (one, two) = tensors.split_at(tensors.len() / 2);
    let names = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    let mut map = Map::new();
    for (name, part) in names.into_iter().zip([one, two]) {
        write(dir.path(), name, safetensors(part));
        map.extend(part.iter().map(|tensor| (tensor.name.clone(), json!(name))));
    }
    write(
        dir.path(),
        "model.safetensors.index.json",
        json!({"metadata": {}, "weight_map": map}).to_string(),
    );
    dir
}

/// Changes the index of a sharded directory.
pub(crate) fn edit_index(dir: &Path, edit: impl FnOnce(&mut Map<String, Value>)) {
    let path = dir.join("model.safetensors.index.json");
    let mut index: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    edit(index["weight_map"].as_object_mut().unwrap());
    std::fs::write(path, index.to_string()).unwrap();
}

pub(crate) fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) {
    std::fs::write(dir.join(name), content).unwrap();
}
