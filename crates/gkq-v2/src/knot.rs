//! An opened knot: what the front says, and checks for payloads that the caller fetches. Opening
//! needs the front only; nothing here does I/O. Specification: `docs/format/gkq-v2.md`.

use std::ops::Range;

use crate::block::Block;
use crate::error::{Error, Place};
use crate::header::{Header, front_digest};
use crate::num::{length, slice};
use crate::section::{Section, SectionKind};
use crate::table::{Table, validate};

/// A knot whose front was read and found good.
///
/// ```
/// use gkq_v2::{BlockSpec, Dtype, Knot, KnotDraft, Payload, SectionKind};
///
/// let mut draft = KnotDraft::new();
/// draft.front_section(SectionKind::ModelConfig, b"{}".to_vec())?;
/// let norm = draft.block(BlockSpec::dense("model.norm.weight", Dtype::F32, &[4]))?;
/// let mut plan = draft.plan()?;
/// let weights = [0_u8; 16];
/// plan.record_digest(Payload::Block(norm), *blake3::hash(&weights).as_bytes())?;
/// let object_bytes = plan.object_bytes();
/// let front = plan.finish()?;
///
/// let knot = Knot::parse(&front, object_bytes)?;
/// let block = knot.block("model.norm.weight").expect("declared above");
/// assert_eq!(block.payload, front.len() as u64..object_bytes);
/// knot.verify_payload(block, &weights)?;
/// assert_eq!(knot.text(SectionKind::ModelConfig), Some("{}"));
/// # Ok::<(), gkq_v2::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Knot {
    header: Header,
    front: Box<[u8]>,
    table: Table,
}

impl Knot {
    /// Bytes from offset 0 that [`parse`](Self::parse) needs, read from a prefix of at least
    /// [`HEADER_BYTES`](crate::HEADER_BYTES) bytes. Never more than
    /// [`FRONT_MAX_BYTES`](crate::limits::FRONT_MAX_BYTES).
    ///
    /// # Errors
    /// If the prefix is too short, is no knot, or has a header that breaks a rule.
    pub fn front_len(prefix: &[u8]) -> Result<u64, Error> {
        Header::parse(prefix).map(|header| header.front_bytes)
    }

    /// Opens a knot from its front. `front` may go on after the front's end; `object_bytes` is the
    /// length of the whole object, so that a truncated one is found without reading it.
    ///
    /// # Errors
    /// The first rule of the format that the front breaks.
    pub fn parse(front: &[u8], object_bytes: u64) -> Result<Self, Error> {
        let header = Header::parse(front)?;
        if header.object_bytes != object_bytes {
            return Err(Error::ObjectLength {
                expected_bytes: header.object_bytes,
                found_bytes: object_bytes,
            });
        }
        let Some(front) = slice(front, &(0..header.front_bytes)) else {
            return Err(Error::Truncated {
                needed_bytes: header.front_bytes,
                found_bytes: length(front.len()),
            });
        };
        check_digest(header.front_blake3, front_digest(front), || Place::Front)?;
        let table = validate(&header, front)?;
        Ok(Self {
            header,
            front: front.into(),
            table,
        })
    }

    /// Length of the whole object.
    pub const fn object_bytes(&self) -> u64 {
        self.header.object_bytes
    }

    /// Length of the front: the first payload starts here.
    pub const fn front_bytes(&self) -> u64 {
        self.header.front_bytes
    }

    /// Digest of the front, which covers the digests of all payloads: it identifies the knot.
    pub const fn front_blake3(&self) -> [u8; 32] {
        self.header.front_blake3
    }

    /// The blocks in file order, which is layer order.
    pub fn blocks(&self) -> &[Block] {
        &self.table.blocks
    }

    /// The block of this name.
    pub fn block(&self, name: &str) -> Option<&Block> {
        let blocks = &self.table.blocks;
        let named = |index: &usize| blocks.get(*index).map_or("", |block| block.name.as_str());
        let found = self
            .table
            .by_name
            .binary_search_by(|index| named(index).cmp(name))
            .ok()?;
        blocks.get(*self.table.by_name.get(found)?)
    }

    /// All sections, in table order, those of unknown kinds included.
    pub fn sections(&self) -> &[Section] {
        &self.table.sections
    }

    /// The section of this kind that belongs to the whole knot.
    pub fn section(&self, kind: SectionKind) -> Option<&Section> {
        self.table
            .sections
            .iter()
            .find(|section| section.kind == kind && section.block.is_none())
    }

    /// The section of this kind that belongs to the block of this name.
    pub fn section_of(&self, name: &str, kind: SectionKind) -> Option<&Section> {
        let owned = |section: &&Section| {
            let block = section.block.and_then(|index| self.table.blocks.get(index));
            section.kind == kind && block.is_some_and(|block| block.name == name)
        };
        self.table.sections.iter().find(owned)
    }

    /// Bytes of the front, such as [`Section::range`] of a small section or
    /// [`Columnar::pinned_nodes`](crate::Columnar::pinned_nodes). `None` if the range leaves it.
    pub fn front_slice(&self, range: &Range<u64>) -> Option<&[u8]> {
        slice(&self.front, range)
    }

    /// Text of a section that is UTF-8 and lies in the front, such as the model config.
    pub fn text(&self, kind: SectionKind) -> Option<&str> {
        if !kind.is_text() {
            return None;
        }
        std::str::from_utf8(self.front_slice(&self.section(kind)?.range)?).ok()
    }

    /// The bytes between payloads, in file order, which must be zero. Opening does not see them; who
    /// has the whole object checks them.
    pub fn padding(&self) -> Vec<Range<u64>> {
        let blocks = self.table.blocks.iter().map(|block| &block.payload);
        let sections = self.table.sections.iter().map(|section| &section.range);
        let outside = |range: &&Range<u64>| range.start >= self.header.front_bytes;
        let mut payloads: Vec<_> = blocks.chain(sections).filter(outside).collect();
        payloads.sort_by_key(|range| range.start);
        let gap = |pair: &[&Range<u64>]| match pair {
            [before, after] if before.end < after.start => Some(before.end..after.start),
            _ => None,
        };
        payloads.windows(2).filter_map(gap).collect()
    }

    /// Checks that `bytes` are the payload of `block`: its length and its digest.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for another length, [`Error::Digest`] for other bytes.
    pub fn verify_payload(&self, block: &Block, bytes: &[u8]) -> Result<(), Error> {
        verify(bytes, block.checked_stored_bytes()?, block.blake3, || {
            block.place()
        })
    }

    /// Checks that `bytes` are the body of `section`: its length and its digest.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for another length, [`Error::Digest`] for other bytes.
    pub fn verify_section(&self, section: &Section, bytes: &[u8]) -> Result<(), Error> {
        let expected = section.range.end.saturating_sub(section.range.start);
        verify(bytes, expected, section.blake3, || {
            section.place(&self.table.blocks)
        })
    }
}

fn verify(
    bytes: &[u8],
    expected: u64,
    digest: [u8; 32],
    place: impl Fn() -> Place,
) -> Result<(), Error> {
    let found = length(bytes.len());
    if found != expected {
        return Err(Error::Mismatch {
            place: place(),
            field: "length in bytes",
            expected,
            found,
        });
    }
    check_digest(digest, *blake3::hash(bytes).as_bytes(), place)
}

fn check_digest(
    expected: [u8; 32],
    found: [u8; 32],
    place: impl Fn() -> Place,
) -> Result<(), Error> {
    if expected == found {
        Ok(())
    } else {
        Err(Error::Digest {
            place: place(),
            expected,
            found,
        })
    }
}
