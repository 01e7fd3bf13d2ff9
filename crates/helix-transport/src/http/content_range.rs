//! `Content-Range` as a type (RFC 9110 section 14.4). Strict: units other than bytes, signs, spaces
//! inside the numbers and reversed or overlong ranges are refused.

use crate::ByteRange;

/// The value of a `Content-Range` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentRange {
    /// `bytes first-last/total`, as a half-open range; `total` is `None` for `*`.
    Satisfied {
        range: ByteRange,
        total_bytes: Option<u64>,
    },
    /// `bytes */total`: no such bytes.
    Unsatisfied { total_bytes: u64 },
}

impl ContentRange {
    pub(super) fn parse(value: &str) -> Option<Self> {
        let (unit, rest) = value.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (span, total) = rest.trim().split_once('/')?;
        if span == "*" {
            return Some(Self::Unsatisfied {
                total_bytes: number(total)?,
            });
        }
        let total_bytes = match total {
            "*" => None,
            digits => Some(number(digits)?),
        };
        let (first, last) = span.split_once('-')?;
        let (first, end) = (number(first)?, number(last)?.checked_add(1)?);
        if end <= first || total_bytes.is_some_and(|total| end > total) {
            return None;
        }
        Some(Self::Satisfied {
            range: ByteRange { start: first, end },
            total_bytes,
        })
    }
}

/// Digits only: `str::parse` alone would take a leading plus.
pub(super) fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_values() {
        let satisfied = |start, end, total_bytes| {
            Some(ContentRange::Satisfied {
                range: ByteRange { start, end },
                total_bytes,
            })
        };
        for (value, expected) in [
            ("bytes 0-9/100", satisfied(0, 10, Some(100))),
            ("Bytes 5-5/6", satisfied(5, 6, Some(6))),
            ("bytes 0-9/*", satisfied(0, 10, None)),
            (
                "bytes 0-18446744073709551614/18446744073709551615",
                satisfied(0, u64::MAX, Some(u64::MAX)),
            ),
            (
                "bytes */0",
                Some(ContentRange::Unsatisfied { total_bytes: 0 }),
            ),
        ] {
            assert_eq!(ContentRange::parse(value), expected, "{value}");
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for value in [
            "",
            "bytes",
            "bytes 0-9",
            "bytes=0-9/100",
            "rows 0-9/100",
            "bytes 9-0/100",
            "bytes 0-100/100",
            "bytes -9/100",
            "bytes 0-/100",
            "bytes +0-9/100",
            "bytes 0 - 9/100",
            "bytes 0-9/",
            "bytes */*",
            "bytes 0-18446744073709551615/*",
            "bytes 0-18446744073709551616/*",
        ] {
            assert_eq!(ContentRange::parse(value), None, "{value}");
        }
    }
}
