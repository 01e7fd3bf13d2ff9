//! A model of real geometry and seeded random weights, written as a Hugging Face directory: the bytes that move
//! depend on shapes and token ids alone, so a gate at full size needs no real weights.

use std::fs::File;
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rand::{Rng, SeedableRng, rngs::ChaCha8Rng};
use serde_json::{Map, Value, json};

/// The shape of a Qwen2 model.
#[derive(Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) num_key_value_heads: usize,
}

/// Qwen2.5-0.5B, from its published config.json.
pub(crate) const QWEN2_5_0_5B: Geometry = Geometry {
    vocab_size: 151_936,
    hidden_size: 896,
    intermediate_size: 4_864,
    num_hidden_layers: 24,
    num_attention_heads: 14,
    num_key_value_heads: 2,
};

/// A toy with the same structure, for runs of a second.
pub(crate) const TINY: Geometry = Geometry {
    vocab_size: 320,
    hidden_size: 64,
    intermediate_size: 128,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
};

/// Seed of the weights; the results of the acceptance runs name it.
pub(crate) const SEED: u64 = 20_260_801;

/// Weights are uniform with the standard deviation that the family initialises with (`initializer_range`).
const INITIALIZER_RANGE: f32 = 0.02;

/// Writes config.json, model.safetensors and the tokenizer into `dir`.
pub(crate) fn write(dir: &Path, geometry: Geometry, tokenizer_json: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    write_json(&dir.join("config.json"), &config(geometry))?;
    write_json(
        &dir.join("generation_config.json"),
        &json!({ "eos_token_id": 0 }),
    )?;
    write_json(
        &dir.join("tokenizer_config.json"),
        &json!({ "add_bos_token": false }),
    )?;
    std::fs::copy(tokenizer_json, dir.join("tokenizer.json"))
        .with_context(|| format!("no tokenizer at {}", tokenizer_json.display()))?;
    write_weights(&dir.join("model.safetensors"), geometry)
}

/// A tokenizer that needs no download: one token a byte, no merges.
pub(crate) fn write_byte_tokenizer(path: &Path) -> Result<PathBuf> {
    let alphabet = byte_alphabet();
    let vocab: Map<String, Value> = alphabet
        .iter()
        .enumerate()
        .map(|(id, letter)| (letter.to_string(), json!(id)))
        .collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let model = json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": [],
    });
    write_json(
        path,
        &json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": byte_level,
            "post_processor": null, "decoder": byte_level, "model": model,
        }),
    )?;
    Ok(path.to_path_buf())
}

/// GPT-2's printable letter for each byte, in the order of its vocabulary: printable bytes first
/// (openai/gpt-2, encoder.py, `bytes_to_unicode`).
fn byte_alphabet() -> Vec<char> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let direct = (0..=255_u8).filter(printable).map(char::from);
    let spare = (0x100_u32..)
        .filter_map(char::from_u32)
        .take(256 - (0..=255_u8).filter(printable).count());
    direct.chain(spare).collect()
}

fn config(geometry: Geometry) -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "vocab_size": geometry.vocab_size,
        "hidden_size": geometry.hidden_size,
        "intermediate_size": geometry.intermediate_size,
        "num_hidden_layers": geometry.num_hidden_layers,
        "num_attention_heads": geometry.num_attention_heads,
        "num_key_value_heads": geometry.num_key_value_heads,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": true,
        "use_sliding_window": false,
        "torch_dtype": "bfloat16",
    })
}

/// How a tensor is filled.
#[derive(Clone, Copy)]
enum Fill {
    Random,
    Ones,
}

struct Tensor {
    name: String,
    shape: Vec<usize>,
    fill: Fill,
}

fn tensors(geometry: Geometry) -> Vec<Tensor> {
    let hidden = geometry.hidden_size;
    let key_value = hidden / geometry.num_attention_heads * geometry.num_key_value_heads;
    let random = |name: String, shape: Vec<usize>| Tensor {
        name,
        shape,
        fill: Fill::Random,
    };
    let norm = |name: String| Tensor {
        name,
        shape: vec![hidden],
        fill: Fill::Ones,
    };
    let mut all = vec![random(
        "model.embed_tokens.weight".into(),
        vec![geometry.vocab_size, hidden],
    )];
    for layer in 0..geometry.num_hidden_layers {
        let at = |name: &str| format!("model.layers.{layer}.{name}");
        for (projection, width) in [
            ("q_proj", hidden),
            ("k_proj", key_value),
            ("v_proj", key_value),
        ] {
            all.push(random(
                at(&format!("self_attn.{projection}.weight")),
                vec![width, hidden],
            ));
            all.push(random(
                at(&format!("self_attn.{projection}.bias")),
                vec![width],
            ));
        }
        all.push(random(at("self_attn.o_proj.weight"), vec![hidden, hidden]));
        all.push(random(
            at("mlp.gate_proj.weight"),
            vec![geometry.intermediate_size, hidden],
        ));
        all.push(random(
            at("mlp.up_proj.weight"),
            vec![geometry.intermediate_size, hidden],
        ));
        all.push(random(
            at("mlp.down_proj.weight"),
            vec![hidden, geometry.intermediate_size],
        ));
        all.push(norm(at("input_layernorm.weight")));
        all.push(norm(at("post_attention_layernorm.weight")));
    }
    all.push(norm("model.norm.weight".into()));
    all
}

/// safetensors: header length (u64 LE), JSON header, tensors in header order without gaps.
fn write_weights(path: &Path, geometry: Geometry) -> Result<()> {
    let tensors = tensors(geometry);
    let mut header = Map::new();
    let mut offset = 0_usize;
    for tensor in &tensors {
        let end = offset + 2 * tensor.shape.iter().product::<usize>();
        header.insert(
            tensor.name.clone(),
            json!({ "dtype": "BF16", "shape": tensor.shape, "data_offsets": [offset, end] }),
        );
        offset = end;
    }
    let header = serde_json::to_vec(&header)?;
    let partial = path.with_extension("partial");
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&partial)?);
    file.write_all(&u64::try_from(header.len())?.to_le_bytes())?;
    file.write_all(&header)?;
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    for tensor in &tensors {
        let values: usize = tensor.shape.iter().product();
        match tensor.fill {
            Fill::Ones => write_constant(&mut file, values, 1.0)?,
            Fill::Random => write_random(&mut file, values, &mut random)?,
        }
    }
    file.into_inner()
        .map_err(std::io::IntoInnerError::into_error)?
        .sync_all()?;
    std::fs::rename(&partial, path)?;
    Ok(())
}

fn write_constant(file: &mut impl Write, values: usize, value: f32) -> Result<()> {
    let bytes = bf16_bytes(value);
    for _ in 0..values {
        file.write_all(&bytes)?;
    }
    Ok(())
}

/// Uniform over (-a, a) with a = range * sqrt(3), which has the standard deviation `INITIALIZER_RANGE`.
fn write_random(file: &mut impl Write, values: usize, random: &mut ChaCha8Rng) -> Result<()> {
    let half_width = INITIALIZER_RANGE * 3.0_f32.sqrt();
    let scale = half_width / 32_768.0;
    let mut written = 0;
    while written < values {
        let bits = random.next_u64();
        for part in bits.to_le_bytes().chunks_exact(2).take(values - written) {
            let integer = i16::from_le_bytes([part[0], part[1]]);
            file.write_all(&bf16_bytes(f32::from(integer) * scale))?;
        }
        written += 4;
    }
    Ok(())
}

/// bf16 is the upper half of f32; truncation is as good as rounding for random weights.
fn bf16_bytes(value: f32) -> [u8; 2] {
    let [_, _, low, high] = value.to_le_bytes();
    [low, high]
}

/// A sharded copy of the checkpoint `file`: the embedding in the second shard, all else in the first, and the
/// index of both. The data are copied, the headers made anew.
pub(crate) fn write_sharded(file: &Path, dir: &Path) -> Result<()> {
    const EMBEDDING: &str = "model.embed_tokens.weight";
    const SHARDS: [&str; 2] = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    std::fs::create_dir_all(dir)?;
    let mut source = File::open(file)?;
    let mut length = [0; 8];
    source.read_exact(&mut length)?;
    let mut text = vec![0; usize::try_from(u64::from_le_bytes(length))?];
    source.read_exact(&mut text)?;
    let data_start = 8 + text.len() as u64;
    let header: Map<String, Value> = serde_json::from_slice(&text)?;
    let mut weight_map = Map::new();
    for (name, shard) in SHARDS.iter().enumerate() {
        let mut shard_header = Map::new();
        let mut ranges = Vec::new();
        let mut offset = 0;
        for (tensor, entry) in &header {
            if (tensor == EMBEDDING) != (name == 1) {
                continue;
            }
            let at = |index: usize| {
                let value = entry["data_offsets"][index].as_u64();
                value.with_context(|| format!("no offsets of {tensor}"))
            };
            let (start, end) = (at(0)?, at(1)?);
            let mut entry = entry.clone();
            entry["data_offsets"] = json!([offset, offset + end - start]);
            offset += end - start;
            ranges.push((data_start + start, end - start));
            weight_map.insert(tensor.clone(), json!(shard));
            shard_header.insert(tensor.clone(), entry);
        }
        let text = serde_json::to_vec(&shard_header)?;
        let mut copy = BufWriter::with_capacity(1 << 20, File::create(dir.join(shard))?);
        copy.write_all(&u64::try_from(text.len())?.to_le_bytes())?;
        copy.write_all(&text)?;
        for (start, bytes) in ranges {
            source.seek(SeekFrom::Start(start))?;
            std::io::copy(&mut (&source).take(bytes), &mut copy)?;
        }
        copy.flush()?;
    }
    let index = json!({ "metadata": { "total_size": 0 }, "weight_map": weight_map });
    write_json(&dir.join("model.safetensors.index.json"), &index)
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    std::fs::write(path, serde_json::to_vec_pretty(value)?)
        .with_context(|| format!("could not write {}", path.display()))
}
