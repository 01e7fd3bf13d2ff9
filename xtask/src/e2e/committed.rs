//! The bytes of a case beside those of docs/results/e2e.json: a session that begins to move more is told, also where it
//! stays below its gate. Requests and round trips are not compared here: on loopback they depend on which reply comes
//! first (docs/decisions/0017-regression-gate.md, whose cold session has them).

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use super::case::Case;
use crate::repository;

/// The figures that the prompt decides alone.
const OF_THE_PROMPT: [&str; 7] = [
    "prompt_tokens",
    "decoded_tokens",
    "prefill_embedding_bytes_received",
    "prefill_path_bytes_received",
    "full_table_bytes",
    "lm_head_bytes",
    "block_bytes",
];

/// The figures that picked tokens decide, which differ between instruction sets; they are compared where tokens are fed.
const OF_THE_SESSION: [&str; 7] = [
    "distinct_rows",
    "distinct_decode_rows",
    "embedding_bytes_received",
    "embedding_bytes_useful",
    "path_bytes_received",
    "path_bytes_useful",
    "total_bytes",
];

/// What names a case.
const KEY: [&str; 3] = ["model", "row_dtype", "workload"];

/// The committed results.
pub(super) struct Committed(Vec<Value>);

impl Committed {
    pub(super) fn read() -> Result<Self> {
        let path = path();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("no results at {}", path.display()))?;
        let results: Value = serde_json::from_str(&text)?;
        let cases = results["cases"].as_array();
        let cases = cases.with_context(|| format!("{} has no cases", path.display()))?;
        Ok(Self(cases.clone()))
    }

    /// Every figure of `case` that is another one, in words with numbers; `None` where nothing is committed of it.
    pub(super) fn differences(&self, case: &Case) -> Result<Option<Vec<String>>> {
        let fed = case.rules.tokens_are_fed;
        Ok(self.differences_of(&serde_json::to_value(case)?, fed))
    }

    fn differences_of(&self, case: &Value, tokens_are_fed: bool) -> Option<Vec<String>> {
        let same_case = |other: &&Value| KEY.iter().all(|key| other[key] == case[key]);
        let committed = self.0.iter().find(same_case)?;
        let of_the_session = OF_THE_SESSION.iter().filter(|_| tokens_are_fed);
        let differs = |figure: &&&str| committed[**figure] != case[**figure];
        let differences = OF_THE_PROMPT.iter().chain(of_the_session).filter(differs);
        let name = KEY
            .map(|key| case[key].as_str().unwrap_or_default())
            .join(" ");
        Some(
            differences
                .map(|figure| {
                    format!(
                        "{name}: {figure} is {}, docs/results/e2e.json has {}",
                        case[figure], committed[figure]
                    )
                })
                .collect(),
        )
    }
}

/// Where they are.
pub(super) fn path() -> PathBuf {
    repository::root().join("docs/results/e2e.json")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case() -> Value {
        let mut case = json!({ "model": "m", "row_dtype": "bf16", "workload": "w" });
        for figure in OF_THE_PROMPT.iter().chain(&OF_THE_SESSION) {
            case[figure] = json!(100);
        }
        case
    }

    #[test]
    fn an_equal_case_has_no_differences() {
        let committed = Committed(vec![case()]);
        assert_eq!(committed.differences_of(&case(), true), Some(vec![]));
    }

    #[test]
    fn one_byte_more_or_less_is_told() {
        let committed = Committed(vec![case()]);
        for bytes in [99, 101] {
            let mut moved = case();
            moved["block_bytes"] = json!(bytes);
            let expected =
                format!("m bf16 w: block_bytes is {bytes}, docs/results/e2e.json has 100");
            assert_eq!(
                committed.differences_of(&moved, false),
                Some(vec![expected])
            );
        }
    }

    #[test]
    fn what_picked_tokens_decide_is_compared_where_they_are_fed() {
        let committed = Committed(vec![case()]);
        let mut moved = case();
        moved["total_bytes"] = json!(101);
        assert_eq!(committed.differences_of(&moved, false), Some(vec![]));
        let differences = committed.differences_of(&moved, true).unwrap();
        assert_eq!(differences.len(), 1);
    }

    #[test]
    fn a_case_that_nobody_committed_is_no_equal_one() {
        let mut other = case();
        other["workload"] = json!("v");
        assert_eq!(Committed(vec![case()]).differences_of(&other, true), None);
    }

    #[test]
    fn the_committed_results_have_every_figure() {
        let committed = Committed::read().unwrap();
        assert!(!committed.0.is_empty());
        for case in &committed.0 {
            for figure in OF_THE_PROMPT.iter().chain(&OF_THE_SESSION) {
                assert!(case[figure].is_u64(), "{figure} of {case}");
            }
        }
    }
}
