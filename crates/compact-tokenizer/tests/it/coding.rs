//! Encoding and decoding through the public interface. Agreement with other implementations is
//! tested where the conversions are, in the packer.

use compact_tokenizer::{
    AddSpecial, AddedMatching, AddedToken, Algorithm, DecodeStream, Merges, Normalise, TokenKind,
    TokenSpec, TokenizerSpec, UnknownSymbol,
};
use proptest::prelude::*;

use crate::samples::{byte_level, load, sentence_piece};

#[test]
fn byte_level_text_is_merged_within_words() {
    let tokenizer = load(&byte_level());
    assert_eq!(tokenizer.encode("the the", AddSpecial::No), [257, 258]);
    assert_eq!(tokenizer.encode("the", AddSpecial::Yes), [262, 257]);
    assert_eq!(tokenizer.encode("", AddSpecial::Yes), [262]);
    assert_eq!(
        tokenizer.encode("an<|end|>an", AddSpecial::No),
        [259, 261, 259]
    );
    assert_eq!(
        tokenizer.encode("<|begin|>  \n an", AddSpecial::No),
        [262, 259],
        "takes the space after it"
    );
    assert_eq!(
        tokenizer.decode(&[262, 257, 258, 261, 263]),
        "the the<tool>",
        "special tokens are not shown"
    );
    assert_eq!(
        tokenizer.decode(&[260, 9_999]),
        "",
        "ids without a token contribute nothing"
    );
}

#[test]
fn sentence_piece_text_is_one_word() {
    let tokenizer = load(&sentence_piece());
    let id = |text: &str| tokenizer.token_id(text).unwrap();
    assert_eq!(
        tokenizer.encode("hello", AddSpecial::Yes),
        [1, id("▁hello"), 2]
    );
    assert_eq!(tokenizer.encode("é", AddSpecial::No), [id("▁"), id("é")]);
    assert_eq!(
        tokenizer.encode("ñ", AddSpecial::No),
        [id("▁"), id("<0xC3>"), id("<0xB1>")]
    );
    assert_eq!(
        tokenizer.encode("ñb", AddSpecial::No),
        [id("▁"), id("ñb")],
        "a character without a token may still merge"
    );
    assert_eq!(
        tokenizer.encode("\n\n\n\n\n", AddSpecial::No),
        [id("\n\n\n"), id("\n\n")],
        "longest first"
    );
    assert_eq!(
        tokenizer.decode(&[1, id("▁hello"), id("▁hello"), 2]),
        "hello hello"
    );
    assert_eq!(
        tokenizer.token_text(id("▁hello")).as_deref(),
        Some(" hello")
    );
    assert_eq!(
        tokenizer.token_bytes(id("<0xC3>")).as_deref(),
        Some(&[0xc3][..])
    );
}

#[test]
fn overlapping_added_tokens_follow_the_matching_order() {
    let mut spec = byte_level();
    let base = spec.tokens.len() as u32;
    for text in ["ab", "bcd"] {
        spec.tokens
            .push(TokenSpec::added_only(text, TokenKind::UserDefined));
    }
    spec.added.extend([base, base + 1].map(AddedToken::plain));
    let (c, a) = (u32::from(b'c'), u32::from(b'a'));
    assert_eq!(
        load(&spec).encode("abcd", AddSpecial::No),
        [base, c, u32::from(b'd')]
    );
    spec.added_matching = AddedMatching::LongestFirst;
    assert_eq!(load(&spec).encode("abcd", AddSpecial::No), [a, base + 1]);
}

#[test]
fn flags_of_added_tokens_are_obeyed() {
    let mut spec = byte_level();
    let base = spec.tokens.len() as u32;
    for text in ["[L]", "word", "[n]"] {
        spec.tokens
            .push(TokenSpec::added_only(text, TokenKind::UserDefined));
    }
    spec.added.push(AddedToken {
        lstrip: true,
        ..AddedToken::plain(base)
    });
    spec.added.push(AddedToken {
        single_word: true,
        ..AddedToken::plain(base + 1)
    });
    spec.added.push(AddedToken {
        normalized: true,
        ..AddedToken::plain(base + 2)
    });
    spec.normalise = vec![Normalise::Nfkc];
    let tokenizer = load(&spec);
    assert_eq!(tokenizer.encode("an \n [L]", AddSpecial::No), [259, base]);
    assert_eq!(tokenizer.encode("word", AddSpecial::No), [base + 1]);
    assert_ne!(tokenizer.encode("words", AddSpecial::No)[0], base + 1);
    // The full-width brackets become plain ones before the normalised tokens are looked for.
    assert_eq!(
        tokenizer.encode("\u{ff3b}n\u{ff3d}", AddSpecial::No),
        [base + 2]
    );
}

#[test]
fn symbols_without_a_token_follow_the_policy() {
    let check = |unknown: UnknownSymbol, expected: &[u32]| {
        let mut spec = TokenizerSpec::new(Algorithm::ByteLevel);
        spec.tokens = ["a", "b", "ab", "?"]
            .map(|text| TokenSpec::new(text, TokenKind::Normal))
            .to_vec();
        spec.merges = Merges::Listed(vec![[0, 1, 2]]);
        spec.unk_id = Some(3);
        spec.unknown = unknown;
        assert_eq!(
            load(&spec).encode("axyb", AddSpecial::No),
            expected,
            "{unknown:?}"
        );
    };
    check(UnknownSymbol::Skip, &[2]);
    check(UnknownSymbol::Barrier, &[0, 1]);
    check(UnknownSymbol::Each, &[0, 3, 3, 1]);
    check(UnknownSymbol::Fused, &[0, 3, 1]);
}

#[test]
fn whole_words_may_pass_by_the_merges() {
    let mut spec = byte_level();
    spec.tokens.push(TokenSpec::new(" and", TokenKind::Normal));
    let id = spec.tokens.len() as u32 - 1;
    assert_ne!(load(&spec).encode(" and", AddSpecial::No), [id]);
    spec.ignore_merges = true;
    assert_eq!(load(&spec).encode(" and", AddSpecial::No), [id]);
}

#[test]
fn a_stream_never_splits_a_character() {
    let tokenizer = load(&byte_level());
    let mut stream = DecodeStream::new(&tokenizer);
    let pieces: Vec<Option<String>> = "é👍"
        .bytes()
        .map(|byte| stream.push(u32::from(byte)))
        .collect();
    let none = None::<String>;
    assert_eq!(
        pieces,
        [
            none.clone(),
            Some("é".into()),
            none.clone(),
            none.clone(),
            none,
            Some("👍".into())
        ]
    );
    assert_eq!(stream.finish(), None);

    assert_eq!(
        stream.push(0x80).as_deref(),
        Some("\u{fffd}"),
        "a lone continuation byte"
    );
    assert_eq!(stream.push(0xf0), None);
    assert_eq!(
        stream.push(u32::from(b'x')).as_deref(),
        Some("\u{fffd}x"),
        "a character that broke off"
    );
    assert_eq!(stream.push(261), None, "special tokens are not shown");
    assert_eq!(stream.push(0xe2), None);
    assert_eq!(stream.finish().as_deref(), Some("\u{fffd}"));
    assert_eq!(stream.finish(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn text_survives_encoding(text in any::<String>()) {
        let byte_level = load(&byte_level());
        prop_assume!(!["<|end|>", "<|begin|>"].iter().any(|token| text.contains(token)));
        prop_assert_eq!(byte_level.decode(&byte_level.encode(&text, AddSpecial::Yes)), text.as_str());
        // The stand-in for a space cannot be told from a space.
        prop_assume!(!text.contains(['▁', '<', '\n']));
        let pieces = load(&sentence_piece());
        prop_assert_eq!(pieces.decode(&pieces.encode(&text, AddSpecial::Yes)), text);
    }

    #[test]
    fn a_stream_says_what_the_whole_says(ids in prop::collection::vec(0_u32..270, 0..40)) {
        let tokenizer = load(&byte_level());
        let mut stream = DecodeStream::new(&tokenizer);
        let mut text: String = ids.iter().filter_map(|&id| stream.push(id)).collect();
        text.extend(stream.finish());
        prop_assert_eq!(text, tokenizer.decode(&ids));
    }
}
