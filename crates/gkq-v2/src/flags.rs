//! The one rule of all flag words: an unknown required bit is refused, an unknown optional one
//! ignored. Specification: `docs/format/gkq-v2.md`, flags.

use crate::error::{Error, Place};
use crate::layout::flags::REQUIRED;

/// Refuses `flags` if a required bit is set that is not in `known`.
pub(crate) fn refuse_unknown_required(
    flags: u32,
    known: u32,
    place: impl FnOnce() -> Place,
) -> Result<(), Error> {
    let bits = flags & REQUIRED & !known;
    if bits == 0 {
        Ok(())
    } else {
        Err(Error::UnknownRequiredFlags {
            place: place(),
            bits,
        })
    }
}
