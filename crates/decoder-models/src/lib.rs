//! Decoder-only language models on candle: hidden states in, hidden states out.
//!
//! A model is three parts that need not live in one place: embedding rows ([`embed_rows`], from
//! bytes that a row store or a matrix hands out), the [`Decoder`] (layers and final norm), and the
//! [`LmHead`]. They know neither token ids nor vocabulary, and no file: weights come through a
//! [`WeightSource`], by Hugging Face name, and stay in their stored form.
//!
//! Families: llama (SmolLM2, Llama 3.x), qwen2, qwen3, gemma3 (text), phi3; see [`Family`].
//!
//! # Arithmetic
//! A row's result has the same bits alone, in a chunk or in the whole sequence: products and
//! attention promise it in `low-bit-kernels`, the operations here are row by row in a fixed order.
//!
//! # Not here
//! Tokenizers, sampling, fetching, batching of several sequences.
//!
//! ```
//! use decoder_models::{DecoderConfig, Family};
//! let config = DecoderConfig::from_json(
//!     r#"{ "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
//!          "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
//!          "vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
//!          "rope_theta": 100000, "tie_word_embeddings": true }"#,
//! )?;
//! assert_eq!((config.family, config.head_dim), (Family::Llama, 64));
//! assert_eq!(decoder_models::tensor_names(&config).len(), 30 * 9 + 1);
//! # Ok::<(), decoder_models::Error>(())
//! ```

mod attention;
mod buffers;
mod config;
mod decoder;
mod embedding;
mod error;
mod gemma3;
mod kv_cache;
mod layer;
mod linear;
mod llama;
mod lm_head;
mod mlp;
mod norm;
mod pass;
mod phi3;
mod qwen2;
mod qwen3;
mod rope;
mod slices;
mod weights;

pub use config::{
    Activation, DecoderConfig, Family, LayerType, RopeConfig, RopeLayout, RopeScaling,
};
pub use decoder::{Decoder, stage_of, tensor_names};
pub use embedding::{embed_rows, embed_rows_into};
pub use error::{Error, What};
pub use kv_cache::{KvCache, KvPrecision};
pub use linear::{Linear, Projection};
pub use lm_head::LmHead;
pub use pass::Pass;
pub use weights::{StoredTensor, Weight, WeightSource};
