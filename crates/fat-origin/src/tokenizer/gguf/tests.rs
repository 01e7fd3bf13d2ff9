//! Small vocabularies in GGUF metadata: what they encode to, and what is refused. Agreement with
//! llama.cpp on real files is checked by the acceptance runs against `fixtures/tokenizer`.

use compact_tokenizer::{AddSpecial, Tokenizer, TokenizerSpec};

use crate::Error;
use crate::checkpoint::gguf::tests::{Builder, open, text};

fn array(kind: u32, values: impl ExactSizeIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut bytes = [
        &kind.to_le_bytes()[..],
        &(values.len() as u64).to_le_bytes(),
    ]
    .concat();
    values.for_each(|value| bytes.extend(value));
    bytes
}

fn strings(values: &[&str]) -> Vec<u8> {
    array(8, values.iter().map(|value| text(value)))
}

fn vocabulary(model: &str, tokens: &[(&str, i32)]) -> Builder {
    let texts: Vec<&str> = tokens.iter().map(|(text, _)| *text).collect();
    Builder::default()
        .entry("tokenizer.ggml.model", 8, &text(model))
        .entry("tokenizer.ggml.tokens", 9, &strings(&texts))
        .entry(
            "tokenizer.ggml.token_type",
            9,
            &array(
                5,
                tokens.iter().map(|(_, kind)| kind.to_le_bytes().to_vec()),
            ),
        )
}

fn byte_level() -> Builder {
    let tokens = [
        ("a", 1),
        ("b", 1),
        ("Ġ", 1),
        ("ab", 1),
        ("Ġab", 1),
        ("1", 1),
        ("11", 1),
        ("<|im_end|>", 3),
        ("<|endoftext|>", 3),
        ("<think>", 4),
        ("[PAD]", 5),
    ];
    vocabulary("gpt2", &tokens)
        .entry("tokenizer.ggml.pre", 8, &text("smollm"))
        .entry(
            "tokenizer.ggml.merges",
            9,
            &strings(&["a b", "Ġ ab", "1 1"]),
        )
        .entry("tokenizer.ggml.eos_token_id", 4, &7_u32.to_le_bytes())
}

fn sentence_piece(first: &[(&'static str, i32)]) -> Builder {
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    let tail = [
        ("▁", 1),
        ("h", 1),
        ("i", 1),
        ("▁h", 1),
        ("hi", 1),
        ("▁hi", 1),
        ("  ", 4),
    ];
    let mut tokens = first.to_vec();
    tokens.extend([("<unk>", 2), ("<s>", 3), ("</s>", 3)]);
    tokens.extend(bytes.iter().map(|byte| (byte.as_str(), 6)));
    tokens.extend(tail);
    let scores = (0..tokens.len()).map(|id| (-(id as f32)).to_le_bytes().to_vec());
    vocabulary("llama", &tokens).entry("tokenizer.ggml.scores", 9, &array(6, scores))
}

fn spec(builder: &Builder) -> Result<TokenizerSpec, Error> {
    super::read(&open(&builder.bytes()).unwrap())
}

fn load(builder: &Builder) -> Tokenizer {
    Tokenizer::from_bytes(spec(builder).unwrap().to_bytes().unwrap().into()).unwrap()
}

#[test]
fn byte_level_vocabularies_are_read() {
    let tokenizer = load(&byte_level());
    assert_eq!(
        tokenizer.encode("ab ab11<|im_end|><think>", AddSpecial::Yes),
        [3, 4, 5, 5, 7, 9]
    );
    assert_eq!(
        tokenizer.encode("axb", AddSpecial::No),
        [0, 1],
        "x has no token and keeps a and b apart"
    );
    assert_eq!(
        tokenizer.eos_ids(),
        [7, 8],
        "the key's first, then what is known to end a text"
    );
    assert_eq!(tokenizer.decode(&[4, 7, 9]), " ab<think>");
    let with_bos = byte_level()
        .entry("tokenizer.ggml.bos_token_id", 4, &8_u32.to_le_bytes())
        .entry("tokenizer.ggml.add_bos_token", 7, &[1]);
    assert_eq!(load(&with_bos).encode("ab", AddSpecial::Yes), [8, 3]);
}

#[test]
fn sentence_piece_vocabularies_are_read() {
    let tokenizer = load(&sentence_piece(&[]));
    let id = |text: &str| tokenizer.token_id(text).unwrap();
    assert_eq!(
        tokenizer.encode("hi", AddSpecial::Yes),
        [1, id("▁hi")],
        "by way of ▁h, the better score"
    );
    assert_eq!(
        tokenizer.encode("é", AddSpecial::No),
        [id("▁"), id("<0xC3>"), id("<0xA9>")]
    );
    assert_eq!(
        tokenizer.encode("i  i", AddSpecial::No),
        [id("▁"), id("i"), id("  "), id("▁"), id("i")]
    );
    assert_eq!(tokenizer.decode(&[1, id("▁hi")]), "hi");

    let bare = sentence_piece(&[]).entry("tokenizer.ggml.add_space_prefix", 7, &[0]);
    assert_eq!(load(&bare).encode("hi", AddSpecial::No), [id("hi")]);
    let named = sentence_piece(&[]).entry("general.name", 8, &text("Phi-3 mini"));
    assert_eq!(
        load(&named).encode("</s>  hi", AddSpecial::No),
        [2, id("▁hi")],
        "Phi-3 strips after markers"
    );
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    #[track_caller]
    fn check(builder: &Builder, message: &str) {
        let error = match spec(builder) {
            Err(error) => error.to_string(),
            Ok(spec) => spec.to_bytes().unwrap_err().to_string(),
        };
        assert!(error.contains(message), "{error:?} should hold {message:?}");
    }
    let id = |value: u32| value.to_le_bytes();
    check(
        &Builder::default(),
        "`tokenizer.ggml.tokens`: expected a tokenizer's value, found no such key",
    );
    check(
        &vocabulary("bert", &[("a", 1)]),
        "`tokenizer.ggml.model`: `bert` is not supported (supported: gpt2, llama)",
    );
    check(
        &vocabulary("gpt2", &[("a", 1)]),
        "`tokenizer.ggml.pre`: expected a tokenizer's value",
    );
    let pre = vocabulary("gpt2", &[("a", 1)]).entry("tokenizer.ggml.pre", 8, &text("viking"));
    check(
        &pre,
        "`tokenizer.ggml.pre`: `viking` is not supported (supported: gpt-2,",
    );
    check(
        &vocabulary("gpt2", &[("a", 9)]),
        "`tokenizer.ggml.token_type` entry 0: expected a type from 0 to 6, found 9",
    );
    check(
        &vocabulary("llama", &[("a", 1)]),
        "`tokenizer.ggml.scores`: expected a tokenizer's value",
    );
    check(
        &vocabulary("llama", &[("a", 1)]).entry(
            "tokenizer.ggml.scores",
            9,
            &array(6, std::iter::empty()),
        ),
        "expected 1 f32, one for each token, found 0 f32",
    );
    check(
        &byte_level().entry("tokenizer.ggml.bos_token_id", 4, &id(11)),
        "`tokenizer.ggml.bos_token_id`: expected a token id below 11, found 11",
    );
    check(&sentence_piece(&[("▁hi", 1)]), "expected a text of its own");
    let merges = |line: &str| {
        vocabulary("gpt2", &[("a", 1), ("b", 1)])
            .entry("tokenizer.ggml.pre", 8, &text("gpt-2"))
            .entry("tokenizer.ggml.merges", 9, &strings(&[line]))
    };
    check(
        &merges("a"),
        "`tokenizer.ggml.merges` entry 0: expected two texts with a space between",
    );
    check(
        &merges("a b"),
        "`tokenizer.ggml.merges` entry 0: expected `ab` to be a token",
    );
}
