//! One wave of reads: wanted ranges in, their bytes out, through the transport's planner. Knows
//! neither rows nor hashes; both rows and paths are fetched with it.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use helix_transport::{
    ByteRange, Error, RangeSource, ReadOptions,
    plan::{PlanOptions, Span, plan},
};

use crate::row_map::RowMap;

/// How ranges of one batch may be merged; the cost of a request is the source's own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeLimits {
    pub overfetch_ratio: f64,
    pub max_span_bytes: u64,
}

/// What came of one wave.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// For each wanted range, in order, its bytes (a view of its reply) or why there are none.
    pub pieces: Vec<Result<Bytes, Arc<Error>>>,
    pub received_bytes: u64,
    pub requests: u64,
    pub round_trips: u64,
}

/// Reads `wanted`, which must be ascending, disjoint and not empty, in as few requests as the
/// limits allow, all started together. One failed reply fails only the ranges in it.
pub(crate) async fn gather(
    source: &dyn RangeSource,
    wanted: &[ByteRange],
    limits: MergeLimits,
    options: &ReadOptions,
) -> Gathered {
    let plan = plan(
        wanted,
        &PlanOptions {
            overfetch_ratio: limits.overfetch_ratio,
            max_span_bytes: limits.max_span_bytes,
            request_cost_bytes: source.request_cost_bytes(),
        },
    );
    let spans: Vec<ByteRange> = plan.spans.iter().map(|span| span.range).collect();
    let many = source.read_many(&spans, options).await;
    let mut gathered = Gathered {
        requests: many.requests,
        round_trips: many.round_trips,
        ..Gathered::default()
    };
    let mut replies = many.replies.into_iter();
    for span in &plan.spans {
        let wanted = &plan.wanted[span.wanted.clone()];
        // A source promises a reply for every range, and the whole range; a decorator that breaks
        // the promise must not turn into a panic or a short row here.
        let reply = replies
            .next()
            .unwrap_or_else(|| Ok(Bytes::new()))
            .and_then(|body| whole(source, span.range, body));
        match reply {
            Ok(body) => {
                gathered.received_bytes += body.len() as u64;
                let pieces = wanted
                    .iter()
                    .map(|range| Ok(body.slice(inside(span, *range))));
                gathered.pieces.extend(pieces);
            }
            Err(error) => {
                gathered
                    .pieces
                    .extend(wanted.iter().map(|_| Err(Arc::clone(&error))));
            }
        }
    }
    gathered
}

fn whole(source: &dyn RangeSource, range: ByteRange, body: Bytes) -> Result<Bytes, Arc<Error>> {
    let found_bytes = body.len() as u64;
    if found_bytes == range.len() {
        return Ok(body);
    }
    Err(Arc::new(Error::WrongLength {
        object: source.name().to_owned(),
        range,
        found_bytes,
    }))
}

/// Where `range` lies in the body of `span`, which holds it whole.
fn inside(span: &Span, range: ByteRange) -> Range<usize> {
    // A body is in memory, so offsets into it fit.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the span's bytes are in memory"
    )]
    let at = |offset: u64| (offset - span.range.start) as usize;
    at(range.start)..at(range.end)
}

/// Checks that the rows of `map` lie inside `source`, as far as its length is known by now.
pub(crate) fn check_object(source: &dyn RangeSource, map: &RowMap) -> Result<(), crate::Error> {
    match source.version() {
        Some(version) => map.check_object(source.name(), version.len_bytes),
        None => Ok(()),
    }
}
