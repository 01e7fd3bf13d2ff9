//! The planner against its promises, against a slow greedy one, and against exhaustive search.

use proptest::prelude::*;

use super::*;

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

fn ranges(spans: &[(u64, u64)]) -> Vec<ByteRange> {
    spans
        .iter()
        .map(|&(start, end)| range(start, end))
        .collect()
}

fn span_ranges(plan: &Plan) -> Vec<ByteRange> {
    plan.spans.iter().map(|span| span.range).collect()
}

/// Ranges that crowd, touch, overlap, repeat and are sometimes empty.
fn any_wanted(most: usize) -> impl Strategy<Value = Vec<ByteRange>> {
    prop::collection::vec((0_u64..4000, 0_u64..60), 0..most).prop_map(|pairs| {
        pairs
            .iter()
            .map(|&(start, len)| range(start, start + len))
            .collect()
    })
}

fn any_options() -> impl Strategy<Value = PlanOptions> {
    (0.0_f64..0.8, 0_u64..200, 1_u64..1500).prop_map(
        |(overfetch_ratio, request_cost_bytes, max_span_bytes)| PlanOptions {
            overfetch_ratio,
            request_cost_bytes,
            max_span_bytes,
        },
    )
}

/// The same rule, slowly: look through all neighbours for the smallest gap that may be joined, join
/// it, begin again.
fn slow_plan(wanted: &[ByteRange], options: &PlanOptions) -> Vec<ByteRange> {
    let mut bytes: Vec<u64> = wanted
        .iter()
        .flat_map(|range| range.start..range.end)
        .collect();
    bytes.sort_unstable();
    bytes.dedup();
    let mut rest = budget_bytes(bytes.len() as u64, options.overfetch_ratio);
    // Overlapping ranges are one; touching ones are two with a gap of nothing.
    let mut spans: Vec<ByteRange> = Vec::new();
    let mut sorted: Vec<_> = wanted.iter().filter(|range| !range.is_empty()).collect();
    sorted.sort();
    for range in sorted {
        match spans.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => spans.push(*range),
        }
    }
    loop {
        let joinable = (1..spans.len())
            .map(|right| (spans[right].start - spans[right - 1].end, right))
            .filter(|&(gap, right)| {
                gap <= options.request_cost_bytes
                    && spans[right].end - spans[right - 1].start <= options.max_span_bytes
            })
            .min();
        match joinable {
            Some((gap, right)) if gap <= rest => {
                rest -= gap;
                spans[right - 1].end = spans[right].end;
                spans.remove(right);
            }
            _ => return spans,
        }
    }
}

/// The least that requests and gap bytes can cost within the budget, over all 2^n choices.
fn least_cost(wanted: &[ByteRange], options: &PlanOptions) -> u64 {
    let alone = plan(
        wanted,
        &PlanOptions {
            request_cost_bytes: 0,
            max_span_bytes: 0,
            ..*options
        },
    );
    let gaps: Vec<u64> = alone
        .spans
        .windows(2)
        .map(|w| w[1].range.start - w[0].range.end)
        .collect();
    let budget = budget_bytes(alone.wanted_bytes, options.overfetch_ratio);
    (0..1_u32 << gaps.len())
        .filter_map(|choice| {
            let joined = gaps
                .iter()
                .enumerate()
                .filter(|(index, _)| choice >> index & 1 == 1);
            let (count, bytes) = joined.fold((0, 0), |(n, sum), (_, gap)| (n + 1, sum + gap));
            let requests = alone.spans.len() as u64 - count;
            (bytes <= budget).then(|| requests * options.request_cost_bytes + bytes)
        })
        .min()
        .unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn every_promise_holds(wanted in any_wanted(60), options in any_options()) {
        let plan = plan(&wanted, &options);

        let mut expected: Vec<_> = wanted.iter().copied().filter(|r| !r.is_empty()).collect();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(&plan.wanted, &expected);

        let mut next_wanted = 0;
        for span in &plan.spans {
            prop_assert_eq!(span.wanted.start, next_wanted);
            prop_assert!(span.wanted.start < span.wanted.end);
            next_wanted = span.wanted.end;
            let inside = &plan.wanted[span.wanted.clone()];
            prop_assert!(inside.iter().all(|range| span.range.contains(*range)));
            prop_assert_eq!(span.range.start, inside[0].start);
            prop_assert_eq!(span.range.end, inside.iter().map(|r| r.end).max().unwrap());
        }
        prop_assert_eq!(next_wanted, plan.wanted.len());
        for pair in plan.spans.windows(2) {
            prop_assert!(pair[0].range.end <= pair[1].range.start, "disjoint and ascending");
        }

        let distinct: std::collections::BTreeSet<u64> =
            wanted.iter().flat_map(|r| r.start..r.end).collect();
        prop_assert_eq!(plan.wanted_bytes, distinct.len() as u64);
        prop_assert_eq!(plan.span_bytes, plan.spans.iter().map(|s| s.range.len()).sum::<u64>());
        let overfetch = plan.span_bytes - plan.wanted_bytes;
        prop_assert!(overfetch as f64 <= plan.wanted_bytes as f64 * options.overfetch_ratio);
    }

    #[test]
    fn equal_to_the_slow_one(wanted in any_wanted(40), options in any_options()) {
        prop_assert_eq!(span_ranges(&plan(&wanted, &options)), slow_plan(&wanted, &options));
    }

    #[test]
    fn without_a_cap_nothing_is_cheaper(wanted in any_wanted(14), options in any_options()) {
        let options = PlanOptions { max_span_bytes: u64::MAX, ..options };
        let plan = plan(&wanted, &options);
        let overfetch = plan.span_bytes - plan.wanted_bytes;
        let cost = plan.spans.len() as u64 * options.request_cost_bytes + overfetch;
        prop_assert_eq!(cost, least_cost(&wanted, &options));
    }

    #[test]
    fn the_order_of_the_wanted_does_not_matter(
        wanted in any_wanted(40).prop_shuffle(),
        options in any_options(),
    ) {
        let mut reversed = wanted.clone();
        reversed.reverse();
        prop_assert_eq!(plan(&wanted, &options), plan(&reversed, &options));
    }
}

#[test]
fn nothing_wanted_is_nothing_asked() {
    assert_eq!(plan(&[], &PlanOptions::default()), Plan::default());
    let inverted = range(9, 3);
    assert_eq!(
        plan(&[range(5, 5), inverted], &PlanOptions::default()),
        Plan::default()
    );
}

#[test]
fn touching_ranges_join_up_to_the_cap() {
    let options = PlanOptions {
        max_span_bytes: 20,
        ..PlanOptions::default()
    };
    let plan = plan(&ranges(&[(0, 10), (10, 20), (20, 30)]), &options);
    assert_eq!(span_ranges(&plan), ranges(&[(0, 20), (20, 30)]));
    assert_eq!(plan.spans[0].wanted, 0..2);
}

#[test]
fn a_range_above_the_cap_stays_whole() {
    let options = PlanOptions {
        max_span_bytes: 20,
        ..PlanOptions::default()
    };
    let plan = plan(&ranges(&[(0, 500), (500, 510)]), &options);
    assert_eq!(span_ranges(&plan), ranges(&[(0, 500), (500, 510)]));
}

#[test]
fn the_smallest_gap_goes_first() {
    // 300 wanted bytes at 5 % are 15 bytes of budget: the gap of 8 fits, then not the one of 9.
    let options = PlanOptions::default();
    let plan = plan(&ranges(&[(0, 100), (109, 209), (217, 317)]), &options);
    assert_eq!(span_ranges(&plan), ranges(&[(0, 100), (109, 317)]));
}

#[test]
fn a_budget_that_is_no_number_buys_nothing() {
    let wanted = ranges(&[(0, 100), (101, 200)]);
    for overfetch_ratio in [f64::NAN, -1.0, f64::NEG_INFINITY] {
        let options = PlanOptions {
            overfetch_ratio,
            ..PlanOptions::default()
        };
        assert_eq!(plan(&wanted, &options).spans.len(), 2);
    }
    let options = PlanOptions {
        overfetch_ratio: f64::INFINITY,
        ..PlanOptions::default()
    };
    assert_eq!(plan(&wanted, &options).spans.len(), 1);
}

#[test]
fn the_ends_of_u64_are_no_trouble() {
    let wanted = ranges(&[
        (u64::MAX - 10, u64::MAX),
        (0, 10),
        (u64::MAX - 30, u64::MAX - 20),
    ]);
    let options = PlanOptions {
        overfetch_ratio: 1.0,
        ..PlanOptions::default()
    };
    let plan = plan(&wanted, &options);
    assert_eq!(
        span_ranges(&plan),
        ranges(&[(0, 10), (u64::MAX - 30, u64::MAX)])
    );
}

#[test]
fn uniform_rows_of_a_large_table_move_hardly_more_than_themselves() {
    // 200 ids spread over 151,936 rows of 1,792 bytes. A fixed gap of 1 MiB moves 135 times that.
    let wanted: Vec<ByteRange> = (0..200_u64)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 151_936 * 1792)
        .map(|start| range(start, start + 1792))
        .collect();
    let plan = plan(&wanted, &PlanOptions::default());
    assert!(plan.span_bytes as f64 <= plan.wanted_bytes as f64 * 1.05);
    assert!(plan.spans.len() <= 200);
}
