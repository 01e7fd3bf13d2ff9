//! A BPE tokenizer that starts in milliseconds: vocabulary and merges are flat tables in one mapped
//! file, read where they lie.
//!
//! The file is specified in `docs/format/tokenizer.md`; `layout.rs` holds its byte positions. The
//! crate reads no `tokenizer.json` and no GGUF (that is the packer's work, which describes a
//! tokenizer as a [`TokenizerSpec`]), and trains nothing.
//!
//! Two families are covered, each exactly as its reference implementation has it:
//! *byte-level BPE* (GPT-2, Llama 3, Qwen, SmolLM) and *SentencePiece-style BPE with byte fallback*
//! (Gemma, Llama 2, Phi-3).
//!
//! ```
//! use compact_tokenizer::{AddSpecial, Algorithm, TokenKind, TokenSpec, Tokenizer, TokenizerSpec};
//!
//! let mut spec = TokenizerSpec::new(Algorithm::ByteLevel);
//! spec.tokens = (0..=255u8).map(|byte| TokenSpec::new([byte], TokenKind::Normal)).collect();
//! spec.tokens.push(TokenSpec::new(*b"hi", TokenKind::Normal));
//! spec.merges = compact_tokenizer::Merges::Listed(vec![[u32::from(b'h'), u32::from(b'i'), 256]]);
//!
//! let tokenizer = Tokenizer::from_bytes(spec.to_bytes()?.into())?;
//! assert_eq!(tokenizer.encode("hi!", AddSpecial::No), [256, 33]);
//! assert_eq!(tokenizer.decode(&[256, 33]), "hi!");
//! # Ok::<(), compact_tokenizer::Error>(())
//! ```

mod added;
mod character;
mod decode;
mod encode;
mod error;
pub mod layout;
mod merge;
mod normalise;
mod pre_tokenise;
mod reader;
mod spec;
mod tables;
mod tokenizer;
mod writer;

pub use decode::DecodeStream;
pub use error::Error;
pub use spec::{
    AddedMatching, AddedToken, Algorithm, Merges, Normalise, PreTokenise, TokenKind, TokenSpec,
    TokenizerSpec, UnknownSymbol,
};
pub use tokenizer::{AddSpecial, Tokenizer};
