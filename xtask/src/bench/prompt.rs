//! Prompts of an exact number of tokens, for comparisons with programs that count tokens.

use anyhow::{Context, Result};

use super::Model;
use crate::repository;
use crate::workload::dir;

/// The beginning of a long text that has exactly so many tokens for this model.
pub(super) fn prompt_of(model: &Model, tokens: u32) -> Result<String> {
    let text = std::fs::read_to_string(dir().join("long_prose.txt"))?;
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).skip(1).collect();
    let count = |end: usize| -> Result<usize> {
        let mut station = repository::binary("fat-station");
        station.arg("--knot").arg(model.packed.knot());
        station.args(["tokenize", "--raw", "--"]).arg(&text[..end]);
        let printed = repository::output(&mut station)?;
        let ids: Vec<u32> = serde_json::from_slice(&printed).context("tokenize printed no ids")?;
        Ok(ids.len())
    };
    let tokens = tokens as usize;
    let (mut low, mut high) = (0, ends.len());
    while low < high {
        let middle = low.midpoint(high);
        if count(ends[middle])? < tokens {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // A character more can join tokens as well as begin one: the count is not quite ascending.
    for &end in ends.iter().skip(low).take(64) {
        if count(end)? == tokens {
            return Ok(text[..end].to_owned());
        }
    }
    anyhow::bail!("no beginning of long_prose.txt has {tokens} tokens")
}
