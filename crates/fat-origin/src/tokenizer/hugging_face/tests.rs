//! Small tokenizers, trained here by the `tokenizers` crate on this repository's texts, and read back
//! by both implementations: ids and decoded text must be equal. Then what is refused.

use std::path::Path;
use std::str::FromStr as _;
use std::sync::LazyLock;

use compact_tokenizer::{AddSpecial, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::BpeTrainer;

use super::read;
use crate::Error;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

static DIVERSE: LazyLock<String> = LazyLock::new(|| {
    std::fs::read_to_string(Path::new(FIXTURES).join("tokenizer/diverse.txt")).unwrap()
});

/// One tokenizer in both implementations.
struct Pair {
    name: &'static str,
    theirs: tokenizers::Tokenizer,
    ours: Tokenizer,
}

impl Pair {
    fn new(name: &'static str, json: &Value) -> Self {
        let text = json.to_string();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("tokenizer.json"), &text).unwrap();
        let spec = read(directory.path()).unwrap();
        let ours = Tokenizer::from_bytes(spec.to_bytes().unwrap().into()).unwrap();
        Self {
            name,
            theirs: tokenizers::Tokenizer::from_str(&text).unwrap(),
            ours,
        }
    }

    #[track_caller]
    fn check(&self, text: &str) {
        for (special, add) in [(AddSpecial::No, false), (AddSpecial::Yes, true)] {
            let expected = self.theirs.encode(text, add).unwrap().get_ids().to_vec();
            let found = self.ours.encode(text, special);
            assert_eq!(found, expected, "{} on {text:?}", self.name);
            assert_eq!(
                self.ours.decode(&found),
                self.theirs.decode(&expected, true).unwrap(),
                "{}",
                self.name
            );
        }
    }
}

/// A pipeline around a model that is still empty.
fn untrained(normalizer: &Value, pre_tokenizer: &Value, decoder: &Value) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    })
}

fn byte_level_part(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

fn sequence(field: &str, parts: &[Value]) -> Value {
    json!({"type": "Sequence", field: parts})
}

fn split(regex: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false})
}

/// Learns a vocabulary from the repository's texts.
fn trained(pipeline: &Value, alphabet: impl IntoIterator<Item = char>) -> Value {
    let mut tokenizer = tokenizers::Tokenizer::from_str(&pipeline.to_string()).unwrap();
    let mut trainer: TrainerWrapper = BpeTrainer::builder()
        .vocab_size(900)
        .show_progress(false)
        .initial_alphabet(alphabet.into_iter().collect())
        .build()
        .into();
    let mut texts = vec![DIVERSE.clone()];
    for name in ["qa_short", "code", "multilingual", "long_prose"] {
        texts.push(
            std::fs::read_to_string(Path::new(FIXTURES).join(format!("workloads/{name}.txt")))
                .unwrap(),
        );
    }
    let lines: Vec<&str> = texts
        .iter()
        .flat_map(|text| text.split_inclusive('\n'))
        .collect();
    tokenizer.train(&mut trainer, lines.into_iter()).unwrap();
    serde_json::from_str(&tokenizer.to_string(false).unwrap()).unwrap()
}

/// Appends tokens; `[flag, ..]` are the fields that are true.
fn add_tokens(json: &mut Value, tokens: &[(&str, &[&str])]) {
    let mut next = json["model"]["vocab"].as_object().unwrap().len();
    for (content, flags) in tokens {
        let id = json["model"]["vocab"]
            .get(*content)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| {
                next += 1;
                next as u64 - 1
            });
        let mut token = json!({"id": id, "content": content});
        for field in ["special", "lstrip", "rstrip", "normalized", "single_word"] {
            token[field] = json!(flags.contains(&field));
        }
        json["added_tokens"].as_array_mut().unwrap().push(token);
    }
}

fn byte_level(
    name: &'static str,
    normalizer: &Value,
    pre_tokenizer: &Value,
) -> (&'static str, Value) {
    let pipeline = untrained(normalizer, pre_tokenizer, &byte_level_part(true));
    let alphabet = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
    let mut json = trained(&pipeline, alphabet);
    add_tokens(
        &mut json,
        &[
            ("<|begin|>", &["special"]),
            ("<|end|>", &["special", "rstrip"]),
            ("<left>", &["lstrip"]),
            ("tool", &["single_word"]),
            ("<n>", &["normalized"]),
            ("<n><n>", &["normalized", "rstrip"]),
            ("  \n", &[]),
        ],
    );
    (name, json)
}

/// The vocabulary gets byte tokens and an unknown token, as a SentencePiece model has them.
fn sentence_piece(
    name: &'static str,
    normalizer: &Value,
    pre_tokenizer: &Value,
    strip: u64,
) -> (&'static str, Value) {
    let decoder = sequence(
        "decoders",
        &[
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
            json!({"type": "Strip", "content": " ", "start": strip, "stop": 0}),
        ],
    );
    let mut json = trained(
        &untrained(normalizer, pre_tokenizer, &decoder),
        "abcdefghijklmnopqrstuvwxyz▁".chars(),
    );
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    // Some characters lose their tokens (and merges), so that the bytes have work to do.
    let lost: Vec<String> = vocab
        .keys()
        .filter(|text| text.contains(['é', '中', '😀', 'x']))
        .cloned()
        .collect();
    vocab.retain(|text, _| !lost.contains(text));
    let mut kept: Vec<(u64, String)> = vocab
        .iter()
        .map(|(text, id)| (id.as_u64().unwrap(), text.clone()))
        .collect();
    kept.sort_unstable();
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let texts = kept
        .into_iter()
        .map(|(_, text)| text)
        .chain(bytes)
        .chain(["<unk>".to_owned()]);
    *vocab = texts
        .enumerate()
        .map(|(id, text)| (text, json!(id)))
        .collect();
    let id = vocab.len() - 1;
    json["model"]["merges"]
        .as_array_mut()
        .unwrap()
        .retain(|merge| {
            let text = |part: usize| merge[part].as_str().unwrap().to_owned();
            ![text(0), text(1), text(0) + &text(1)]
                .iter()
                .any(|text| lost.contains(text))
        });
    json["model"]["unk_token"] = json!("<unk>");
    json["model"]["byte_fallback"] = json!(true);
    json["model"]["fuse_unk"] = json!(true);
    json["added_tokens"] = json!([{
        "id": id, "content": "<unk>", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false,
    }]);
    let mut next = id;
    for (content, special) in [
        ("<s>", true),
        ("</s>", true),
        ("\n\n", false),
        ("▁▁", false),
    ] {
        let known = json["model"]["vocab"].get(content).and_then(Value::as_u64);
        let id = known.unwrap_or_else(|| {
            next += 1;
            next as u64
        });
        json["added_tokens"].as_array_mut().unwrap().push(json!({
            "id": id, "content": content, "special": special, "single_word": false, "lstrip": false,
            "rstrip": special, "normalized": false,
        }));
    }
    (name, json)
}

fn template(json: &mut Value, begin: &str, end: Option<&str>) {
    let id = |content: &str| {
        let added = json["added_tokens"].as_array().unwrap();
        added
            .iter()
            .find(|token| token["content"] == content)
            .unwrap()["id"]
            .clone()
    };
    let mut single = vec![
        json!({"SpecialToken": {"id": begin, "type_id": 0}}),
        json!({"Sequence": {"id": "A", "type_id": 0}}),
    ];
    single.extend(end.map(|end| json!({"SpecialToken": {"id": end, "type_id": 0}})));
    let mut special = serde_json::Map::new();
    for token in [Some(begin), end].into_iter().flatten() {
        special.insert(
            token.to_owned(),
            json!({"id": token, "ids": [id(token)], "tokens": [token]}),
        );
    }
    let pair =
        json!([{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]);
    json["post_processor"] = json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special});
}

static PAIRS: LazyLock<Vec<Pair>> = LazyLock::new(|| {
    let null = Value::Null;
    let escape = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = json!({"type": "Prepend", "prepend": "▁"});
    let metaspace = |scheme: &str, split: bool| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let cut = |regex: &str| sequence("pretokenizers", &[split(regex), byte_level_part(false)]);
    let at_space = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});

    let mut all = vec![
        byte_level("gpt-2", &null, &byte_level_part(true)),
        byte_level(
            "smollm",
            &null,
            &sequence("pretokenizers", &[digits, byte_level_part(true)]),
        ),
        byte_level("qwen2", &json!({"type": "NFC"}), &cut(QWEN2)),
        byte_level("llama3", &null, &cut(LLAMA3)),
        byte_level("gpt-4o", &json!({"type": "NFKC"}), &cut(GPT4O)),
        sentence_piece("gemma", &escape, &at_space, 0),
        sentence_piece(
            "llama2",
            &sequence("normalizers", &[prepend, escape.clone()]),
            &null,
            1,
        ),
        sentence_piece("metaspace always", &null, &metaspace("always", true), 1),
        sentence_piece("metaspace first", &null, &metaspace("first", false), 1),
    ];
    all[3].1["model"]["ignore_merges"] = json!(true);
    template(&mut all[3].1, "<|begin|>", None);
    template(&mut all[5].1, "<s>", Some("</s>"));
    all.iter()
        .map(|(name, json)| Pair::new(name, json))
        .collect()
});

#[test]
fn the_diverse_text_and_its_lines_have_equal_ids() {
    for pair in PAIRS.iter() {
        pair.check(&DIVERSE);
        DIVERSE
            .split_inclusive('\n')
            .for_each(|line| pair.check(line));
        pair.check("");
    }
}

fn tangled_text() -> impl Strategy<Value = String> {
    let characters: Vec<char> = DIVERSE.chars().collect();
    let piece = prop_oneof![
        4 => prop::sample::select(characters).prop_map(String::from),
        2 => "[ -~\n\t]{1,6}",
        1 => prop::sample::select(vec![
            "<|begin|>", "<|end|>", " <|end|>  \n", " \t<left>", "tool", "tools", "un tool!", "<n>", "<n><n>  ",
            "  \n", "<s>", "</s> \n", "\n\n\n", "▁▁", "<0x41>", "<unk>", "é", "中x", "😀",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn tangled_texts_have_equal_ids(text in tangled_text()) {
        for pair in PAIRS.iter() {
            pair.check(&text);
        }
    }
}

mod refused;
