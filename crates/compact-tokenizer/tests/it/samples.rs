//! Small tokenizers that exercise every part of the format.

use compact_tokenizer::{
    AddedMatching, AddedToken, Algorithm, Merges, Normalise, PreTokenise, TokenKind, TokenSpec,
    Tokenizer, TokenizerSpec, UnknownSymbol,
};

pub(crate) fn load(spec: &TokenizerSpec) -> Tokenizer {
    Tokenizer::from_bytes(spec.to_bytes().unwrap().into()).unwrap()
}

/// All bytes, ` the` by merges, two control tokens, one user token.
pub(crate) fn byte_level() -> TokenizerSpec {
    let mut spec = TokenizerSpec::new(Algorithm::ByteLevel);
    spec.tokens = (0..=255_u8)
        .map(|byte| TokenSpec::new([byte], TokenKind::Normal))
        .collect();
    for text in ["th", "the", " the", "an"] {
        spec.tokens.push(TokenSpec::new(text, TokenKind::Normal));
    }
    let (t, h, e, a, n) = (
        u32::from(b't'),
        u32::from(b'h'),
        u32::from(b'e'),
        u32::from(b'a'),
        u32::from(b'n'),
    );
    spec.merges = Merges::Listed(vec![
        [t, h, 256],
        [256, e, 257],
        [u32::from(b' '), 257, 258],
        [a, n, 259],
    ]);
    spec.tokens.push(TokenSpec::hole());
    spec.tokens
        .push(TokenSpec::added_only("<|end|>", TokenKind::Control));
    spec.tokens
        .push(TokenSpec::added_only("<|begin|>", TokenKind::Control));
    spec.tokens
        .push(TokenSpec::added_only("<tool>", TokenKind::UserDefined));
    spec.added = vec![
        AddedToken {
            special: true,
            ..AddedToken::plain(261)
        },
        AddedToken {
            special: true,
            rstrip: true,
            ..AddedToken::plain(262)
        },
        AddedToken::plain(263),
    ];
    spec.pre_tokenise = vec![PreTokenise::Gpt2];
    spec.bos_id = Some(262);
    spec.eos_ids = vec![261];
    spec.add_bos = true;
    spec
}

/// Byte tokens, a few letters, scores in id order.
pub(crate) fn sentence_piece() -> TokenizerSpec {
    let mut spec = TokenizerSpec::new(Algorithm::SentencePiece);
    spec.tokens = vec![
        TokenSpec::new("<unk>", TokenKind::Unknown),
        TokenSpec::new("<s>", TokenKind::Control),
        TokenSpec::new("</s>", TokenKind::Control),
    ];
    for byte in 0..=255_u8 {
        spec.tokens
            .push(TokenSpec::new(format!("<0x{byte:02X}>"), TokenKind::Byte));
    }
    let pieces = [
        "▁h", "el", "▁hel", "lo", "▁hello", "▁", "h", "e", "l", "o", "é", "ñb",
    ];
    spec.tokens
        .extend(pieces.map(|piece| TokenSpec::new(piece, TokenKind::Normal)));
    let count = spec.tokens.len();
    spec.tokens
        .push(TokenSpec::new("\n\n", TokenKind::UserDefined));
    spec.tokens
        .push(TokenSpec::new("\n\n\n", TokenKind::UserDefined));
    spec.merges = Merges::Scored((0..count + 2).map(|id| -(id as f32)).collect());
    spec.added = (0..3)
        .map(|id| AddedToken {
            special: true,
            ..AddedToken::plain(id)
        })
        .collect();
    spec.added
        .extend([count as u32, count as u32 + 1].map(AddedToken::plain));
    spec.added_matching = AddedMatching::LongestFirst;
    spec.normalise = vec![Normalise::EscapeSpaces, Normalise::Prepend];
    spec.unknown = UnknownSymbol::Each;
    spec.unk_id = Some(0);
    spec.bos_id = Some(1);
    spec.eos_ids = vec![2];
    spec.add_bos = true;
    spec.add_eos = true;
    spec.strip_leading_space = true;
    spec
}
