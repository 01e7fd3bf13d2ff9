//! How many of the planned spans to ask in one request, where an origin answers several. Pure, like
//! the plan; whether the origin does is for its caller to know. Measurements and the reckoning are in
//! docs/decisions/0007.

use crate::ByteRange;

/// Longest `Range` value: origins refuse request heads of 4 KiB (some) or 8 KiB (most).
pub const MAX_RANGE_VALUE_BYTES: u64 = 2048;

/// A reply of this size arrives within one round trip also on a connection that has not carried
/// much: ten segments, TCP's initial window (RFC 6928).
const ONE_TRIP_BYTES: u64 = 10 * 1460;

/// Most content bytes of one reply, so that a lost one costs little.
const MAX_GROUP_BYTES: u64 = 1 << 20;

/// Bytes of a multipart delimiter and the head of a part, as nginx, Apache and lighttpd write them.
pub const PART_BYTES: u64 = 120;

/// Where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// Ranges the origin is trusted to answer in one request; 0 counts as 1.
    pub most_ranges: usize,
    /// Requests that may be started now, this one included; 0 counts as 1.
    pub free_slots: usize,
    /// Bytes one more request costs.
    pub request_cost_bytes: u64,
    /// Length of the object, where it is known.
    pub object_bytes: Option<u64>,
}

/// How many of the first `pending` spans, ascending and disjoint, to ask in the next request: at
/// least 1 unless there are none.
///
/// Several go together if that saves waves or, at equal waves, bytes of heads and framing. Requests
/// are as few as their replies' size allows: those that fit one round trip are not split further,
/// larger ones are spread over the connections.
#[must_use]
pub fn next_group(pending: &[ByteRange], options: &GroupOptions) -> usize {
    let spans = pending.len();
    let most = options.most_ranges.max(1);
    if most == 1 || spans < 2 {
        return spans.min(1);
    }
    let free_slots = options.free_slots.max(1);
    let bytes = pending
        .iter()
        .fold(0_u64, |sum, span| sum.saturating_add(span.len()))
        .saturating_add(PART_BYTES.saturating_mul(spans as u64));
    let one_trip_each = usize::try_from(bytes.div_ceil(ONE_TRIP_BYTES)).unwrap_or(usize::MAX);
    let requests = spans
        .div_ceil(most)
        .max(one_trip_each.min(free_slots))
        .clamp(1, spans);
    let singly = Cost::of(spans, 0, free_slots, options.request_cost_bytes);
    let grouped = Cost::of(requests, spans, free_slots, options.request_cost_bytes);
    if grouped >= singly {
        return 1;
    }
    fitting(&pending[..spans.div_ceil(requests).min(most)], options)
}

/// Waves first, then bytes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    waves: usize,
    bytes: u64,
}

impl Cost {
    fn of(requests: usize, parts: usize, free_slots: usize, request_cost_bytes: u64) -> Self {
        let heads = request_cost_bytes.saturating_mul(requests as u64);
        Self {
            waves: requests.div_ceil(free_slots),
            bytes: heads.saturating_add(PART_BYTES.saturating_mul(parts as u64)),
        }
    }
}

/// How many of `spans` fit one request and its reply.
fn fitting(spans: &[ByteRange], options: &GroupOptions) -> usize {
    let mut value_bytes = "bytes=".len() as u64;
    let mut content_bytes = 0_u64;
    for (index, span) in spans.iter().enumerate() {
        value_bytes += range_text_bytes(*span) + u64::from(index > 0);
        content_bytes = content_bytes.saturating_add(span.len());
        // Servers answer 200 where the parts would outweigh the object: nginx if their sum and 256
        // bytes each exceed it by more than 4 KiB, Go if the sum alone exceeds it.
        let outweighs = options.object_bytes.is_some_and(|object_bytes| {
            content_bytes.saturating_add(256 * (index as u64 + 1)) > object_bytes
        });
        let fits =
            value_bytes <= MAX_RANGE_VALUE_BYTES && content_bytes <= MAX_GROUP_BYTES && !outweighs;
        if !fits {
            return index.max(1);
        }
    }
    spans.len()
}

/// Characters of `first-last`.
fn range_text_bytes(span: ByteRange) -> u64 {
    let digits = |number: u64| u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
    digits(span.start) + 1 + digits(span.end.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HTTP1: GroupOptions = GroupOptions {
        most_ranges: 64,
        free_slots: 16,
        request_cost_bytes: 620,
        object_bytes: None,
    };

    /// `count` rows of `row_bytes`, a thousand rows apart.
    fn rows(count: u64, row_bytes: u64) -> Vec<ByteRange> {
        (0..count)
            .map(|row| {
                let start = row * 1000 * row_bytes;
                ByteRange {
                    start,
                    end: start + row_bytes,
                }
            })
            .collect()
    }

    /// The sizes of all requests, started one after the other until every slot is taken, and anew.
    fn groups(mut pending: &[ByteRange], options: &GroupOptions) -> Vec<usize> {
        let mut sizes = Vec::new();
        while !pending.is_empty() {
            let taken = sizes.len() % options.free_slots;
            let options = GroupOptions {
                free_slots: options.free_slots - taken,
                ..*options
            };
            let size = next_group(pending, &options);
            assert!((1..=pending.len()).contains(&size));
            sizes.push(size);
            pending = &pending[size..];
        }
        sizes
    }

    #[test]
    fn a_prompt_of_109_rows() {
        // 680-byte rows: 87 KB with framing, six replies of one round trip.
        assert_eq!(groups(&rows(109, 680), &HTTP1), [19, 18, 18, 18, 18, 18]);
        let ten = GroupOptions {
            most_ranges: 10,
            ..HTTP1
        };
        assert_eq!(groups(&rows(109, 680), &ten).len(), 11);
        // 8 KiB rows: spread over the connections, still one wave.
        assert_eq!(groups(&rows(109, 8192), &HTTP1).len(), 16);
        assert_eq!(
            groups(
                &rows(109, 680),
                &GroupOptions {
                    most_ranges: 1,
                    ..HTTP1
                }
            )
            .len(),
            109
        );
    }

    #[test]
    fn one_range_is_one_range_and_none_is_none() {
        assert_eq!(next_group(&[], &HTTP1), 0);
        assert_eq!(next_group(&rows(1, 680), &HTTP1), 1);
        assert_eq!(groups(&rows(2, 680), &HTTP1), [2]);
    }

    #[test]
    fn on_http2_a_part_costs_more_than_a_request_unless_waves_are_saved() {
        let http2 = GroupOptions {
            free_slots: 128,
            request_cost_bytes: 100,
            ..HTTP1
        };
        assert_eq!(groups(&rows(109, 680), &http2).len(), 109);
        assert!(groups(&rows(2048, 680), &http2).len() <= 128);
    }

    #[test]
    fn large_spans_go_alone_and_small_objects_are_not_outweighed() {
        let large = rows(40, 900 << 10);
        assert_eq!(groups(&large, &HTTP1), [1; 40]);
        let small = GroupOptions {
            object_bytes: Some(10_000),
            ..HTTP1
        };
        // 9 x (500 + 256) <= 10,000 < 14 x ...
        let group = next_group(&rows(18, 500), &small);
        assert!(group as u64 * (500 + 256) <= 10_000, "{group}");
    }

    proptest! {
        #[test]
        fn every_group_keeps_every_limit(
            starts in proptest::collection::btree_set(0..u64::MAX >> 1, 1..300),
            len in 1..5_000_u64,
            most_ranges in 0..100_usize,
            free_slots in 0..200_usize,
            request_cost_bytes in 0..2_000_u64,
            object_bytes in proptest::option::of(1..u64::MAX),
        ) {
            let spans: Vec<_> = starts.iter().map(|&start| ByteRange { start, end: start + len }).collect();
            let options = GroupOptions { most_ranges, free_slots, request_cost_bytes, object_bytes };
            let mut rest = &spans[..];
            while !rest.is_empty() {
                let size = next_group(rest, &options);
                prop_assert!(size >= 1 && size <= rest.len() && size <= most_ranges.max(1));
                let texts: Vec<_> = rest[..size].iter().map(|span| format!("{}-{}", span.start, span.end - 1)).collect();
                let value = format!("bytes={}", texts.join(","));
                prop_assert!(size == 1 || value.len() as u64 <= MAX_RANGE_VALUE_BYTES);
                rest = &rest[size..];
            }
        }
    }
}
