//! Checked steps between lengths in memory (`usize`), lengths on disk (`u64`), and aligned offsets.
//! No byte positions here.

use std::ops::Range;

use crate::error::{Error, Place};

/// A length in memory as a length on disk. Saturates where a `usize` is wider than 64 bits.
pub(crate) fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The bytes of `range`, or `None` if they are not all there.
pub(crate) fn slice<'a>(bytes: &'a [u8], range: &Range<u64>) -> Option<&'a [u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// The least multiple of `align` that is not below `offset`, or `None` on overflow.
pub(crate) fn align_up(offset: u64, align: u64) -> Option<u64> {
    offset.checked_next_multiple_of(align)
}

/// The range of `bytes` bytes at `start`, or an error about `place` if its end overflows.
pub(crate) fn byte_range(
    start: u64,
    bytes: u64,
    place: impl Fn() -> Place,
) -> Result<Range<u64>, Error> {
    match start.checked_add(bytes) {
        Some(end) => Ok(start..end),
        None => Err(Error::RangeOverflow {
            place: place(),
            start,
            bytes,
        }),
    }
}
