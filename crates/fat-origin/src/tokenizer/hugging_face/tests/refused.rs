//! Parts of a `tokenizer.json` that are not understood, each refused by its name.

use super::{Error, Value, byte_level_part, json, read, sequence};

fn good() -> Value {
    let vocab = json!({"a": 0, "b": 1, "Ġ": 2, "ab": 3});
    json!({
        "added_tokens": [{"id": 4, "content": "<end>", "special": true}],
        "normalizer": null,
        "pre_tokenizer": byte_level_part(true),
        "post_processor": byte_level_part(true),
        "decoder": byte_level_part(true),
        "model": {"type": "BPE", "vocab": vocab, "merges": ["a b"]},
    })
}

fn load(
    tokenizer: &Value,
    config: Option<&Value>,
) -> Result<compact_tokenizer::TokenizerSpec, Error> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("tokenizer.json"),
        tokenizer.to_string(),
    )
    .unwrap();
    if let Some(config) = config {
        std::fs::write(
            directory.path().join("tokenizer_config.json"),
            config.to_string(),
        )
        .unwrap();
    }
    read(directory.path())
}

#[track_caller]
fn assert_rejects(place: &str, value: &Value, message: &str) {
    let mut json = good();
    *json.pointer_mut(place).unwrap() = value.clone();
    let error = load(&json, None).unwrap_err().to_string();
    assert!(error.contains(message), "{error:?} should hold {message:?}");
}

#[test]
fn parts_of_the_pipeline() {
    let check = |place: &str, value: Value, message: &str| assert_rejects(place, &value, message);
    check(
        "/normalizer",
        json!({"type": "Lowercase"}),
        r#"normalizer: `{"type":"Lowercase"}` is not supported"#,
    );
    check(
        "/normalizer",
        json!({"type": "Replace", "pattern": {"String": "x"}, "content": "y"}),
        "normalizer: `",
    );
    check(
        "/pre_tokenizer",
        json!({"type": "Whitespace"}),
        "model: `BPE with neither` is not supported",
    );
    check(
        "/pre_tokenizer",
        sequence(
            "pretokenizers",
            &[json!({"type": "Whitespace"}), byte_level_part(true)],
        ),
        r#"pre_tokenizer: `{"type":"Whitespace"}`"#,
    );
    check(
        "/pre_tokenizer",
        sequence(
            "pretokenizers",
            &[super::split(r"\w+"), byte_level_part(false)],
        ),
        "pre_tokenizer: `{\"type\":\"Split\"",
    );
    check(
        "/pre_tokenizer",
        json!({"type": "ByteLevel", "add_prefix_space": true}),
        "pre_tokenizer: `",
    );
    check(
        "/post_processor",
        json!({"type": "BertProcessing"}),
        "post_processor: `",
    );
    check("/decoder", json!({"type": "WordPiece"}), "decoder: `");
    check(
        "/decoder",
        Value::Null,
        "decoder: `none` is not supported (supported: ByteLevel)",
    );
    check(
        "/model/type",
        json!("Unigram"),
        "model type: `Unigram` is not supported (supported: BPE)",
    );
}

#[test]
fn fields_of_the_model() {
    let with = |field: &str, value: Value, message: &str| {
        let mut json = good();
        json["model"][field] = value;
        let error = load(&json, None).unwrap_err().to_string();
        assert!(error.contains(message), "{error:?} should hold {message:?}");
    };
    with(
        "dropout",
        json!(0.1),
        "model.dropout: `0.1` is not supported (supported: none)",
    );
    with(
        "continuing_subword_prefix",
        json!("##"),
        "model.continuing_subword_prefix: `\"##\"`",
    );
    with(
        "end_of_word_suffix",
        json!("</w>"),
        "model.end_of_word_suffix: `\"</w>\"`",
    );
    with("surprise", json!(1), "unknown field `surprise`");
    with(
        "merges",
        json!(["a c"]),
        "merge 0: expected `c` to be in the vocabulary",
    );
    with(
        "merges",
        json!(["b a"]),
        "merge 0: expected `ba` to be in the vocabulary",
    );
    with(
        "merges",
        json!(["a b c"]),
        "merge 0: expected two texts with one space between",
    );
    with(
        "vocab",
        json!({"a": 0, "b": 0, "ab": 1}),
        "token id 0: expected one text",
    );
    with(
        "vocab",
        json!({"a": 0, "b": 1, "ab": 4_000_000_000_u32}),
        "largest token id: expected ids near the 4 tokens",
    );
}

#[test]
fn added_tokens() {
    let with = |tokens: Value, message: &str| {
        let mut json = good();
        json["added_tokens"] = tokens;
        let error = load(&json, None).unwrap_err().to_string();
        assert!(error.contains(message), "{error:?} should hold {message:?}");
    };
    with(
        json!([{"id": 4, "content": ""}]),
        "added token 4: expected a text",
    );
    with(
        json!([{"id": 4, "content": "ab"}]),
        "added token 4: expected the vocabulary's id, found `ab`, which the vocabulary has as 3",
    );
    with(
        json!([{"id": 3, "content": "x"}]),
        "token id 3: expected `x`, the added token's text, found ab",
    );
    with(
        json!([{"id": 4, "content": "x"}, {"id": 4, "content": "y"}]),
        "added token 4: expected `x` in both places",
    );
    let mut json = good();
    json["normalizer"] = json!({"type": "NFC"});
    json["added_tokens"] = json!([{"id": 4, "content": "é", "normalized": true}]);
    let error = load(&json, None).unwrap_err().to_string();
    assert!(
        error.contains("added token 4: `normalized `é`` is not supported"),
        "{error}"
    );
}

#[test]
fn the_configuration_names_ids_and_brings_tokens() {
    let config = json!({
        "eos_token": {"content": "<end>", "special": true}, "bos_token": null, "pad_token": "<pad>",
        "added_tokens_decoder": {
            "4": {"content": "<end>", "special": true},
            "7": {"content": "<pad>", "special": true},
        },
    });
    let spec = load(&good(), Some(&config)).unwrap();
    assert_eq!(
        (spec.eos_ids.as_slice(), spec.pad_id, spec.bos_id),
        (&[4][..], Some(7), None)
    );
    assert_eq!(spec.tokens.len(), 8);
    assert_eq!(spec.added.len(), 2);
    let error = load(&good(), Some(&json!({"eos_token": "<nope>"})))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("special token `<nope>`: expected a token of that text, found none"),
        "{error}"
    );
    let error = load(&good(), Some(&json!({"added_tokens_decoder": 3})))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("tokenizer_config.json: line 1, column"),
        "{error}"
    );
}

#[test]
fn files_that_are_no_json_are_named() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(read(directory.path()), Err(Error::Io { .. })));
    std::fs::write(directory.path().join("tokenizer.json"), "{\"model\":").unwrap();
    let error = read(directory.path()).unwrap_err().to_string();
    assert!(
        error.contains("tokenizer.json: line 1, column 9: expected a tokenizer's JSON"),
        "{error}"
    );
}
