//! The results as one JSON object and as a table for people.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::case::Case;
use super::sources::SourceCase;
use crate::synthetic;
use crate::workload;
use crate::workload::WORKLOADS;

/// Everything that a reader needs to run the same again.
#[derive(Serialize)]
pub(super) struct Results {
    commit: String,
    synthetic_weights_seed: u64,
    workload_blake3: Vec<WorkloadDigest>,
    cases: Vec<Case>,
    sources: Vec<SourceCase>,
}

#[derive(Serialize)]
struct WorkloadDigest {
    file: String,
    blake3: String,
}

impl Results {
    pub(super) fn new(commit: String, cases: Vec<Case>, sources: Vec<SourceCase>) -> Result<Self> {
        let mut workload_blake3 = Vec::new();
        for path in WORKLOADS
            .iter()
            .map(|workload| workload.path())
            .chain([workload::dir().join("continuation.txt")])
        {
            let file = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            workload_blake3.push(WorkloadDigest {
                file,
                blake3: blake3::hash(&std::fs::read(&path)?).to_string(),
            });
        }
        Ok(Self {
            commit,
            synthetic_weights_seed: synthetic::SEED,
            workload_blake3,
            cases,
            sources,
        })
    }

    pub(super) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    pub(super) fn to_table(&self) -> String {
        let mut table = String::from(
            "model                  rows  workload         prompt distinct  row bytes  path bytes   full table requests waves equal\n",
        );
        for case in &self.cases {
            let equal = case.tokens_equal_dense
                && case.logits_bitwise_equal
                && case.client_bytes_equal_origin_log;
            // Writing to a String cannot fail.
            let _ = writeln!(
                table,
                "{:<22} {:<5} {:<16} {:>6} {:>8} {:>10} {:>11} {:>12} {:>8} {:>5} {}",
                case.model,
                case.row_dtype,
                case.workload,
                case.prompt_tokens,
                case.distinct_rows,
                case.embedding_bytes_received,
                case.path_bytes_received,
                case.full_table_bytes,
                case.requests,
                case.request_waves,
                if equal { "yes" } else { "NO" },
            );
        }
        table.push_str(
            "\nmodel                  rows  rows from                 distinct  row bytes probe bytes probe requests equal\n",
        );
        for case in &self.sources {
            let equal = if case.failures().is_empty() {
                "yes"
            } else {
                "NO"
            };
            let _ = writeln!(
                table,
                "{:<22} {:<5} {:<25} {:>8} {:>10} {:>11} {:>14} {equal}",
                case.model,
                case.row_dtype,
                case.source,
                case.distinct_rows,
                case.embedding_bytes_received,
                case.probe_bytes_received,
                case.probe_requests,
            );
        }
        table
    }
}
