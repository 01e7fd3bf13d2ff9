//! Spans that must fill a region one after another: every byte belongs to one owner, apart from the
//! padding that alignment asks for. Who the owners are is not known here. Specification:
//! `docs/format/gkq-v2.md`, order of the file.

use std::ops::Range;

use crate::error::{Error, Place};
use crate::num::align_up;

/// Walks spans that must follow one another without overlap and without a hole.
pub(crate) struct Tiling {
    region: Range<u64>,
    /// One past the last byte taken.
    pub(crate) cursor: u64,
    align: u64,
}

impl Tiling {
    pub(crate) fn new(region: Range<u64>, align: u64) -> Self {
        Self {
            cursor: region.start,
            region,
            align,
        }
    }

    /// Takes the next span, or says which rule it breaks.
    pub(crate) fn place_next(
        &mut self,
        span: &Range<u64>,
        place: impl Fn() -> Place,
    ) -> Result<(), Error> {
        if span.start < self.region.start || span.end > self.region.end {
            return Err(Error::OutOfBounds {
                place: place(),
                start: span.start,
                end: span.end,
                region_start: self.region.start,
                region_end: self.region.end,
            });
        }
        let (offset, align) = (span.start, self.align);
        if !offset.is_multiple_of(align) {
            return Err(Error::Misaligned {
                place: place(),
                offset,
                align,
            });
        }
        if offset < self.cursor {
            return Err(Error::Overlap {
                place: place(),
                offset,
                previous_end: self.cursor,
            });
        }
        let expected = align_up(self.cursor, align).unwrap_or(u64::MAX);
        if offset > expected {
            return Err(Error::Gap {
                place: place(),
                offset,
                expected,
            });
        }
        self.cursor = span.end;
        Ok(())
    }
}
