//! Degraded mode: what stands in for rows whose origin cannot be reached, where the operator allows
//! it. A local knot that holds the matrix has the rows themselves; else its sketch approximates them.
//! Approximations are counted, told to whoever gets an answer, and never kept. Wrong bytes, a changed
//! object or refused credentials are no outage: they stay errors. Specification of the sketch:
//! docs/format/embed-sketch.md.

use crate::embedding::{DenseTable, HeldRow};
use crate::error::Error;
use crate::knot::{OpenKnot, WantedPayload};
use crate::traffic::{Kind, Traffic};
use bytes::Bytes;
use columnar_embed::Row;
use gkq_v2::{Block, EmbedSketch, SectionKind};
use helix_transport::ErrorKind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Least and longest time for which an origin that failed is not asked. In between it is as long as
/// the failed read took, so that at most half of a station's time is spent waiting for a dead origin.
const HOLD_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Stands in for the rows of one matrix.
#[derive(Debug)]
pub struct StandIn {
    sketch: EmbedSketch<Bytes>,
    exact: Option<KnotRows>,
    outage: Outage,
}

/// The matrix of a local knot, read and checked when it is needed first.
#[derive(Debug)]
struct KnotRows {
    knot: Arc<OpenKnot>,
    wanted: WantedPayload,
    row_bytes: usize,
    table: OnceCell<DenseTable>,
}

/// Whether the origin is taken for unreachable now.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Instant>>);

/// Rows of a batch, and what they are.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) rows: Vec<HeldRow>,
    /// Positions whose row is the knot's own.
    pub(crate) resident: u64,
    /// Positions whose row is an approximation.
    pub(crate) approximated: u64,
}

impl StandIn {
    /// Reads the sketch of `block` from `knot`. `exact` says whether a local knot's own matrix may
    /// be read instead.
    ///
    /// # Errors
    /// [`Error::Config`] for a knot without a sketch, [`Error::Knot`] for one that is damaged, and
    /// whatever keeps its bytes from being had.
    pub async fn load(
        knot: &Arc<OpenKnot>,
        block: &Block,
        exact: Exact,
        traffic: &Traffic,
    ) -> Result<Self, Error> {
        let section = knot.front().section_of(&block.name, SectionKind::Sketch);
        let section = section.ok_or_else(|| {
            Error::config(format!(
                "knot {} has no sketch of {}: pack it with --embed-sketch RANK, or give \
                 --embed-on-failure error",
                knot.locator(),
                block.name
            ))
        })?;
        let wanted = WantedPayload::section(section, "sketch of the vocabulary matrix");
        let bytes = knot.payloads(&[wanted], Kind::Blocks, traffic).await?;
        let bytes = bytes.into_iter().next().ok_or(Error::Lost {
            what: "the sketch's payload",
        })?;
        let &[rows, cols] = block.shape.as_slice() else {
            return Err(Error::Lost {
                what: "the shape of the vocabulary matrix",
            });
        };
        let sketch = EmbedSketch::parse(bytes, rows, cols)
            .map_err(|source| Error::knot(knot.locator(), source))?;
        let row_bytes = block.dtype().row_bytes(cols);
        let row_bytes = row_bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let at_hand = !block.is_external() && knot.mapped(&block.payload).is_some();
        let exact = row_bytes.filter(|_| at_hand && exact == Exact::Allowed);
        Ok(Self {
            sketch,
            exact: exact.map(|row_bytes| KnotRows {
                knot: Arc::clone(knot),
                wanted: WantedPayload::block(block),
                row_bytes,
                table: OnceCell::new(),
            }),
            outage: Outage::default(),
        })
    }

    pub(crate) fn outage(&self) -> &Outage {
        &self.outage
    }

    /// Fills the holes of `found`, which answers `ids`: from the knot's own matrix where that is at
    /// hand, else from the sketch. Warns once.
    pub(crate) async fn complete(
        &self,
        ids: &[u32],
        found: Vec<Option<Row>>,
        traffic: &Traffic,
    ) -> Result<Completed, Error> {
        let exact = match &self.exact {
            Some(rows) if found.iter().any(Option::is_none) => Some(rows.table(traffic).await?),
            _ => None,
        };
        let (mut resident, mut approximated) = (0, 0);
        let mut near: HashMap<u32, Bytes> = HashMap::new();
        let mut rows = Vec::with_capacity(ids.len());
        for (&id, row) in ids.iter().zip(found) {
            rows.push(match (row, &exact) {
                (Some(row), _) => HeldRow::Cached(row),
                (None, Some(table)) => {
                    resident += 1;
                    HeldRow::Slice(table.row(id)?)
                }
                (None, None) => {
                    approximated += 1;
                    let known = near.get(&id).cloned();
                    let row = known.map_or_else(|| self.approximation(id), Ok)?;
                    near.insert(id, row.clone());
                    HeldRow::Approximated(row)
                }
            });
        }
        if approximated > 0 {
            let header = self.sketch.header();
            tracing::warn!(
                approximated,
                rank = header.rank,
                relative_error = header.error.relative,
                "the origin of the rows cannot be reached: rows are APPROXIMATED from the sketch"
            );
        } else if resident > 0 {
            tracing::warn!(
                resident,
                "the origin of the rows cannot be reached: rows are read from the knot's own matrix"
            );
        }
        Ok(Completed {
            rows,
            resident,
            approximated,
        })
    }

    /// Row `id` of the sketch, as little-endian f32.
    fn approximation(&self, id: u32) -> Result<Bytes, Error> {
        let values = self.sketch.row(id.into()).ok_or(Error::TokenId {
            id,
            vocabulary: self.sketch.header().rows,
        })?;
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Ok(bytes.into())
    }
}

/// Whether a local knot's own matrix may answer instead of the sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exact {
    /// Yes.
    Allowed,
    /// No: the operator wants every row from the store.
    Refused,
}

impl KnotRows {
    async fn table(&self, traffic: &Traffic) -> Result<DenseTable, Error> {
        let read = async || {
            let wanted = [self.wanted.clone()];
            let bytes = self.knot.payloads(&wanted, Kind::Head, traffic).await?;
            let bytes = bytes.into_iter().next().ok_or(Error::Lost {
                what: "the matrix's payload",
            })?;
            Ok(DenseTable::new(bytes, self.row_bytes))
        };
        self.table.get_or_try_init(read).await.cloned()
    }
}

impl Outage {
    /// Whether the origin is not to be asked now.
    pub(crate) fn holds(&self) -> bool {
        self.lock().is_some_and(|until| Instant::now() < until)
    }

    /// A read failed that took so long.
    pub(crate) fn begin(&self, after: Duration) {
        let (least, longest) = HOLD_OFF;
        *self.lock() = Some(Instant::now() + after.clamp(least, longest));
    }

    /// The origin has answered.
    pub(crate) fn end(&self) {
        if self.lock().take().is_some() {
            tracing::info!("the origin of the rows answers again");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a row could not be had because its origin cannot be reached: after the transport's
/// retries, and not for anything that the origin said or sent.
pub(crate) fn is_outage(error: &columnar_embed::Error) -> bool {
    matches!(error, columnar_embed::Error::Read { source, .. } if source.kind() == ErrorKind::Transient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use helix_transport::Error as WireError;

    #[tokio::test(start_paused = true)]
    async fn a_dead_origin_is_asked_half_of_the_time_at_most() {
        let outage = Outage::default();
        assert!(!outage.holds());
        for (took_ms, held_ms) in [(1, 1_000), (10_000, 10_000), (60_000, 30_000)] {
            outage.begin(Duration::from_millis(took_ms));
            tokio::time::advance(Duration::from_millis(held_ms - 1)).await;
            assert!(outage.holds(), "{took_ms}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!outage.holds(), "{took_ms}");
        }
        outage.begin(Duration::from_secs(9));
        outage.end();
        assert!(!outage.holds(), "it answered");
    }

    #[test]
    fn only_an_origin_that_cannot_be_reached_is_an_outage() {
        let read = |source| columnar_embed::Error::Read {
            object: "rows".to_owned(),
            source: Arc::new(source),
        };
        let io = |kind: std::io::ErrorKind| WireError::Io {
            object: "rows".to_owned(),
            source: kind.into(),
        };
        let interrupted = WireError::Interrupted {
            object: "rows".to_owned(),
            range: helix_transport::ByteRange::new(0, 1).unwrap(),
            received_bytes: 0,
            source: None,
        };
        assert!(is_outage(&read(interrupted)));
        assert!(!is_outage(&read(io(std::io::ErrorKind::NotFound))));
        let integrity = columnar_embed::Error::RowIntegrity {
            object: "rows".to_owned(),
            row: columnar_embed::RowId(0),
            expected: [0; 16],
            found: [1; 16],
        };
        assert!(!is_outage(&integrity));
        let stopped = columnar_embed::Error::LoadStopped {
            object: "rows".to_owned(),
            rows: 1,
        };
        assert!(!is_outage(&stopped), "a fault of this process");
    }
}
