//! Counts beside the record: instructions may grow by [`TOLERANCE_PERCENT`], allocations not change at all, and a case that
//! one side lacks is a failure, for nobody would notice that it is not compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::counts::Count;

/// Two runs of one build give the same counts; this is room for what a change elsewhere does to inlining, and for other
/// versions of the C library.
const TOLERANCE_PERCENT: u64 = 5;

/// A case on both sides, or on one.
struct Pair<'a> {
    recorded: Option<&'a Count>,
    measured: Option<&'a Count>,
}

/// All cases, in the order of the measurement, those that are no longer measured last.
pub(super) struct Comparison<'a> {
    pairs: Vec<Pair<'a>>,
}

impl<'a> Comparison<'a> {
    pub(super) fn of(recorded: &'a [Count], measured: &'a [Count]) -> Self {
        let key = |count: &'a Count| (count.name.as_str(), count.instruction_set.as_str());
        let mut old: BTreeMap<_, _> = recorded.iter().map(|c| (key(c), c)).collect();
        let mut pairs: Vec<Pair<'_>> = Vec::new();
        for count in measured {
            pairs.push(Pair {
                recorded: old.remove(&key(count)),
                measured: Some(count),
            });
        }
        pairs.extend(old.into_values().map(|count| Pair {
            recorded: Some(count),
            measured: None,
        }));
        Self { pairs }
    }

    /// What does not hold, in words with numbers.
    pub(super) fn failures(&self) -> Vec<String> {
        self.pairs.iter().filter_map(Pair::failure).collect()
    }

    /// What takes fewer instructions than the tolerance.
    pub(super) fn hints(&self) -> Vec<String> {
        self.pairs.iter().filter_map(Pair::hint).collect()
    }

    /// One line: how many cases, and how far from the record.
    pub(super) fn summary(&self) -> String {
        let changes = || self.pairs.iter().filter_map(Pair::change);
        let least = changes().fold(f64::INFINITY, f64::min);
        let most = changes().fold(f64::NEG_INFINITY, f64::max);
        format!(
            "{} counts, instructions {least:+.2} % to {most:+.2} % beside the record",
            self.pairs.len()
        )
    }

    /// For people; what is not measured is not in it.
    pub(super) fn to_table(&self) -> String {
        let mut table = format!(
            "{:<44} {:<8} {:>12} {:>9} {:>11}\n",
            "case", "kernels", "instructions", "change", "allocations"
        );
        for pair in &self.pairs {
            let Some(count) = pair.measured else { continue };
            let change = pair.change();
            let change = change.map_or("new".to_owned(), |change| format!("{change:+.2} %"));
            // Writing to a String cannot fail.
            let _ = writeln!(
                table,
                "{:<44} {:<8} {:>12} {change:>9} {:>11}",
                count.name, count.instruction_set, count.instructions, count.allocations
            );
        }
        table
    }
}

impl Pair<'_> {
    /// Per cent of the recorded instructions, where there are both.
    fn change(&self) -> Option<f64> {
        let (recorded, measured) = (self.recorded?, self.measured?);
        Some(100.0 * (measured.instructions as f64 / recorded.instructions as f64 - 1.0))
    }

    fn failure(&self) -> Option<String> {
        let (recorded, measured) = match (self.recorded, self.measured) {
            (Some(recorded), Some(measured)) => (recorded, measured),
            (None, Some(new)) => return Some(format!("{new}: not in the record")),
            (Some(gone), None) => return Some(format!("{gone}: recorded, but not measured")),
            (None, None) => return None,
        };
        let (was, is) = (recorded.instructions, measured.instructions);
        if is * 100 > was * (100 + TOLERANCE_PERCENT) {
            let change = self.change().unwrap_or_default();
            return Some(format!(
                "{measured}: {is} instructions, recorded {was}: {change:+.1} %, at most +{TOLERANCE_PERCENT} %"
            ));
        }
        let (was, is) = (recorded.allocations, measured.allocations);
        (was != is).then(|| format!("{measured}: {is} allocations, recorded {was}"))
    }

    fn hint(&self) -> Option<String> {
        let (recorded, measured) = (self.recorded?, self.measured?);
        let (was, is) = (recorded.instructions, measured.instructions);
        (is * 100 < was * (100 - TOLERANCE_PERCENT)).then(|| {
            let change = self.change().unwrap_or_default();
            format!("{measured}: {is} instructions, recorded {was}: {change:+.1} %")
        })
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.instruction_set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases by name, instructions and allocations.
    fn counts(cases: &[(&str, u64, u64)]) -> Vec<Count> {
        let count = |&(name, instructions, allocations): &(&str, u64, u64)| Count {
            name: name.to_owned(),
            instruction_set: "avx2".to_owned(),
            instructions,
            allocations,
        };
        cases.iter().map(count).collect()
    }

    /// Failures and number of hints where `was` is recorded and `is` measured.
    fn compared(was: &[(&str, u64, u64)], is: &[(&str, u64, u64)]) -> (Vec<String>, usize) {
        let (was, is) = (counts(was), counts(is));
        let comparison = Comparison::of(&was, &is);
        (comparison.failures(), comparison.hints().len())
    }

    const RECORDED: [(&str, u64, u64); 1] = [("a", 100_000, 3)];

    #[test]
    fn within_the_tolerance_nothing_is_said() {
        for instructions in [95_000, 95_100, 100_000, 104_900, 105_000] {
            let (failures, hints) = compared(&RECORDED, &[("a", instructions, 3)]);
            assert_eq!((failures, hints), (vec![], 0), "{instructions}");
        }
    }

    #[test]
    fn more_instructions_than_the_tolerance_fail() {
        let (failures, _) = compared(&RECORDED, &[("a", 105_100, 3)]);
        let expected =
            "a (avx2): 105100 instructions, recorded 100000: +5.1 %, at most +5 %".to_owned();
        assert_eq!(failures, [expected]);
        assert_eq!(compared(&RECORDED, &[("a", 105_001, 3)]).0.len(), 1);
    }

    #[test]
    fn fewer_instructions_are_a_hint() {
        assert_eq!(compared(&RECORDED, &[("a", 94_900, 3)]), (vec![], 1));
    }

    #[test]
    fn allocations_are_exact_both_ways() {
        for allocations in [2, 4] {
            let (failures, _) = compared(&RECORDED, &[("a", 100_000, allocations)]);
            let expected = format!("a (avx2): {allocations} allocations, recorded 3");
            assert_eq!(failures, [expected]);
        }
    }

    #[test]
    fn a_case_that_one_side_lacks_fails() {
        let (failures, _) = compared(&RECORDED, &[("a", 100_000, 3), ("b", 1, 0)]);
        assert_eq!(failures, ["b (avx2): not in the record".to_owned()]);
        let (failures, _) = compared(&[RECORDED[0], ("b", 1, 0)], &RECORDED);
        assert_eq!(
            failures,
            ["b (avx2): recorded, but not measured".to_owned()]
        );
    }

    #[test]
    fn one_name_on_two_kernels_is_two_cases() {
        let was = counts(&RECORDED);
        let mut is = counts(&RECORDED);
        is[0].instruction_set = "portable".to_owned();
        assert_eq!(Comparison::of(&was, &is).failures().len(), 2);
    }
}
