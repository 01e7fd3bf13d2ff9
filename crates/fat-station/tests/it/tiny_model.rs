//! A seeded random llama with 10,000 rows, so that its row tree has paths below the pinned level,
//! written as a Hugging Face directory and packed once per kind.

use fat_origin::pack::{Matrix, PackOptions, pack};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub(crate) const VOCABULARY: usize = 10_000;
pub(crate) const HIDDEN: usize = 32;
pub(crate) const LAYERS: usize = 2;
/// Id of `<|end|>`.
pub(crate) const END: u32 = 256;
/// Kinds of rows of the `mixed` models: letters in four of them, rows without a token in fp8.
pub(crate) const MIX: &str = "int8=60..90,int4_zp=90..110,fp8_e5m2=200..256,fp8_e4m3=rarest:9000";
/// Positions of the model.
pub(crate) const CONTEXT: usize = 1_024;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Tied,
    Untied,
}

/// Knots and rows of all kinds, made once for all tests: `tied`, `untied`, `external`, and `other`,
/// whose shapes are those of `tied` with other weights.
pub(crate) fn models() -> &'static Path {
    static MODELS: LazyLock<PathBuf> = LazyLock::new(|| {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        remove_left_overs(scratch);
        let directory = scratch.join(format!("tiny-{}", std::process::id()));
        for (name, head, seed, matrix) in [
            ("tied", Head::Tied, 1, Matrix::Inside),
            ("untied", Head::Untied, 1, Matrix::Inside),
            ("external", Head::Tied, 1, Matrix::External),
            ("other", Head::Tied, 2, Matrix::Inside),
        ] {
            let source = directory.join(format!("{name}-source"));
            write_checkpoint(&source, head, seed);
            let options = PackOptions {
                out: directory.join("packed"),
                name: Some(name.to_owned()),
                matrix,
                ..PackOptions::default()
            };
            pack(&source, &options).unwrap();
        }
        // With a sketch: of half of the components and of all, and where the knot has the rows too.
        for (name, source, matrix, rank) in [
            ("sketched", "untied", Matrix::External, 16),
            ("sketched-whole", "untied", Matrix::External, 32),
            ("sketched-tied", "tied", Matrix::Inside, 16),
        ] {
            let options = PackOptions {
                out: directory.join("packed"),
                name: Some(name.to_owned()),
                matrix,
                embed_sketch: Some(rank),
                ..PackOptions::default()
            };
            pack(&directory.join(format!("{source}-source")), &options).unwrap();
        }
        // Rows of several kinds: what bytes stand for (ids below 257) in all of them.
        for (name, source, matrix) in [
            ("mixed", "tied", Matrix::Inside),
            ("mixed-external", "tied", Matrix::External),
        ] {
            let options = PackOptions {
                out: directory.join("packed"),
                name: Some(name.to_owned()),
                matrix,
                embed_mix: Some(MIX.parse().unwrap()),
                ..PackOptions::default()
            };
            pack(&directory.join(format!("{source}-source")), &options).unwrap();
        }
        directory.join("packed")
    });
    &MODELS
}

/// Removes the models of test runs that have ended: a static is never dropped.
fn remove_left_overs(scratch: &Path) {
    let proc = Path::new("/proc");
    for entry in std::fs::read_dir(scratch).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix("tiny-")
            .filter(|_| proc.join("self").exists());
        if owner.is_some_and(|owner| !proc.join(owner).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn write_checkpoint(directory: &Path, head: Head, seed: u64) {
    std::fs::create_dir_all(directory).unwrap();
    let write = |name: &str, value: &Value| {
        std::fs::write(directory.join(name), serde_json::to_vec(value).unwrap()).unwrap();
    };
    write(
        "config.json",
        &json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 64,
            "num_hidden_layers": LAYERS, "num_attention_heads": 2, "num_key_value_heads": 1,
            "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0,
            "tie_word_embeddings": head == Head::Tied, "torch_dtype": "bfloat16",
        }),
    );
    write("generation_config.json", &json!({ "eos_token_id": [END] }));
    write(
        "tokenizer_config.json",
        &json!({
            "add_bos_token": false, "eos_token": "<|end|>",
            "chat_template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ eos_token }}",
        }),
    );
    write("tokenizer.json", &tokenizer());
    std::fs::write(directory.join("model.safetensors"), safetensors(head, seed)).unwrap();
}

/// One token a byte, in the order of GPT-2's byte alphabet, and one special token.
fn tokenizer() -> Value {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut spare = (0x100_u32..).filter_map(char::from_u32);
    let mut letters: Vec<(bool, char)> = (0..=255_u8)
        .map(|byte| {
            if printable(byte) {
                (false, char::from(byte))
            } else {
                (true, spare.next().unwrap())
            }
        })
        .collect();
    letters.sort_by_key(|(spare, _)| *spare);
    let vocabulary: Map<String, Value> = letters
        .iter()
        .enumerate()
        .map(|(id, (_, letter))| (letter.to_string(), json!(id)))
        .collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
        "added_tokens": [{
            "id": END, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        }],
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": [],
        },
    })
}

/// Header length (u64 LE), JSON header, tensors in its order; every value a bf16.
fn safetensors(head: Head, seed: u64) -> Vec<u8> {
    let mut shapes = vec![(
        "model.embed_tokens.weight".to_owned(),
        vec![VOCABULARY, HIDDEN],
    )];
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("self_attn.q_proj", vec![HIDDEN, HIDDEN]),
            ("self_attn.k_proj", vec![16, HIDDEN]),
            ("self_attn.v_proj", vec![16, HIDDEN]),
            ("self_attn.o_proj", vec![HIDDEN, HIDDEN]),
            ("mlp.gate_proj", vec![64, HIDDEN]),
            ("mlp.up_proj", vec![64, HIDDEN]),
            ("mlp.down_proj", vec![HIDDEN, 64]),
            ("input_layernorm", vec![HIDDEN]),
            ("post_attention_layernorm", vec![HIDDEN]),
        ] {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    shapes.push(("model.norm.weight".to_owned(), vec![HIDDEN]));
    if head == Head::Untied {
        shapes.push(("lm_head.weight".to_owned(), vec![VOCABULARY, HIDDEN]));
    }
    let mut header = Map::new();
    let mut data = Vec::new();
    let mut state = seed;
    for (name, shape) in shapes {
        let begin = data.len();
        for _ in 0..shape.iter().product::<usize>() {
            // Knuth's MMIX generator; its upper bits are good enough for weights.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let uniform = (state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5;
            let value = if shape.len() == 1 {
                1.0 + uniform / 2.0
            } else {
                uniform
            };
            data.extend_from_slice(&value.to_le_bytes()[2..]);
        }
        header.insert(
            name,
            json!({ "dtype": "BF16", "shape": shape, "data_offsets": [begin, data.len()] }),
        );
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    file
}
