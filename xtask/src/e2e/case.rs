//! One case: a columnar run, a dense run, and what the origin logged.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::DECODED_TOKENS;
use super::model::PreparedModel;
use crate::origin::{self, Origin};
use crate::repository;
use crate::station::{self, Finished, Launch};
use crate::workload::Workload;

/// The figures of a case, as they are published. Bytes are response-body bytes.
#[derive(Serialize)]
pub(super) struct Case {
    pub(super) model: String,
    pub(super) row_dtype: String,
    pub(super) workload: String,
    pub(super) prompt_tokens: u64,
    pub(super) decoded_tokens: u64,
    pub(super) distinct_rows: u64,
    pub(super) distinct_decode_rows: u64,
    pub(super) embedding_bytes_received: u64,
    pub(super) embedding_bytes_useful: u64,
    pub(super) prefill_embedding_bytes_received: u64,
    pub(super) prefill_path_bytes_received: u64,
    pub(super) prefill_round_trips: u64,
    pub(super) path_bytes_received: u64,
    pub(super) path_bytes_useful: u64,
    /// Rounds of requests for paths; they travel with the rows.
    pub(super) path_waves: u64,
    pub(super) full_table_bytes: u64,
    pub(super) requests: u64,
    pub(super) request_waves: u64,
    pub(super) lm_head_bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) retries: u64,
    pub(super) integrity_failures: u64,
    pub(super) tokens_equal_dense: bool,
    pub(super) logits_bitwise_equal: bool,
    pub(super) client_bytes_equal_origin_log: bool,
    #[serde(skip)]
    pub(super) rules: Rules,
}

/// Which gates stand for a case.
pub(super) struct Rules {
    pub(super) byte_gate: ByteGate,
    /// Least number of distinct rows asked in decode; 0 where the model picks its own tokens.
    pub(super) least_decode_rows: u64,
    /// Whether the share of path bytes is gated: a toy's rows are shorter than its paths.
    pub(super) paths_are_gated: bool,
    /// Whether the tokens of the session are fed, and so the same on every machine.
    pub(super) tokens_are_fed: bool,
}

/// What the byte gate covers.
pub(super) enum ByteGate {
    Session,
    Prompt,
    ReportedOnly,
}

/// Distinct rows that the fed continuation must ask for, or the case would prove nothing about decode.
const LEAST_FED_DECODE_ROWS: u64 = 25;

/// Runs the case with cold caches, origin and station in processes of their own.
pub(super) fn run(model: &PreparedModel, workload: Workload) -> Result<Case> {
    let prompt = workload.prompt()?;
    let scratch = repository::models_dir().join("runs");
    let knot = model.packed.knot();
    let origin = Origin::start(&model.packed.dir)?;
    let rows_url = origin.url(&model.packed.rows());
    let mut launch = Launch {
        rows_url: Some(&rows_url),
        knot: None,
        prompt: &prompt,
        max_tokens: DECODED_TOKENS,
        continuation: model.continuation.as_deref(),
        scratch: scratch.join("columnar"),
    };
    let columnar = station::run(&launch)?;
    let replies = origin.replies()?;
    drop(origin);

    let knot_path = knot.to_string_lossy();
    launch.rows_url = None;
    launch.knot = Some(&knot_path);
    launch.scratch = scratch.join("dense");
    let dense = station::run(&launch)?;
    check_runs(&columnar, &dense)?;
    if model.has_qwen_tokenizer {
        let (found, least) = (columnar.summary.prompt_tokens, workload.least_tokens);
        ensure!(
            usize::try_from(found)? >= least,
            "{}: the prompt has {found} tokens under the Qwen tokenizer, expected {least} or more",
            workload.name
        );
    }
    let log = LogComparison {
        rows: origin::traffic(&replies, ".rows"),
        knot: origin::traffic(&replies, ".gkq"),
        all: origin::traffic(&replies, ""),
    };
    assemble(model, workload, &columnar, &dense, &log)
}

/// The dense run must index the dense tensor: a run that touched a row store would compare a thing with itself.
fn check_runs(columnar: &Finished, dense: &Finished) -> Result<()> {
    ensure!(
        columnar.summary.embedding.source == "columnar",
        "the columnar run took its rows from the dense block"
    );
    ensure!(
        dense.summary.embedding.source == "dense",
        "the dense run took its rows from a row store"
    );
    ensure!(
        dense.summary.total_received_bytes == 0,
        "the dense run of a local knot received bytes"
    );
    Ok(())
}

struct LogComparison {
    rows: origin::Traffic,
    knot: origin::Traffic,
    all: origin::Traffic,
}

impl LogComparison {
    /// Our counters against the origin's, per object and in sum, bytes and requests.
    fn equals(&self, finished: &Finished) -> bool {
        let bytes = &finished.summary.bytes;
        let of_knot = [&bytes.paths, &bytes.head, &bytes.blocks, &bytes.probe];
        let knot_bytes: u64 = of_knot
            .iter()
            .map(|meter| meter.received + meter.framing)
            .sum();
        let knot_requests: u64 = of_knot.iter().map(|meter| meter.requests).sum();
        self.rows.body_bytes == bytes.rows.received + bytes.rows.framing
            && self.rows.requests == bytes.rows.requests
            && self.knot.body_bytes == knot_bytes
            && self.knot.requests == knot_requests
            && self.all.body_bytes == finished.summary.total_received_bytes + bytes.framing()
    }
}

fn assemble(
    model: &PreparedModel,
    workload: Workload,
    columnar: &Finished,
    dense: &Finished,
    log: &LogComparison,
) -> Result<Case> {
    let summary = &columnar.summary;
    let (embedding, bytes) = (&summary.embedding, &summary.bytes);
    let byte_gate = match (workload.gated, model.gates_prompt_only()) {
        (false, _) => ByteGate::ReportedOnly,
        (true, true) => ByteGate::Prompt,
        (true, false) => ByteGate::Session,
    };
    // A tokenizer of single bytes has too few ids to ask that many.
    let fed_words = model.continuation.is_some() && model.has_qwen_tokenizer;
    let least_decode_rows = if fed_words { LEAST_FED_DECODE_ROWS } else { 0 };
    Ok(Case {
        model: model.name().to_owned(),
        row_dtype: model.row_dtype().to_owned(),
        workload: workload.name.to_owned(),
        prompt_tokens: summary.prompt_tokens,
        decoded_tokens: summary.generated_tokens,
        distinct_rows: embedding.distinct_rows,
        distinct_decode_rows: embedding.decode_distinct_rows,
        embedding_bytes_received: bytes.rows.received,
        embedding_bytes_useful: bytes.rows.useful,
        prefill_embedding_bytes_received: embedding.prefill_received_bytes,
        prefill_path_bytes_received: embedding.prefill_path_received_bytes,
        prefill_round_trips: embedding.prefill_round_trips,
        path_bytes_received: bytes.paths.received,
        path_bytes_useful: bytes.paths.useful,
        path_waves: bytes.paths.round_trips,
        full_table_bytes: embedding.full_table_bytes,
        requests: log.all.requests,
        request_waves: bytes.rows.round_trips,
        lm_head_bytes: bytes.head.received,
        block_bytes: bytes.blocks.received,
        total_bytes: summary.total_received_bytes,
        retries: bytes.retries(),
        integrity_failures: summary.integrity_failures,
        tokens_equal_dense: columnar.tokens == dense.tokens,
        logits_bitwise_equal: columnar.logits()? == dense.logits()?,
        client_bytes_equal_origin_log: log.equals(columnar),
        rules: Rules {
            byte_gate,
            least_decode_rows,
            paths_are_gated: model.is_real,
            tokens_are_fed: model.continuation.is_some(),
        },
    })
}
