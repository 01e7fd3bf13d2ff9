//! One cold session, the same every time: a station that holds nothing answers from an origin behind a link, with fed
//! tokens, so that no machine's rounding decides which rows it asks for. What it moves is exact.
//!
//! The link is not there to slow it down: on bare loopback it is chance whether a reply that tells what the origin can do
//! comes before the next request has to go out, and with it the number of requests.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::child::Server;
use crate::models::PackedModel;
use crate::origin::{self, Origin};
use crate::repository;
use crate::station::{self, Launch, Metered};
use crate::workload::{self, WORKLOADS};

/// A long prompt: several waves of rows before the first token.
const WORKLOAD: &str = "long_context";

/// Tokens fed after it.
const FED_TOKENS: usize = 32;

/// Long beside what a busy machine holds a reply up, short beside a test.
const RTT_MS: &str = "40";

/// Runs until the record is met: a machine may hold up a reply for longer than a round trip.
const MOST_RUNS: usize = 3;

/// What moved of one kind of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) kind: String,
    pub(super) received_bytes: u64,
    pub(super) useful_bytes: u64,
    /// Body bytes between the parts of replies to several ranges.
    pub(super) framing_bytes: u64,
    pub(super) requests: u64,
    pub(super) round_trips: u64,
}

/// The session, repeated if it moved something else than is recorded.
pub(super) fn measure(model: &PackedModel, recorded: &[Moved]) -> Result<Vec<Moved>> {
    let mut moved = run(model)?;
    for _ in 1..MOST_RUNS {
        if moved == recorded {
            break;
        }
        moved = run(model)?;
    }
    Ok(moved)
}

/// The session for a record: two runs in a row that agree.
pub(super) fn measure_twice(model: &PackedModel) -> Result<Vec<Moved>> {
    let first = run(model)?;
    let differences = differences(&first, &run(model)?);
    ensure!(
        differences.is_empty(),
        "two runs differ, the machine is too busy for a record:\n  {}",
        differences.join("\n  ")
    );
    Ok(first)
}

/// What is not as recorded, in words with numbers.
pub(super) fn differences(recorded: &[Moved], measured: &[Moved]) -> Vec<String> {
    let mut found = Vec::new();
    for is in measured {
        let Some(was) = recorded.iter().find(|was| was.kind == is.kind) else {
            found.push(format!("cold session, {}: not in the record", is.kind));
            continue;
        };
        for (what, is_now, was_then) in [
            ("bytes received", is.received_bytes, was.received_bytes),
            ("bytes used", is.useful_bytes, was.useful_bytes),
            ("bytes between parts", is.framing_bytes, was.framing_bytes),
            ("requests", is.requests, was.requests),
            ("round trips", is.round_trips, was.round_trips),
        ] {
            if is_now != was_then {
                found.push(format!(
                    "cold session, {}: {is_now} {what}, recorded {was_then}",
                    is.kind
                ));
            }
        }
    }
    let is_gone = |was: &&Moved| measured.iter().all(|is| is.kind != was.kind);
    let gone = recorded.iter().filter(is_gone);
    found.extend(gone.map(|was| format!("cold session, {}: recorded, but not measured", was.kind)));
    found
}

fn run(model: &PackedModel) -> Result<Vec<Moved>> {
    let folder = repository::target_dir().join("instructions");
    std::fs::create_dir_all(&folder)?;
    let mut ids = station::tokenize(&model.knot(), &workload::dir().join("continuation.txt"))?;
    ids.truncate(FED_TOKENS);
    let continuation = folder.join("continuation.json");
    std::fs::write(&continuation, serde_json::to_string(&ids)?)?;

    let origin = Origin::start_logging(&model.dir, folder.join("access.jsonl"))?;
    let mut link = repository::binary("range-testkit");
    link.args(["link", "--listen", "127.0.0.1:0", "--rtt-ms", RTT_MS]);
    let link = Server::start(link.args(["--upstream", &origin.address().to_string()]))?;
    let rows_url = format!("http://{}/{}.rows", link.address(), model.name);
    let workload = WORKLOADS.iter().find(|workload| workload.name == WORKLOAD);
    let prompt = workload.context("no such workload")?.prompt()?;
    let finished = station::run(&Launch {
        rows_url: Some(&rows_url),
        knot: None,
        prompt: &prompt,
        max_tokens: FED_TOKENS,
        continuation: Some(&continuation),
        scratch: folder.join("session"),
    })?;
    let logged = origin::traffic(&origin.replies()?, "");
    let bytes = &finished.summary.bytes;
    let moved = vec![
        Moved::new("rows", &bytes.rows),
        Moved::new("paths", &bytes.paths),
        Moved::new("head", &bytes.head),
        Moved::new("blocks", &bytes.blocks),
        Moved::new("probe", &bytes.probe),
    ];
    let told = origin::Traffic {
        requests: moved.iter().map(|kind| kind.requests).sum(),
        body_bytes: moved
            .iter()
            .map(|kind| kind.received_bytes + kind.framing_bytes)
            .sum(),
    };
    ensure!(
        told == logged,
        "the station told of {told:?}, and the origin logged {logged:?}"
    );
    Ok(moved)
}

impl Moved {
    fn new(kind: &str, meter: &Metered) -> Self {
        Self {
            kind: kind.to_owned(),
            received_bytes: meter.received,
            useful_bytes: meter.useful,
            framing_bytes: meter.framing,
            requests: meter.requests,
            round_trips: meter.round_trips,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(kind: &str, requests: u64) -> Moved {
        Moved {
            kind: kind.to_owned(),
            received_bytes: 500,
            useful_bytes: 400,
            framing_bytes: 30,
            requests,
            round_trips: 2,
        }
    }

    #[test]
    fn a_session_is_exact() {
        let recorded = [moved("rows", 7)];
        assert_eq!(differences(&recorded, &recorded), Vec::<String>::new());
        for requests in [6, 8] {
            let expected = format!("cold session, rows: {requests} requests, recorded 7");
            assert_eq!(
                differences(&recorded, &[moved("rows", requests)]),
                [expected]
            );
        }
    }

    #[test]
    fn every_figure_counts() {
        let recorded = moved("rows", 7);
        let other = Moved {
            received_bytes: 501,
            useful_bytes: 401,
            framing_bytes: 31,
            requests: 8,
            round_trips: 3,
            ..recorded.clone()
        };
        assert_eq!(differences(&[recorded], &[other]).len(), 5);
    }

    #[test]
    fn a_kind_that_one_side_lacks_is_told() {
        let (rows, paths) = (moved("rows", 7), moved("paths", 7));
        let both = [rows.clone(), paths];
        let one = [rows];
        assert_eq!(
            differences(&both, &one),
            ["cold session, paths: recorded, but not measured".to_owned()]
        );
        assert_eq!(
            differences(&one, &both),
            ["cold session, paths: not in the record".to_owned()]
        );
    }
}
