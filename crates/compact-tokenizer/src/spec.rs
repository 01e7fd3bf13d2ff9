//! A tokenizer described in plain values: what a packer fills in and `writer.rs` turns into a file.
//! No behaviour here; what each choice does is specified in `docs/format/tokenizer.md`.

/// How text becomes the first symbols, and what token texts mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Token texts are raw bytes (not the printable alphabet of `tokenizer.json`), every byte of the
    /// text is a symbol.
    ByteLevel,
    /// Token texts are UTF-8 with U+2581 for a space; every character is a symbol, one without a
    /// token becomes its bytes' tokens.
    SentencePiece,
}

/// What an id stands for. The codes are GGUF's `tokenizer.ggml.token_type`, 0 added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// No token has this id.
    Hole,
    /// A piece of text.
    Normal,
    /// Stands for a symbol without a token.
    Unknown,
    /// Steers the model; never shown in decoded text.
    Control,
    /// Added by a user; shown in decoded text.
    UserDefined,
    /// Reserved by the model's makers.
    Unused,
    /// One byte, written `<0xHH>`.
    Byte,
}

/// One id of the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSpec {
    /// The bytes it stands for, as [`Algorithm`] says; empty for a hole.
    pub text: Vec<u8>,
    /// What it stands for.
    pub kind: TokenKind,
    /// Whether text can become this id by merging or by lookup. False for holes and for tokens that
    /// are only ever found as added tokens. Texts of reachable tokens are unique.
    pub reachable: bool,
}

impl TokenSpec {
    /// A token that merging can reach.
    pub fn new(text: impl Into<Vec<u8>>, kind: TokenKind) -> Self {
        Self {
            text: text.into(),
            kind,
            reachable: true,
        }
    }

    /// A token that only the added-token table can reach.
    pub fn added_only(text: impl Into<Vec<u8>>, kind: TokenKind) -> Self {
        Self {
            text: text.into(),
            kind,
            reachable: false,
        }
    }

    /// An id without a token.
    pub fn hole() -> Self {
        Self {
            text: Vec::new(),
            kind: TokenKind::Hole,
            reachable: false,
        }
    }
}

/// Which neighbours merge, and in which order.
#[derive(Clone, Debug, PartialEq)]
pub enum Merges {
    /// `[left id, right id, merged id]`, the most urgent first.
    Listed(Vec<[u32; 3]>),
    /// One score per id: any two neighbours whose joined text is a reachable token merge, the
    /// highest score first, then the leftmost.
    Scored(Vec<f32>),
}

/// A token that is looked for before the text is merged. Field names are Hugging Face's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedToken {
    /// Its id; the text is the vocabulary's.
    pub id: u32,
    /// Left out of decoded text.
    pub special: bool,
    /// Takes the white space before it.
    pub lstrip: bool,
    /// Takes the white space after it.
    pub rstrip: bool,
    /// Looked for in the normalised text.
    pub normalized: bool,
    /// Only where no word character touches it.
    pub single_word: bool,
}

impl AddedToken {
    /// A token that is matched verbatim in the raw text.
    pub fn plain(id: u32) -> Self {
        Self {
            id,
            special: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            single_word: false,
        }
    }
}

/// Which of two overlapping added tokens is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedMatching {
    /// The one that begins first, then the longer (Hugging Face).
    LeftmostLongest,
    /// The longer, wherever it begins (llama.cpp).
    LongestFirst,
}

/// A step that changes a stretch of text between added tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalise {
    /// Canonical composition.
    Nfc,
    /// Compatibility composition.
    Nfkc,
    /// A space becomes U+2581.
    EscapeSpaces,
    /// U+2581 goes before each stretch.
    Prepend,
    /// U+2581 goes before each stretch that does not begin with it.
    PrependMissing,
    /// As [`Normalise::PrependMissing`], only at the start of the text.
    PrependFirst,
}

/// A step that cuts text into words; merges never cross a word's edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreTokenise {
    /// The GPT-2 pattern.
    Gpt2,
    /// The Llama 3 pattern.
    Llama3,
    /// The Qwen 2 pattern.
    Qwen2,
    /// The GPT-4o pattern.
    Gpt4o,
    /// Every digit alone.
    Digits,
    /// Runs of digits alone.
    DigitRuns,
    /// A word begins at every U+2581.
    Metaspace,
}

/// What becomes of a symbol that has no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownSymbol {
    /// It vanishes before merging, its neighbours may merge (Hugging Face without `unk_token`).
    Skip,
    /// It has no id but keeps its neighbours apart (llama.cpp).
    Barrier,
    /// It becomes the unknown id.
    Each,
    /// A run of them becomes one unknown id (`fuse_unk`).
    Fused,
}

/// A whole tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizerSpec {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The vocabulary; the index is the id.
    pub tokens: Vec<TokenSpec>,
    /// The merges.
    pub merges: Merges,
    /// A word that is a token as a whole is not merged.
    pub ignore_merges: bool,
    /// Added tokens, in any order.
    pub added: Vec<AddedToken>,
    /// How overlapping added tokens are resolved.
    pub added_matching: AddedMatching,
    /// Normaliser steps, in order.
    pub normalise: Vec<Normalise>,
    /// Pre-tokeniser steps, in order; each cuts the words of the one before.
    pub pre_tokenise: Vec<PreTokenise>,
    /// Symbols without a token.
    pub unknown: UnknownSymbol,
    /// Begin of sequence.
    pub bos_id: Option<u32>,
    /// Ends of sequence; the first is the one that [`TokenizerSpec::add_eos`] adds.
    pub eos_ids: Vec<u32>,
    /// Padding.
    pub pad_id: Option<u32>,
    /// Unknown symbol.
    pub unk_id: Option<u32>,
    /// Put the begin of sequence before the text.
    pub add_bos: bool,
    /// Put the end of sequence after the text.
    pub add_eos: bool,
    /// Drop one space at the start of decoded text.
    pub strip_leading_space: bool,
}

impl TokenizerSpec {
    /// An empty tokenizer that normalises, cuts and adds nothing.
    pub fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            tokens: Vec::new(),
            merges: Merges::Listed(Vec::new()),
            ignore_merges: false,
            added: Vec::new(),
            added_matching: AddedMatching::LeftmostLongest,
            normalise: Vec::new(),
            pre_tokenise: Vec::new(),
            unknown: UnknownSymbol::Skip,
            bos_id: None,
            eos_ids: Vec::new(),
            pad_id: None,
            unk_id: None,
            add_bos: false,
            add_eos: false,
            strip_leading_space: false,
        }
    }
}
