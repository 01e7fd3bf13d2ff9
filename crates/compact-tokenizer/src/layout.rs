//! The only byte positions and codes of the compact tokenizer file. No parsing here: `reader.rs`
//! checks, `writer.rs` writes. Specification: `docs/format/tokenizer.md`.

/// First eight bytes. The line end shows a file that was moved as text.
pub const MAGIC: [u8; 8] = *b"GKQTOK\r\n";
/// The only version.
pub const VERSION: u32 = 1;
/// Bytes before the first table.
pub const HEADER_BYTES: usize = 96;

/// `u32`: format version.
pub const VERSION_AT: usize = 8;
/// `u32`: [`ALGORITHM_BYTE_LEVEL`] or [`ALGORITHM_SENTENCE_PIECE`].
pub const ALGORITHM_AT: usize = 12;
/// `u32`: the flag bits below.
pub const FLAGS_AT: usize = 16;
/// `u32`: one of the `UNKNOWN_*` codes.
pub const UNKNOWN_AT: usize = 20;
/// `u32`: one more than the largest token id.
pub const VOCABULARY_LEN_AT: usize = 24;
/// `u32`: entries of the lookup table.
pub const LOOKUP_LEN_AT: usize = 28;
/// `u32`: entries of the merge table; 0 with [`FLAG_SCORED`].
pub const MERGE_COUNT_AT: usize = 32;
/// `u32`: entries of the added-token table.
pub const ADDED_COUNT_AT: usize = 36;
/// `u32`: entries of the end-of-sequence table.
pub const EOS_COUNT_AT: usize = 40;
/// `u32`: begin-of-sequence id or [`NO_ID`].
pub const BOS_AT: usize = 44;
/// `u32`: padding id or [`NO_ID`].
pub const PAD_AT: usize = 48;
/// `u32`: unknown-symbol id or [`NO_ID`].
pub const UNK_AT: usize = 52;
/// [`STEP_SLOTS`] bytes: normaliser steps in order, then zeros.
pub const NORMALISE_AT: usize = 56;
/// [`STEP_SLOTS`] bytes: pre-tokeniser steps in order, then zeros.
pub const PRE_TOKENISE_AT: usize = 64;
/// `u32`: bytes of all token texts together.
pub const TEXT_BYTES_AT: usize = 72;
/// Zeros up to [`HEADER_BYTES`].
pub const RESERVED_AT: usize = 76;

/// Steps that a header has room for.
pub const STEP_SLOTS: usize = 8;
/// An id that is not there.
pub const NO_ID: u32 = u32::MAX;

/// Texts are bytes, every byte is a symbol.
pub const ALGORITHM_BYTE_LEVEL: u32 = 1;
/// Texts are UTF-8 pieces with U+2581 for a space, a character without a piece becomes byte tokens.
pub const ALGORITHM_SENTENCE_PIECE: u32 = 2;

/// A pre-tokenised word that is in the lookup table is its id, whatever the merges say.
pub const FLAG_IGNORE_MERGES: u32 = 1;
/// Any two neighbours whose joined text is in the lookup table merge, by the rank of the result.
pub const FLAG_SCORED: u32 = 1 << 1;
/// The begin-of-sequence id goes before the text where special tokens are asked for.
pub const FLAG_ADD_BOS: u32 = 1 << 2;
/// The first end-of-sequence id goes after the text where special tokens are asked for.
pub const FLAG_ADD_EOS: u32 = 1 << 3;
/// Added tokens are found longest first over the whole text, not leftmost first.
pub const FLAG_LONGEST_FIRST: u32 = 1 << 4;
/// Decoding a whole text drops one space at its start (the encoder put it there).
pub const FLAG_STRIP_LEADING_SPACE: u32 = 1 << 5;
/// Every flag of this version; any other bit is refused.
pub const FLAGS: u32 = 0x3f;

/// A symbol without a token vanishes before merging.
pub const UNKNOWN_SKIP: u32 = 0;
/// A symbol without a token has no id but keeps its neighbours apart.
pub const UNKNOWN_BARRIER: u32 = 1;
/// Each symbol without a token becomes the unknown id.
pub const UNKNOWN_EACH: u32 = 2;
/// A run of symbols without a token becomes one unknown id.
pub const UNKNOWN_FUSED: u32 = 3;

/// Normaliser: canonical composition (NFC).
pub const NORMALISE_NFC: u8 = 1;
/// Normaliser: compatibility composition (NFKC).
pub const NORMALISE_NFKC: u8 = 2;
/// Normaliser: U+0020 becomes U+2581.
pub const NORMALISE_ESCAPE_SPACES: u8 = 3;
/// Normaliser: U+2581 goes before every stretch of text.
pub const NORMALISE_PREPEND: u8 = 4;
/// Normaliser: U+2581 goes before every stretch of text that does not begin with it.
pub const NORMALISE_PREPEND_MISSING: u8 = 5;
/// Normaliser: as [`NORMALISE_PREPEND_MISSING`], but only at the very start of the text.
pub const NORMALISE_PREPEND_FIRST: u8 = 6;

/// Pre-tokeniser: the GPT-2 pattern.
pub const PRE_TOKENISE_GPT2: u8 = 1;
/// Pre-tokeniser: the Llama 3 pattern (digits in groups of up to three).
pub const PRE_TOKENISE_LLAMA3: u8 = 2;
/// Pre-tokeniser: the Qwen 2 pattern (single digits).
pub const PRE_TOKENISE_QWEN2: u8 = 3;
/// Pre-tokeniser: the GPT-4o pattern (words split by case).
pub const PRE_TOKENISE_GPT4O: u8 = 4;
/// Pre-tokeniser: every digit stands alone.
pub const PRE_TOKENISE_DIGITS: u8 = 5;
/// Pre-tokeniser: runs of digits stand alone.
pub const PRE_TOKENISE_DIGIT_RUNS: u8 = 6;
/// Pre-tokeniser: every U+2581 begins a piece.
pub const PRE_TOKENISE_METASPACE: u8 = 7;

/// Bytes of one entry of the id tables (offsets, lookup, ranks, row starts, end of sequence).
pub const ID_BYTES: usize = 4;
/// Bytes of one merge: right id, merged id, rank.
pub const MERGE_BYTES: usize = 12;
/// Bytes of one added token: id, flags.
pub const ADDED_BYTES: usize = 8;

/// Added token: left out of decoded text.
pub const ADDED_SPECIAL: u32 = 1;
/// Added token: takes the white space before it.
pub const ADDED_LSTRIP: u32 = 1 << 1;
/// Added token: takes the white space after it.
pub const ADDED_RSTRIP: u32 = 1 << 2;
/// Added token: looked for in the normalised text.
pub const ADDED_NORMALIZED: u32 = 1 << 3;
/// Added token: only found where no word character touches it.
pub const ADDED_SINGLE_WORD: u32 = 1 << 4;
/// Every flag of an added token.
pub const ADDED_FLAGS: u32 = 0x1f;

/// Token kind: no token has this id.
pub const KIND_HOLE: u8 = 0;
/// Token kind: a piece of text.
pub const KIND_NORMAL: u8 = 1;
/// Token kind: stands for a symbol without a token.
pub const KIND_UNKNOWN: u8 = 2;
/// Token kind: steers the model, never shown.
pub const KIND_CONTROL: u8 = 3;
/// Token kind: added by a user, shown.
pub const KIND_USER_DEFINED: u8 = 4;
/// Token kind: reserved by the model's makers.
pub const KIND_UNUSED: u8 = 5;
/// Token kind: one byte of a character without a piece, written `<0xHH>`.
pub const KIND_BYTE: u8 = 6;
