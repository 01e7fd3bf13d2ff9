//! Files that break a rule: each is refused by its rule's name, none panics, none allocates for
//! counts that the file has no bytes for.

use compact_tokenizer::{
    AddSpecial, Error, Merges, TokenKind, TokenSpec, Tokenizer, TokenizerSpec, layout,
};
use proptest::prelude::*;

use crate::samples::{byte_level, sentence_piece};

fn load(bytes: Vec<u8>) -> Result<Tokenizer, Error> {
    Tokenizer::from_bytes(bytes.into())
}

/// Overwrites a word of a good file and expects a message that holds `message`.
#[track_caller]
fn assert_rejects(spec: &TokenizerSpec, at: usize, word: u32, message: &str) {
    let mut bytes = spec.to_bytes().unwrap();
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    let error = load(bytes).unwrap_err().to_string();
    assert!(error.contains(message), "{error:?} should hold {message:?}");
}

#[test]
fn header_fields_are_checked() {
    let spec = byte_level();
    let check = |at, word, message| assert_rejects(&spec, at, word, message);
    check(0, 0, "not a compact tokenizer");
    check(
        layout::VERSION_AT,
        2,
        "version 2 is not supported (supported: 1)",
    );
    check(
        layout::ALGORITHM_AT,
        3,
        "algorithm: expected 1 or 2, found 3",
    );
    check(
        layout::FLAGS_AT,
        1 << 6,
        "flags: expected no bit outside 0x3f, found 0x40",
    );
    check(
        layout::UNKNOWN_AT,
        4,
        "unknown-symbol policy: expected 0 to 3, found 4",
    );
    check(
        layout::UNKNOWN_AT,
        layout::UNKNOWN_EACH,
        "unknown id: expected an id, because a flag or policy uses it",
    );
    check(
        layout::NORMALISE_AT,
        0x0000_0100,
        "normaliser step 1: expected zero after the last step, found 1",
    );
    check(
        layout::PRE_TOKENISE_AT,
        99,
        "pre-tokeniser step 0: expected a code of this version, found 99",
    );
    check(layout::RESERVED_AT, 1, "reserved bytes: expected zeros");
    check(
        layout::VOCABULARY_LEN_AT,
        0,
        "vocabulary length: expected 1 to 4294967294, found 0",
    );
    check(
        layout::BOS_AT,
        5_000,
        "begin-of-sequence id: expected an id below 264, found 5000",
    );
    check(
        layout::PAD_AT,
        260,
        "padding id: expected an id that has a token, found 260, a hole",
    );
    check(
        layout::BOS_AT,
        layout::NO_ID,
        "begin-of-sequence id: expected an id, because",
    );
}

#[test]
fn counts_are_compared_with_the_length() {
    let spec = byte_level();
    let counts = [
        layout::VOCABULARY_LEN_AT,
        layout::LOOKUP_LEN_AT,
        layout::MERGE_COUNT_AT,
        layout::ADDED_COUNT_AT,
        layout::EOS_COUNT_AT,
        layout::TEXT_BYTES_AT,
    ];
    for at in counts {
        for word in [u32::MAX - 1, 3_000_000_000, 1_000] {
            assert_rejects(&spec, at, word, "its header asks for");
        }
    }
    assert_rejects(
        &sentence_piece(),
        layout::MERGE_COUNT_AT,
        1,
        "merge count of a scored tokenizer",
    );
}

#[test]
fn tables_are_checked() {
    let spec = byte_level();
    let tokens = spec.tokens.len();
    let offsets = layout::HEADER_BYTES;
    let lookup = offsets + (tokens + 1) * 4;
    let rows = lookup + spec.tokens.iter().filter(|token| token.reachable).count() * 4;
    let merges = rows + (tokens + 1) * 4;
    let added = merges + 4 * layout::MERGE_BYTES;
    let eos = added + 3 * layout::ADDED_BYTES;
    let check = |at, word, message| assert_rejects(&spec, at, word, message);
    check(offsets, 1, "text offset 0: expected 0, found 1");
    check(offsets + 8, 0, "text offset 2: expected 1 to");
    check(offsets + 4 * 261, 90_000, "text offset 261: expected");
    check(
        lookup,
        700,
        "lookup entry 0: expected an id below 264, found 700",
    );
    check(
        lookup + 4,
        0,
        "lookup entry 1: expected texts in strictly ascending order",
    );
    check(rows, 1, "merge row 0: expected to begin at 0");
    check(rows + 4 * tokens, 9, "merge row 263: expected to begin at");
    check(
        merges,
        264,
        "right id of merge 0: expected an id below 264, found 264",
    );
    check(
        merges + 4,
        260,
        "merged id of merge 0: expected an id that has a token",
    );
    check(added, 264, "added token 0: expected an id below 264");
    check(
        added + 4,
        32,
        "flags of added token 0: expected no bit outside 0x1f, found 0x20",
    );
    check(
        added + 8,
        263,
        "added token 1: expected texts in strictly ascending order",
    );
    check(
        eos,
        264,
        "end-of-sequence entry 0: expected an id below 264",
    );
    check(
        eos + 4,
        0x0101_0107,
        "kind of token 0: expected 0 to 6, found 7",
    );
    check(
        eos + 4,
        0x0101_0100,
        "text of token 0: expected empty exactly where the token is a hole",
    );
}

#[test]
fn added_tokens_are_text() {
    let mut spec = byte_level();
    spec.added.push(compact_tokenizer::AddedToken::plain(0xff));
    let error = spec.to_bytes().unwrap_err().to_string();
    assert!(
        error.contains("text of added token 3: expected UTF-8"),
        "{error}"
    );
}

#[test]
fn descriptions_that_no_file_can_hold_are_refused() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut TokenizerSpec), message: &str) {
        let mut spec = byte_level();
        change(&mut spec);
        let error = spec.to_bytes().unwrap_err().to_string();
        assert!(error.contains(message), "{error:?} should hold {message:?}");
    }
    let listed = |merges: &[[u32; 3]]| Merges::Listed(merges.to_vec());
    check(
        |spec| spec.tokens.push(TokenSpec::new("the", TokenKind::Normal)),
        "token 264: expected a text of its own",
    );
    check(
        |spec| spec.added.push(compact_tokenizer::AddedToken::plain(260)),
        "added token: expected an id that has a token, found 260",
    );
    check(
        |spec| spec.merges = listed(&[[1, 2, 256]]),
        "merge 0: expected a token with the text",
    );
    check(
        |spec| spec.merges = listed(&[[116, 104, 256], [116, 104, 256]]),
        "merge 1: expected a new pair",
    );
    check(
        |spec| spec.merges = listed(&[[116, 9_999, 256]]),
        "merge 0: expected an id that has a token, found 9999",
    );
    check(
        |spec| spec.merges = Merges::Scored(vec![0.0]),
        "scores: expected one for each of the 264 tokens",
    );
    check(
        |spec| spec.merges = Merges::Scored(vec![f32::NAN; 264]),
        "score of token 0: expected a number, found NaN",
    );
    check(
        |spec| spec.pre_tokenise = vec![compact_tokenizer::PreTokenise::Digits; 9],
        "pre-tokeniser steps: expected at most 8, found 9",
    );
    check(
        |spec| spec.tokens.clear(),
        "expected an id that has a token",
    );
}

#[test]
fn every_prefix_is_refused() {
    for spec in [byte_level(), sentence_piece()] {
        let whole = spec.to_bytes().unwrap();
        for len in 0..whole.len() {
            assert!(
                load(whole[..len].to_vec()).is_err(),
                "prefix of {len} bytes"
            );
        }
        let longer = [whole.as_slice(), &[0]].concat();
        assert!(matches!(load(longer), Err(Error::Length { .. })));
    }
}

#[test]
fn equal_descriptions_give_equal_bytes() {
    let mut turned = byte_level();
    turned.added.reverse();
    assert_eq!(turned.to_bytes().unwrap(), byte_level().to_bytes().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

    /// What still loads after damage can be used without a panic, if with other ids.
    #[test]
    fn damage_never_panics(
        scored in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        text in any::<String>(),
        ids in prop::collection::vec(any::<u16>(), 0..8),
    ) {
        let spec = if scored { sentence_piece() } else { byte_level() };
        let mut bytes = spec.to_bytes().unwrap();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(tokenizer) = load(bytes) {
            let text = format!("{text} hello\n\n\n the an<|begin|> <tool> ▁ 12 ñb");
            let encoded = tokenizer.encode(&text, AddSpecial::Yes);
            tokenizer.decode(&encoded);
            tokenizer.decode(&ids.iter().map(|&id| u32::from(id)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(load(noise.clone()).is_err());
        let mut framed = byte_level().to_bytes().unwrap();
        framed.truncate(layout::VOCABULARY_LEN_AT);
        framed.extend(noise);
        prop_assert!(load(framed).is_err());
    }
}
