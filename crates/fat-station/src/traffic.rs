//! The station's counters, in atomics first: spans, summary and (later) metrics are derived from
//! them, so that sampling or a log filter never changes a total.

use crate::milestones::Milestones;
use columnar_embed::{FetchReport, RowOutcomes, StoreMeters};
use helix_transport::{Meter, Patience, ReadOptions};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// One meter per kind of bytes, and the ledger of row reads.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Rows of the row store.
    pub rows: Arc<Meter>,
    /// Verification paths of rows.
    pub paths: Arc<Meter>,
    /// The head: the tied matrix or `lm_head`.
    pub head: Arc<Meter>,
    /// Layers, norms and the tokenizer; the list of hot ids and the sketch of the rows, where they are
    /// used.
    pub blocks: Arc<Meter>,
    /// What is read to know what to read: manifests, a hub's account of a repository, the front of the
    /// knot, the headers of the files that rows lie in.
    pub probe: Arc<Meter>,
    /// What became of each row asked of the store.
    pub outcomes: Arc<RowOutcomes>,
    /// When the start reached what.
    pub milestones: Milestones,
    ledger: Mutex<Ledger>,
}

/// Whether rows are for a prompt or for a token just generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Rows of a prompt.
    Prefill,
    /// The row of a generated token.
    Decode,
}

impl Phase {
    /// The phase's name in spans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// What was asked of the embedding, whichever way it went.
#[derive(Debug, Default, Clone)]
struct Ledger {
    rows_asked: u64,
    resident: u64,
    approximated: u64,
    distinct: HashSet<u32>,
    decode_distinct: HashSet<u32>,
    prefill: RowsRead,
}

/// Totals of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerTotals {
    /// Positions whose row was asked.
    pub rows_asked: u64,
    /// Rows read from the resident matrix.
    pub resident: u64,
    /// Rows that were approximated from the sketch.
    pub approximated: u64,
    /// Distinct token ids among them.
    pub distinct_rows: u64,
    /// Distinct token ids among the generated tokens that were fed back.
    pub decode_distinct_rows: u64,
    /// Body bytes of row replies for prompts.
    pub prefill_received_bytes: u64,
    /// Body bytes of path replies for prompts.
    pub prefill_path_received_bytes: u64,
    /// Round trips for prompts; rows and paths travel together.
    pub prefill_round_trips: u64,
}

impl Traffic {
    /// The meters that a row store counts in.
    #[must_use]
    pub fn store_meters(&self) -> StoreMeters {
        StoreMeters {
            rows: Arc::clone(&self.rows),
            paths: Arc::clone(&self.paths),
            outcomes: Arc::clone(&self.outcomes),
        }
    }

    /// Read options that count in the meter of `kind`, with a stream's patience.
    #[must_use]
    pub fn streaming(&self, kind: Kind) -> ReadOptions {
        let meter = match kind {
            Kind::Probe => &self.probe,
            Kind::Blocks => &self.blocks,
            Kind::Head => &self.head,
        };
        ReadOptions::new(Arc::clone(meter), Patience::Stream)
    }

    /// Notes that rows of `ids` were read in `phase`.
    pub(crate) fn note_rows(&self, ids: &[u32], phase: Phase, read: RowsRead) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.rows_asked += ids.len() as u64;
        ledger.resident += read.resident;
        ledger.approximated += read.approximated;
        ledger.distinct.extend(ids);
        match phase {
            Phase::Prefill => {
                ledger.prefill.received_bytes += read.received_bytes;
                ledger.prefill.path_received_bytes += read.path_received_bytes;
                ledger.prefill.round_trips += read.round_trips;
            }
            Phase::Decode => ledger.decode_distinct.extend(ids),
        }
    }

    /// The ledger's totals so far.
    #[must_use]
    pub fn ledger(&self) -> LedgerTotals {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        LedgerTotals {
            rows_asked: ledger.rows_asked,
            resident: ledger.resident,
            approximated: ledger.approximated,
            distinct_rows: ledger.distinct.len() as u64,
            decode_distinct_rows: ledger.decode_distinct.len() as u64,
            prefill_received_bytes: ledger.prefill.received_bytes,
            prefill_path_received_bytes: ledger.prefill.path_received_bytes,
            prefill_round_trips: ledger.prefill.round_trips,
        }
    }
}

/// Kinds of bytes that this crate reads itself; rows and paths are the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Manifests, a hub's account of a repository, the front of the knot, headers of row tables.
    Probe,
    /// Layers, norms, the tokenizer, the list of hot ids, the sketch of the rows.
    Blocks,
    /// The head.
    Head,
}

/// What one read of rows cost, by its own account: what an abandoned read of another caller moved is
/// in the meters alone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowsRead {
    pub(crate) resident: u64,
    pub(crate) approximated: u64,
    pub(crate) received_bytes: u64,
    pub(crate) path_received_bytes: u64,
    pub(crate) round_trips: u64,
}

impl RowsRead {
    /// What a batch of the store took.
    pub(crate) fn of(report: &FetchReport) -> Self {
        Self {
            resident: 0,
            approximated: 0,
            received_bytes: report.received_bytes,
            path_received_bytes: report.path_received_bytes,
            round_trips: report.round_trips,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_tells_positions_from_ids_and_phases_apart() {
        let traffic = Traffic::default();
        let received_bytes = 10;
        traffic.note_rows(
            &[1, 2, 1],
            Phase::Prefill,
            RowsRead {
                received_bytes,
                ..RowsRead::default()
            },
        );
        traffic.note_rows(
            &[2],
            Phase::Decode,
            RowsRead {
                received_bytes,
                resident: 1,
                ..RowsRead::default()
            },
        );
        traffic.note_rows(&[3], Phase::Decode, RowsRead::default());
        let totals = traffic.ledger();
        assert_eq!(totals.rows_asked, 5);
        assert_eq!(totals.distinct_rows, 3);
        assert_eq!(totals.decode_distinct_rows, 2);
        assert_eq!(totals.resident, 1);
        assert_eq!(totals.prefill_received_bytes, 10);
    }
}
