//! The knot's list of the rows that are asked for most: read when somebody wants rows before a prompt
//! needs them. Nothing here decides which ids are hot; `fat-origin pack` did. Specification:
//! docs/format/gkq-v2.md, section `hot-ids`.

use crate::error::Error;
use crate::knot::{OpenKnot, WantedPayload};
use crate::matrix::EMBED_TOKENS;
use crate::traffic::{Kind, Traffic};
use gkq_v2::SectionKind;

/// The first `rows` ids of the list, hottest first; all of it, where it is shorter.
///
/// # Errors
/// [`Error::Config`] where the knot has no list, [`Error::Knot`] for a list that names no rows, and
/// what keeps it from being read.
pub async fn hot_ids(knot: &OpenKnot, rows: u64, traffic: &Traffic) -> Result<Vec<u32>, Error> {
    let front = knot.front();
    let facts = front
        .block(EMBED_TOKENS)
        .and_then(|block| block.columnar.as_ref());
    let section = front.section_of(EMBED_TOKENS, SectionKind::HotIds);
    let (Some(facts), Some(section)) = (facts, section) else {
        return Err(Error::config(format!(
            "knot {} has no list of hot ids for {EMBED_TOKENS}; pack it with --hot-ids auto",
            knot.locator()
        )));
    };
    // The digest is over the whole list, which is at most 128 KiB for a list that was packed here.
    let wanted = [WantedPayload::section(section, "hot ids")];
    let payloads = knot.payloads(&wanted, Kind::Blocks, traffic).await?;
    let body = payloads.into_iter().next().ok_or(Error::Lost {
        what: "the hot ids' payload",
    })?;
    let mut ids = facts
        .parse_hot_ids(&body)
        .map_err(|source| Error::knot(knot.locator(), source))?;
    ids.truncate(usize::try_from(rows).unwrap_or(usize::MAX));
    Ok(ids)
}
