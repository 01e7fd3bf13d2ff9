//! [`ByteRange`], the half-open interval every request, plan and error speaks of. Not HTTP's
//! inclusive `first-last`: that form exists only where a header is written or parsed.

use std::fmt;

use crate::Error;

/// Bytes `start..end` of an object, `end` excluded. Empty ranges are allowed and cost no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte; never below `start` in a range made by [`ByteRange::new`].
    pub end: u64,
}

impl ByteRange {
    /// The range `start..end`.
    ///
    /// # Errors
    /// [`Error::InvertedRange`] if `end` lies before `start`.
    pub fn new(start: u64, end: u64) -> Result<Self, Error> {
        if end < start {
            return Err(Error::InvertedRange { start, end });
        }
        Ok(Self { start, end })
    }

    /// The `len_bytes` bytes from `start` on.
    ///
    /// # Errors
    /// [`Error::RangeOverflow`] if the end exceeds `u64`.
    pub fn at(start: u64, len_bytes: u64) -> Result<Self, Error> {
        match start.checked_add(len_bytes) {
            Some(end) => Ok(Self { start, end }),
            None => Err(Error::RangeOverflow { start, len_bytes }),
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the range holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `inner` lies wholly inside this range.
    #[must_use]
    pub fn contains(&self, inner: ByteRange) -> bool {
        self.start <= inner.start && inner.end <= self.end
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}
