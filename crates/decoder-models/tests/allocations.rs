//! A token after another takes no memory: allocations of whole steps are counted, from a row's bytes
//! to its logits. A binary of its own, since the count is the process's.
//!
//! What may still allocate is growth: a cache beyond 1,024 positions grows by half, the scores of
//! attention double, a prompt's buffers are let go after it. Steps here stay within what their
//! sequence began with.
#![allow(unsafe_code, reason = "an allocator that counts cannot be had without")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests may end by panicking, and say what they counted"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use decoder_models::{
    Decoder, DecoderConfig, Error, KvPrecision, LmHead, StoredTensor, Weight, WeightSource,
    embed_rows_into,
};
use gkq_v2::Dtype;
use low_bit_kernels::{WeightType, quantise_rows};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system's allocator; counting touches no memory of its callers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's duties are the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HIDDEN: usize = 256;
const INNER: usize = 2048;
const VOCABULARY: usize = 2048;
/// Rank of the factors of low-rank models.
const RANK: usize = 64;
const PROMPT: usize = 300;
const STEPS: usize = 20;
const ROUNDS: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Dense,
    LowRank,
}

/// Weights of any name, wide enough that products and attention are cut over two threads.
struct Made(Form);

impl WeightSource for Made {
    fn weight(&self, name: &str) -> Result<Option<Weight>, Error> {
        let part = |part: &str| name.contains(part);
        let shape = if part("norm") {
            let width = if part("q_norm") || part("k_norm") {
                64
            } else {
                HIDDEN
            };
            return Ok(Some(dense(Dtype::F32, vec![width])));
        } else if part("embed_tokens") {
            vec![VOCABULARY, HIDDEN]
        } else if part("q_proj.weight") || part("o_proj.weight") {
            vec![HIDDEN, HIDDEN]
        } else if part("k_proj.weight") || part("v_proj.weight") {
            vec![HIDDEN / 2, HIDDEN]
        } else if part("gate_proj.weight") || part("up_proj.weight") {
            vec![INNER, HIDDEN]
        } else if part("down_proj.weight") {
            vec![HIDDEN, INNER]
        } else {
            return Ok(None);
        };
        let [rows, cols] = shape[..] else {
            panic!("{name}")
        };
        Ok(Some(match self.0 {
            Form::LowRank if part("_proj") => Weight::LowRank {
                u: stored(Dtype::Q8_0, vec![rows, RANK]),
                s: stored(Dtype::F32, vec![RANK]),
                vt: stored(Dtype::Q8_0, vec![RANK, cols]),
            },
            _ => dense(Dtype::Q8_0, shape),
        }))
    }
}

fn dense(dtype: Dtype, shape: Vec<usize>) -> Weight {
    let StoredTensor {
        dtype,
        shape,
        bytes,
    } = stored(dtype, shape);
    Weight::Dense {
        dtype,
        shape,
        bytes,
    }
}

fn stored(dtype: Dtype, shape: Vec<usize>) -> StoredTensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 500.0)
        .collect();
    let weight_type = match dtype {
        Dtype::Q8_0 => WeightType::Q8_0,
        _ => WeightType::F32,
    };
    let cols = *shape.last().unwrap();
    let bytes = quantise_rows(weight_type, &values, cols).unwrap().into();
    StoredTensor {
        dtype,
        shape,
        bytes,
    }
}

fn config(family: &str, more: &str) -> DecoderConfig {
    DecoderConfig::from_json(&format!(
        r#"{{ "model_type": "{family}", "hidden_size": {HIDDEN}, "intermediate_size": {INNER},
             "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
             "vocab_size": {VOCABULARY}, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
             "rope_theta": 10000, "tie_word_embeddings": true {more} }}"#
    ))
    .unwrap()
}

/// Allocations of rounds of [`STEPS`] steps each, after a prompt, on a pool of `threads`.
fn allocations(config: &DecoderConfig, form: Form, threads: usize) -> Vec<u64> {
    let source = Made(form);
    let decoder = Decoder::load(config, &source).unwrap();
    let embedding = source.weight("model.embed_tokens.weight").unwrap().unwrap();
    let Weight::Dense { dtype, bytes, .. } = embedding.clone() else {
        panic!("an embedding of factors")
    };
    let row_bytes = bytes.len() / VOCABULARY;
    let head = LmHead::new(embedding, config).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(|| {
        let mut cache = decoder.new_cache(1000, KvPrecision::F16);
        let mut prompt = vec![0.1; PROMPT * HIDDEN];
        decoder.forward_in_place(&mut prompt, &mut cache).unwrap();
        let (mut hidden, mut logits) = (vec![0.0; HIDDEN], Vec::new());
        let mut step = |index: usize| {
            let id = index * 7 % VOCABULARY;
            let row = &bytes[id * row_bytes..][..row_bytes];
            embed_rows_into(dtype, &[row], config, &mut hidden).unwrap();
            decoder.forward_in_place(&mut hidden, &mut cache).unwrap();
            head.logits_into(&hidden, &mut logits).unwrap();
        };
        (0..ROUNDS)
            .map(|round| {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                (round * STEPS..(round + 1) * STEPS).for_each(&mut step);
                ALLOCATIONS.load(Ordering::Relaxed) - before
            })
            .collect()
    })
}

#[test]
fn a_token_takes_no_memory() {
    let gemma3 = r#", "sliding_window": 32, "sliding_window_pattern": 3, "query_pre_attn_scalar": 64,
        "rope_local_base_freq": 10000, "hidden_activation": "gelu_pytorch_tanh""#;
    for (family, more, form) in [
        ("llama", "", Form::Dense),
        ("llama", "", Form::LowRank),
        ("gemma3_text", gemma3, Form::Dense),
    ] {
        let config = config(family, more);
        for threads in [1, 2] {
            let rounds = allocations(&config, form, threads);
            eprintln!("{family} {form:?}, {threads} threads: {rounds:?}");
            if threads == 1 {
                // The first round takes the buffers.
                let later = &rounds[1..];
                assert!(
                    later.iter().all(|count| *count == 0),
                    "{family}: {rounds:?}"
                );
            } else {
                // Which thread meets a shape first is chance; once both have, there is nothing left.
                assert!(rounds.contains(&0), "{family} {form:?}: {rounds:?}");
            }
        }
    }
}
