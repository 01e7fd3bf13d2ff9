//! The end-of-run summary: a few lines on stderr, or one JSON object. Every number is read from the
//! meters; nothing is counted here.

use crate::milestones::StartSummary;
use crate::resolver::{Resolution, Way};
use crate::traffic::Traffic;
use helix_transport::{Meter, MeterSnapshot};
use serde::Serialize;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a run did and what it moved.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Name of the model.
    pub model: String,
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// From the start of the process to the first token; of the first request for a server.
    pub time_to_first_token_s: Option<f64>,
    /// From the start of the process to the end.
    pub total_s: f64,
    /// The way to the first token.
    pub start: StartSummary,
    /// The vocabulary matrix.
    pub embedding: EmbeddingSummary,
    /// What moved, by kind.
    pub bytes: BytesSummary,
    /// Sum of the received bytes of all kinds.
    pub total_received_bytes: u64,
    /// Rows found in the cache, as a share of the rows asked of the store; 0 where none was asked.
    pub cache_hit_rate: f64,
    /// Replies whose bytes failed a digest.
    pub integrity_failures: u64,
    /// Which way each eligible tensor went.
    pub resolutions: Vec<Resolution>,
}

/// Rows of the vocabulary matrix.
#[derive(Debug, Clone, Serialize)]
pub struct EmbeddingSummary {
    /// Where rows came from.
    pub source: EmbeddingKind,
    /// Positions whose row was asked.
    pub rows_asked: u64,
    /// Distinct token ids among them.
    pub distinct_rows: u64,
    /// Rows found in the cache.
    pub hit: u64,
    /// Rows read from the directory that keeps them.
    pub disk: u64,
    /// Rows that another read was already fetching.
    pub coalesced: u64,
    /// Rows fetched.
    pub missed: u64,
    /// Rows read from the resident matrix.
    pub resident: u64,
    /// Rows that were approximated from the knot's sketch, as their origin could not be reached:
    /// answers are not the model's unless this is 0.
    pub approximated: u64,
    /// Rows in the cache at the end.
    pub cached_rows: u64,
    /// Bytes of the whole matrix.
    pub full_table_bytes: u64,
    /// Row bytes that prompts moved.
    pub prefill_received_bytes: u64,
    /// Path bytes that prompts moved.
    pub prefill_path_received_bytes: u64,
    /// Request waves of prompts' rows.
    pub prefill_round_trips: u64,
    /// Distinct token ids among the generated tokens that were fed back.
    pub decode_distinct_rows: u64,
}

/// Where rows come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EmbeddingKind {
    /// A row store.
    Columnar,
    /// The knot's dense block.
    #[default]
    Dense,
}

impl From<Way> for EmbeddingKind {
    fn from(way: Way) -> Self {
        match way {
            Way::Columnar => Self::Columnar,
            Way::Dense => Self::Dense,
        }
    }
}

/// What moved, by kind.
#[derive(Debug, Clone, Serialize)]
pub struct BytesSummary {
    /// Rows of the row store.
    pub rows: KindSummary,
    /// Verification paths.
    pub paths: KindSummary,
    /// The head.
    pub head: KindSummary,
    /// Layers, norms, the tokenizer, the list of hot ids, the sketch of the rows.
    pub blocks: KindSummary,
    /// Manifests, a hub's account of a repository, the front of the knot, headers of row tables.
    pub probe: KindSummary,
}

/// One kind's traffic.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct KindSummary {
    /// Body bytes that crossed the wire, but for `framing`.
    pub received: u64,
    /// Body bytes that are no content: what separates the parts of a reply to several ranges.
    pub framing: u64,
    /// Bytes of request heads.
    pub heads_sent: u64,
    /// Bytes of reply heads.
    pub heads_received: u64,
    /// Bytes of them that were used.
    pub useful: u64,
    /// Requests sent.
    pub requests: u64,
    /// Rounds of requests in flight together.
    pub round_trips: u64,
    /// Requests that repeated an earlier one.
    pub retries: u64,
}

impl From<MeterSnapshot> for KindSummary {
    fn from(snapshot: MeterSnapshot) -> Self {
        Self {
            received: snapshot.received_bytes,
            framing: snapshot.framing_bytes,
            heads_sent: snapshot.head_bytes_sent,
            heads_received: snapshot.head_bytes_received,
            useful: snapshot.useful_bytes,
            requests: snapshot.requests,
            round_trips: snapshot.waves,
            retries: snapshot.retries,
        }
    }
}

/// What the summary cannot read from the meters.
#[derive(Debug, Clone, Default)]
pub struct RunFacts {
    /// Name of the model.
    pub model: String,
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Time to the first token, if one came.
    pub first_token: Option<Duration>,
    /// Time to the end.
    pub total: Duration,
    /// The way to the first token.
    pub start: StartSummary,
    /// Rows in the cache.
    pub cached_rows: u64,
    /// Bytes of the whole matrix.
    pub full_table_bytes: u64,
    /// Where rows came from, or were to come from.
    pub source: EmbeddingKind,
    /// Which way each eligible tensor went.
    pub resolutions: Vec<Resolution>,
}

impl Summary {
    /// Reads the meters and puts the facts beside them.
    #[must_use]
    pub fn new(facts: RunFacts, traffic: &Traffic) -> Self {
        let of = |meter: &Meter| KindSummary::from(meter.snapshot());
        let bytes = BytesSummary {
            rows: of(&traffic.rows),
            paths: of(&traffic.paths),
            head: of(&traffic.head),
            blocks: of(&traffic.blocks),
            probe: of(&traffic.probe),
        };
        let meters = [
            &traffic.rows,
            &traffic.paths,
            &traffic.head,
            &traffic.blocks,
            &traffic.probe,
        ];
        let ledger = traffic.ledger();
        let outcomes = &traffic.outcomes;
        let [hit, disk, coalesced, missed] = [
            &outcomes.hit,
            &outcomes.disk,
            &outcomes.coalesced,
            &outcomes.miss,
        ]
        .map(|counter| counter.load(Ordering::Relaxed));
        Self {
            model: facts.model,
            prompt_tokens: facts.prompt_tokens,
            generated_tokens: facts.generated_tokens,
            time_to_first_token_s: facts.first_token.map(|time| time.as_secs_f64()),
            total_s: facts.total.as_secs_f64(),
            start: facts.start,
            embedding: EmbeddingSummary {
                source: facts.source,
                rows_asked: ledger.rows_asked,
                distinct_rows: ledger.distinct_rows,
                hit,
                disk,
                coalesced,
                missed,
                resident: ledger.resident,
                approximated: ledger.approximated,
                cached_rows: facts.cached_rows,
                full_table_bytes: facts.full_table_bytes,
                prefill_received_bytes: ledger.prefill_received_bytes,
                prefill_path_received_bytes: ledger.prefill_path_received_bytes,
                prefill_round_trips: ledger.prefill_round_trips,
                decode_distinct_rows: ledger.decode_distinct_rows,
            },
            total_received_bytes: [
                bytes.rows,
                bytes.paths,
                bytes.head,
                bytes.blocks,
                bytes.probe,
            ]
            .iter()
            .map(|kind| kind.received)
            .sum(),
            bytes,
            cache_hit_rate: share(hit, hit + disk + coalesced + missed),
            integrity_failures: meters
                .iter()
                .map(|meter| meter.snapshot().integrity_failures)
                .sum(),
            resolutions: facts.resolutions,
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

impl fmt::Display for BytesSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            ("rows", &self.rows),
            ("paths", &self.paths),
            ("head", &self.head),
            ("blocks", &self.blocks),
            ("probe", &self.probe),
        ];
        writeln!(
            f,
            "            received       useful requests  trips retries"
        )?;
        for (name, kind) in kinds {
            writeln!(
                f,
                "  {name:<6} {:>11} {:>12} {:>8} {:>6} {:>7}",
                kind.received, kind.useful, kind.requests, kind.round_trips, kind.retries
            )?;
        }
        let sum = |of: fn(&KindSummary) -> u64| kinds.iter().map(|(_, kind)| of(kind)).sum::<u64>();
        writeln!(
            f,
            "  overhead: {} bytes of request heads, {} of reply heads, {} between parts",
            sum(|kind| kind.heads_sent),
            sum(|kind| kind.heads_received),
            sum(|kind| kind.framing)
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self
            .time_to_first_token_s
            .map_or_else(|| "none".to_owned(), |seconds| format!("{seconds:.3} s"));
        writeln!(
            f,
            "{}: {} prompt + {} generated tokens, first token after {first}, {:.3} s in all",
            self.model, self.prompt_tokens, self.generated_tokens, self.total_s
        )?;
        if self.time_to_first_token_s.is_some() {
            writeln!(f, "{}", self.start)?;
        }
        let embedding = &self.embedding;
        let source = match embedding.source {
            EmbeddingKind::Columnar => "row store",
            EmbeddingKind::Dense => "dense block",
        };
        writeln!(
            f,
            "embedding from the {source}: {} rows asked ({} distinct): {} hit, {} from disk, {} coalesced, {} \
             missed, {} resident; cache hit rate {:.1} %",
            embedding.rows_asked,
            embedding.distinct_rows,
            embedding.hit,
            embedding.disk,
            embedding.coalesced,
            embedding.missed,
            embedding.resident,
            100.0 * self.cache_hit_rate
        )?;
        if embedding.approximated > 0 {
            writeln!(
                f,
                "DEGRADED: {} rows were approximated from the sketch: the text is not the model's own",
                embedding.approximated
            )?;
        }
        write!(f, "{}", self.bytes)?;
        // Unknown where the run ended before the knot was read.
        let whole = match embedding.full_table_bytes {
            0 => String::new(),
            bytes => format!("; the whole matrix is {bytes} bytes"),
        };
        write!(
            f,
            "  total  {:>11} bytes{whole}; integrity failures {}",
            self.total_received_bytes, self.integrity_failures
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let traffic = Traffic::default();
        traffic.rows.add_received(1_000);
        traffic.rows.add_useful(990);
        traffic.head.add_received(500);
        traffic.blocks.add_integrity_failure();
        let facts = RunFacts {
            model: "tiny".to_owned(),
            prompt_tokens: 7,
            generated_tokens: 3,
            first_token: Some(Duration::from_millis(250)),
            total: Duration::from_secs(2),
            start: StartSummary {
                table_s: Some(0.05),
                compute_s: 0.03,
                ..StartSummary::default()
            },
            full_table_bytes: 64_000,
            source: EmbeddingKind::Columnar,
            resolutions: vec![Resolution {
                tensor: "model.embed_tokens.weight".to_owned(),
                way: Way::Columnar,
                reason: "exact".to_owned(),
            }],
            ..RunFacts::default()
        };
        Summary::new(facts, &traffic)
    }

    #[test]
    fn numbers_are_the_meters() {
        let json = serde_json::to_value(summary()).unwrap();
        assert_eq!(json["bytes"]["rows"]["received"], 1_000);
        assert_eq!(json["bytes"]["rows"]["useful"], 990);
        assert_eq!(json["total_received_bytes"], 1_500);
        assert_eq!(json["integrity_failures"], 1);
        assert_eq!(json["embedding"]["source"], "columnar");
        assert_eq!(json["resolutions"][0]["way"], "columnar");
        assert_eq!(json["time_to_first_token_s"], 0.25);
        assert_eq!(json["cache_hit_rate"], 0.0);
    }

    #[test]
    fn a_matrix_nobody_read_about_has_no_size() {
        let text = Summary::new(RunFacts::default(), &Traffic::default()).to_string();
        assert!(text.ends_with("0 bytes; integrity failures 0"), "{text}");
        assert!(!text.contains("whole matrix"), "{text}");
    }

    #[test]
    fn the_text_form_is_stable() {
        expect_test::expect![[r#"
            tiny: 7 prompt + 3 generated tokens, first token after 0.250 s, 2.000 s in all
            start: table at 0.050 s, 0.030 s computing
            embedding from the row store: 0 rows asked (0 distinct): 0 hit, 0 from disk, 0 coalesced, 0 missed, 0 resident; cache hit rate 0.0 %
                        received       useful requests  trips retries
              rows          1000          990        0      0       0
              paths            0            0        0      0       0
              head           500            0        0      0       0
              blocks           0            0        0      0       0
              probe            0            0        0      0       0
              overhead: 0 bytes of request heads, 0 of reply heads, 0 between parts
              total         1500 bytes; the whole matrix is 64000 bytes; integrity failures 1"#]].assert_eq(&summary().to_string());
    }
}
