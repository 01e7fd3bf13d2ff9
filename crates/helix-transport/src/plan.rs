//! The planner: which spans to ask so that every wanted range is covered, with few requests and
//! few bytes nobody wanted. Pure and deterministic; not a scheduler and not a fetcher.
//!
//! Neighbouring ranges are joined across a gap when that is cheaper than a request of its own, the
//! smallest gap first, as long as all gaps together stay within the overfetch budget. Without the
//! span cap this order is optimal: the sum of request costs and gap bytes is the least that the
//! budget allows, because the k smallest gaps are the cheapest k (tested against exhaustive search).
//! A fixed gap, as object stores' clients have, is not: 1 MiB moves 135 times the needed bytes for
//! 200 rows of a 272 MB table.

use std::ops::Range;

use crate::ByteRange;

mod group;

pub use group::{GroupOptions, MAX_RANGE_VALUE_BYTES, PART_BYTES, next_group};

/// What the planner may spend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanOptions {
    /// Unwanted bytes allowed, as a share of the wanted ones (0.05 = 5 %).
    pub overfetch_ratio: f64,
    /// Bytes one more request costs; a wider gap is never joined. See
    /// [`RangeSource::request_cost_bytes`](crate::RangeSource::request_cost_bytes).
    pub request_cost_bytes: u64,
    /// Longest span that joining may make. A wanted range that is longer stays whole.
    pub max_span_bytes: u64,
}

impl Default for PlanOptions {
    /// 5 % overfetch, 620 bytes a request (one HTTP/1.1 exchange: both heads and TLS records),
    /// spans of at most 1 MiB (so that one lost reply costs little).
    fn default() -> Self {
        Self {
            overfetch_ratio: 0.05,
            request_cost_bytes: 620,
            max_span_bytes: 1 << 20,
        }
    }
}

/// One range to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The bytes to ask.
    pub range: ByteRange,
    /// The wanted ranges inside it, as indexes into [`Plan::wanted`].
    pub wanted: Range<usize>,
}

/// The spans that cover a set of wanted ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The wanted ranges, ascending by start, each once, without empty ones.
    pub wanted: Vec<ByteRange>,
    /// Disjoint and ascending. Every wanted range lies wholly inside exactly one.
    pub spans: Vec<Span>,
    /// Distinct bytes that are wanted.
    pub wanted_bytes: u64,
    /// Bytes the spans move.
    pub span_bytes: u64,
}

/// Wanted ranges that overlap: they share bytes, so no plan may part them.
#[derive(Clone, Copy)]
struct Cluster {
    range: ByteRange,
    first_wanted: usize,
}

/// Plans the spans for `wanted`, in any order, with repetitions allowed.
///
/// Empty and inverted ranges need no bytes and are left out.
#[must_use]
pub fn plan(wanted: &[ByteRange], options: &PlanOptions) -> Plan {
    let mut wanted: Vec<ByteRange> = wanted
        .iter()
        .copied()
        .filter(|range| !range.is_empty())
        .collect();
    wanted.sort_unstable();
    wanted.dedup();

    let clusters = clusters(&wanted);
    let wanted_bytes = clusters.iter().map(|cluster| cluster.range.len()).sum();
    let joined = join(
        &clusters,
        budget_bytes(wanted_bytes, options.overfetch_ratio),
        options,
    );

    let mut spans: Vec<Span> = Vec::new();
    for (index, cluster) in clusters.iter().enumerate() {
        let next_wanted = clusters
            .get(index + 1)
            .map_or(wanted.len(), |next| next.first_wanted);
        match spans.last_mut() {
            Some(span) if index > 0 && joined[index - 1] => {
                span.range.end = cluster.range.end;
                span.wanted.end = next_wanted;
            }
            _ => spans.push(Span {
                range: cluster.range,
                wanted: cluster.first_wanted..next_wanted,
            }),
        }
    }
    let span_bytes = spans.iter().map(|span| span.range.len()).sum();
    Plan {
        wanted,
        spans,
        wanted_bytes,
        span_bytes,
    }
}

fn clusters(wanted: &[ByteRange]) -> Vec<Cluster> {
    let mut clusters: Vec<Cluster> = Vec::with_capacity(wanted.len());
    for (index, range) in wanted.iter().enumerate() {
        match clusters.last_mut() {
            Some(last) if range.start < last.range.end => {
                last.range.end = last.range.end.max(range.end);
            }
            _ => clusters.push(Cluster {
                range: *range,
                first_wanted: index,
            }),
        }
    }
    clusters
}

/// For each gap, in the order of the clusters before it, whether it is joined.
fn join(clusters: &[Cluster], budget_bytes: u64, options: &PlanOptions) -> Vec<bool> {
    let gap = |left: usize| clusters[left + 1].range.start - clusters[left].range.end;
    let mut order: Vec<usize> = (0..clusters.len().saturating_sub(1))
        .filter(|&left| gap(left) <= options.request_cost_bytes)
        .collect();
    order.sort_by_key(|&left| (gap(left), left));

    // For the first and the last cluster of each span so far, the cluster at its other end.
    let mut other_end: Vec<usize> = (0..clusters.len()).collect();
    let mut joined = vec![false; clusters.len().saturating_sub(1)];
    let mut rest_bytes = budget_bytes;
    for left in order {
        if gap(left) > rest_bytes {
            break;
        }
        let (first, last) = (other_end[left], other_end[left + 1]);
        let span = ByteRange {
            start: clusters[first].range.start,
            end: clusters[last].range.end,
        };
        if span.len() > options.max_span_bytes {
            continue;
        }
        rest_bytes -= gap(left);
        joined[left] = true;
        other_end[first] = last;
        other_end[last] = first;
    }
    joined
}

/// Rounded down; a ratio that is negative or not a number buys nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float to integer cast saturates, and NaN becomes 0: both are meant"
)]
fn budget_bytes(wanted_bytes: u64, overfetch_ratio: f64) -> u64 {
    (wanted_bytes as f64 * overfetch_ratio) as u64
}

#[cfg(test)]
mod tests;
