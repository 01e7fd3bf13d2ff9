//! The `Range` header (RFC 9110, section 14): text in, byte ranges of one object out. Pure.
//!
//! A range header that cannot be honoured is answered with 416, never with the whole object: the
//! readers of this server ask for kilobytes of objects that weigh gigabytes.

use std::ops::Range;

/// More ranges than this in one request are refused.
const MAX_RANGES: usize = 256;

/// What a `Range` header asks of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// No range, or a unit other than bytes, which RFC 9110 says to ignore.
    Whole,
    /// One or more satisfiable ranges, half-open, in the order asked, none empty.
    Parts(Vec<Range<u64>>),
    /// Malformed, excessive, or wholly outside the object.
    Unsatisfiable,
}

/// Reads a `Range` header's value against an object of `len_bytes`.
pub(super) fn parse(header: Option<&str>, len_bytes: u64) -> Asked {
    let Some(header) = header else {
        return Asked::Whole;
    };
    let Some((unit, set)) = header.split_once('=') else {
        return Asked::Unsatisfiable;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Asked::Whole;
    }
    let mut parts = Vec::new();
    for (index, spec) in set.split(',').enumerate() {
        if index >= MAX_RANGES {
            return Asked::Unsatisfiable;
        }
        match one(spec.trim_matches([' ', '\t']), len_bytes) {
            Spec::Malformed => return Asked::Unsatisfiable,
            Spec::Outside => {}
            Spec::Inside(range) => parts.push(range),
        }
    }
    // A set that asks for more than the object is an amplification, not a need.
    let total = parts
        .iter()
        .try_fold(0_u64, |sum, part| sum.checked_add(part.end - part.start));
    match total {
        Some(total) if total > 0 && total <= len_bytes => Asked::Parts(parts),
        _ => Asked::Unsatisfiable,
    }
}

enum Spec {
    Malformed,
    Outside,
    Inside(Range<u64>),
}

/// `first-last`, `first-` or `-suffix`.
fn one(spec: &str, len_bytes: u64) -> Spec {
    let Some((first, last)) = spec.split_once('-') else {
        return Spec::Malformed;
    };
    match (digits(first), digits(last)) {
        (Digits::Number(first), Digits::Number(last)) if first <= last => {
            if first >= len_bytes {
                Spec::Outside
            } else {
                Spec::Inside(first..last.saturating_add(1).min(len_bytes))
            }
        }
        (Digits::Number(first), Digits::None) => {
            if first >= len_bytes {
                Spec::Outside
            } else {
                Spec::Inside(first..len_bytes)
            }
        }
        (Digits::None, Digits::Number(suffix)) => {
            if suffix == 0 || len_bytes == 0 {
                Spec::Outside
            } else {
                Spec::Inside(len_bytes.saturating_sub(suffix)..len_bytes)
            }
        }
        _ => Spec::Malformed,
    }
}

enum Digits {
    None,
    Number(u64),
    Other,
}

/// Digits only (`u64::from_str` would take a `+`); a number too large for u64 is beyond any object.
fn digits(text: &str) -> Digits {
    if text.is_empty() {
        Digits::None
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        Digits::Number(text.parse().unwrap_or(u64::MAX))
    } else {
        Digits::Other
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::single_range_in_vec_init,
        reason = "one range is what is meant"
    )]

    use super::{Asked, parse};

    #[track_caller]
    fn check(header: &str, len_bytes: u64, expected: &[std::ops::Range<u64>]) {
        assert_eq!(
            parse(Some(header), len_bytes),
            Asked::Parts(expected.to_vec()),
            "{header}"
        );
    }

    #[track_caller]
    fn refused(header: &str, len_bytes: u64) {
        assert_eq!(
            parse(Some(header), len_bytes),
            Asked::Unsatisfiable,
            "{header}"
        );
    }

    #[test]
    fn single_ranges_are_half_open_and_clipped() {
        check("bytes=0-9", 100, &[0..10]);
        check("bytes=90-200", 100, &[90..100]);
        check("bytes=99-", 100, &[99..100]);
        check("bytes=-7", 100, &[93..100]);
        check("bytes=-700", 100, &[0..100]);
        check("BYTES=5-5", 100, &[5..6]);
        check("bytes=0-18446744073709551615", 100, &[0..100]);
        check("bytes=0-99999999999999999999999", 100, &[0..100]);
    }

    #[test]
    fn sets_keep_their_order_and_drop_what_lies_outside() {
        check("bytes=50-59, 0-9", 100, &[50..60, 0..10]);
        check("bytes=0-9,500-600", 100, &[0..10]);
    }

    #[test]
    fn what_cannot_be_honoured_is_unsatisfiable_never_whole() {
        for header in [
            "bytes=100-",
            "bytes=-0",
            "bytes=9-0",
            "bytes=",
            "bytes=a-b",
            "bytes=1",
            "bytes",
            "bytes=+1-2",
            "bytes=0-9,,20-29",
            "bytes=--5",
            "bytes=0-80,10-90",
        ] {
            refused(header, 100);
        }
        refused("bytes=0-0", 0);
        refused(&format!("bytes={}", vec!["0-0"; 257].join(",")), 1 << 40);
    }

    #[test]
    fn other_units_and_no_header_mean_the_whole() {
        assert_eq!(parse(Some("rows=0-9"), 100), Asked::Whole);
        assert_eq!(parse(None, 100), Asked::Whole);
    }

    proptest::proptest! {
        #[test]
        fn parts_lie_inside_and_do_not_amplify(set in "bytes=[-0-9, ]{0,40}", len_bytes in 0_u64..2_000) {
            if let Asked::Parts(parts) = parse(Some(&set), len_bytes) {
                assert!(!parts.is_empty());
                assert!(parts.iter().all(|part| part.start < part.end && part.end <= len_bytes));
                assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= len_bytes);
            }
        }
    }
}
