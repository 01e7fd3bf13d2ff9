//! Neighbouring payloads that are streamed with one request. Pure.
//! A model has hundreds of norms of a few kilobytes: a request for each would cost more round trips
//! than bytes. Unlike the row planner this one never reads what nobody asked, but for alignment.

use std::ops::Range;

/// Payloads are aligned to 64 bytes: a smaller gap between two is padding.
const PADDING_BYTES: u64 = 64;

/// Most bytes of a group of several payloads, so that streams run side by side. Layers of small
/// models have one to two of these MiB: a few arrive at a time, not all of them at the end, for some
/// 500 bytes of heads each.
pub(crate) const GROUP_BYTES: u64 = 2 << 20;

/// Neighbouring payloads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Bytes of the object to stream.
    pub(crate) range: Range<u64>,
    /// Places of its payloads in the list that was grouped, ascending by offset.
    pub(crate) members: Vec<usize>,
}

/// Groups `ranges`, which may come in any order; empty ones are in no group. A payload that
/// overlaps its predecessor starts a group of its own.
pub(crate) fn group(ranges: &[Range<u64>], group_bytes: u64) -> Vec<Group> {
    let mut order: Vec<usize> = (0..ranges.len())
        .filter(|&at| !ranges[at].is_empty())
        .collect();
    order.sort_by_key(|&at| (ranges[at].start, ranges[at].end));
    let mut groups: Vec<Group> = Vec::new();
    for at in order {
        let range = &ranges[at];
        match groups.last_mut() {
            Some(open)
                if range.start >= open.range.end
                    && range.start - open.range.end < PADDING_BYTES
                    && range.end - open.range.start <= group_bytes =>
            {
                open.range.end = range.end;
                open.members.push(at);
            }
            _ => groups.push(Group {
                range: range.clone(),
                members: vec![at],
            }),
        }
    }
    groups
}

/// The bytes of the first of `ranges`, ascending and not empty, and of those that follow it with
/// nothing but padding between.
pub(crate) fn run(ranges: impl IntoIterator<Item = Range<u64>>) -> Range<u64> {
    let mut ranges = ranges.into_iter();
    let mut run = ranges.next().unwrap_or(0..0);
    for range in ranges {
        if range.start < run.end || range.start - run.end >= PADDING_BYTES {
            break;
        }
        run.end = range.end;
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(ranges: &[Range<u64>], group_bytes: u64) -> Vec<Vec<usize>> {
        group(ranges, group_bytes)
            .into_iter()
            .map(|group| group.members)
            .collect()
    }

    #[test]
    fn neighbours_go_together_up_to_the_limit() {
        let ranges = [0..100, 128..200, 256..300, 320..1000];
        assert_eq!(members(&ranges, 300), [vec![0, 1, 2], vec![3]]);
        assert_eq!(group(&ranges, 300)[0].range, 0..300);
        assert_eq!(
            members(&ranges, 10),
            [vec![0], vec![1], vec![2], vec![3]],
            "none is lost to a limit"
        );
    }

    #[test]
    fn gaps_that_hold_something_part_groups() {
        assert_eq!(members(&[0..100, 164..200], 1000), [vec![0], vec![1]]);
        assert_eq!(members(&[0..100, 163..200], 1000), [vec![0, 1]]);
    }

    #[test]
    fn order_overlap_and_emptiness() {
        assert_eq!(
            members(&[300..310, 0..10, 5..5, 10..20], 1000),
            [vec![1, 3], vec![0]]
        );
        assert_eq!(members(&[0..10, 0..10], 1000), [vec![0], vec![1]]);
        assert!(group(&[], 1).is_empty());
    }

    #[test]
    fn a_run_ends_where_something_lies_between() {
        assert_eq!(run([10..20, 64..80, 100..130]), 10..130);
        assert_eq!(run([10..20, 84..90]), 10..20);
        assert_eq!(run([10..20, 15..90]), 10..20, "overlap");
        assert_eq!(run([]), 0..0);
    }
}
