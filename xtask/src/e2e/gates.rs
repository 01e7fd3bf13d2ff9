//! The gates: what must hold in every case, and what must hold in some.

use super::DECODED_TOKENS;
use super::case::{ByteGate, Case};

/// A session, or with f32 rows its prompt, moves fewer embedding bytes than this.
const EMBEDDING_BYTES_LIMIT: u64 = 500_000;

/// Rows received over rows used: the planner's overfetch budget.
const AMPLIFICATION_LIMIT_PERCENT: u64 = 105;

/// Path bytes over row bytes, both as received.
const PATH_LIMIT_PERCENT: u64 = 15;

/// Path bytes that a row may take: six levels below the pinned one.
const PATH_BYTES_A_ROW_LIMIT: u64 = 96;

/// Every gate that `case` misses, in words with numbers.
pub(super) fn failures(case: &Case) -> Vec<String> {
    let mut failures = Vec::new();
    let mut require = |holds: bool, what: String| {
        if !holds {
            failures.push(format!(
                "{} {} {}: {what}",
                case.model, case.row_dtype, case.workload
            ));
        }
    };
    require(
        case.tokens_equal_dense,
        "tokens differ from the dense run".into(),
    );
    require(
        case.logits_bitwise_equal,
        "logits differ from the dense run".into(),
    );
    require(
        case.client_bytes_equal_origin_log,
        "our counters differ from the origin's log".into(),
    );
    require(
        case.integrity_failures == 0,
        format!("{} integrity failures", case.integrity_failures),
    );
    require(
        usize::try_from(case.decoded_tokens).is_ok_and(|decoded| decoded == DECODED_TOKENS),
        format!(
            "{} tokens decoded, expected {DECODED_TOKENS}",
            case.decoded_tokens
        ),
    );
    require(
        case.embedding_bytes_received * 100
            <= case.embedding_bytes_useful * AMPLIFICATION_LIMIT_PERCENT,
        format!(
            "{} row bytes received for {} used",
            case.embedding_bytes_received, case.embedding_bytes_useful
        ),
    );
    require(
        case.distinct_decode_rows >= case.rules.least_decode_rows,
        format!(
            "{} distinct decode rows, expected {}",
            case.distinct_decode_rows, case.rules.least_decode_rows
        ),
    );
    path_failures(case, &mut require);
    let (gated, of) = match case.rules.byte_gate {
        ByteGate::Session => (
            case.embedding_bytes_received + case.path_bytes_received,
            "the session",
        ),
        ByteGate::Prompt => (
            case.prefill_embedding_bytes_received + case.prefill_path_bytes_received,
            "the prompt",
        ),
        ByteGate::ReportedOnly => (0, ""),
    };
    require(
        gated < EMBEDDING_BYTES_LIMIT,
        format!("{gated} embedding bytes for {of}, limit {EMBEDDING_BYTES_LIMIT}"),
    );
    failures
}

/// Verified rows cost little more than rows, and no time of their own.
fn path_failures(case: &Case, require: &mut impl FnMut(bool, String)) {
    require(
        !case.rules.paths_are_gated
            || case.path_bytes_received * 100 <= case.embedding_bytes_received * PATH_LIMIT_PERCENT,
        format!(
            "{} path bytes for {} row bytes, limit {PATH_LIMIT_PERCENT} %",
            case.path_bytes_received, case.embedding_bytes_received
        ),
    );
    require(
        case.path_bytes_useful <= case.distinct_rows * PATH_BYTES_A_ROW_LIMIT,
        format!(
            "{} path bytes for {} rows, limit {PATH_BYTES_A_ROW_LIMIT} a row",
            case.path_bytes_useful, case.distinct_rows
        ),
    );
    require(
        case.path_waves <= case.request_waves,
        format!(
            "{} waves of paths for {} waves of rows",
            case.path_waves, case.request_waves
        ),
    );
}
