//! A declared knot with every offset decided: payloads are written by the caller in any order, their
//! digests come back, and out comes the front. Specification: `docs/format/gkq-v2.md`.

use std::collections::HashSet;
use std::ops::Range;

use super::{BlockId, DraftSection, KnotDraft, Payload};
use crate::block::{Block, BlockBody};
use crate::columnar::Columnar;
use crate::error::{Error, Place};
use crate::header::{Header, front_digest};
use crate::knot::Knot;
use crate::layout::{PAYLOAD_ALIGN, block as block_at, header as header_at, section as section_at};
use crate::num::{align_up, byte_range, length};
use crate::section::{Section, SectionKind};
use crate::table::index_names;

/// A payload and where its bytes belong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedPayload {
    /// What is written there.
    pub payload: Payload,
    /// Bytes of the object; those between two payloads are zero.
    pub range: Range<u64>,
}

/// Where everything of a knot lies, and what is still to be recorded.
#[derive(Clone, Debug)]
pub struct KnotPlan {
    header: Header,
    blocks: Vec<Block>,
    sections: Vec<PlannedSection>,
    payloads: Vec<PlannedPayload>,
    digested: HashSet<Payload>,
    measured: HashSet<usize>,
    trees: HashSet<usize>,
    sidecars: HashSet<usize>,
}

#[derive(Clone, Debug)]
struct PlannedSection {
    section: Section,
    /// The body of a section inside the front.
    body: Option<Vec<u8>>,
}

impl KnotPlan {
    pub(super) fn new(draft: KnotDraft) -> Result<Self, Error> {
        index_names(&draft.blocks)?;
        let sections = draft
            .sections
            .into_iter()
            .map(PlannedSection::from)
            .collect();
        let names = draft
            .blocks
            .iter()
            .map(|block| length(block.name.len()))
            .sum();
        let mut plan = Self {
            header: Header {
                flags: 0,
                object_bytes: u64::MAX,
                front_bytes: 0,
                block_count: count(draft.blocks.len()),
                section_count: count(0),
                names_bytes: u32::try_from(names).unwrap_or(u32::MAX),
                front_blake3: [0; 32],
            },
            blocks: draft.blocks,
            sections,
            payloads: Vec::new(),
            digested: HashSet::new(),
            measured: HashSet::new(),
            trees: HashSet::new(),
            sidecars: HashSet::new(),
        };
        plan.header.section_count = count(plan.sections.len());
        plan.header.check()?;
        let inline_start = plan.tables_bytes().checked_add(names);
        let front_bytes = inline_start.and_then(|start| plan.place_front_sections(start));
        plan.header.front_bytes = front_bytes.unwrap_or(u64::MAX);
        plan.header.check()?;
        plan.place_payloads(&draft.payloads)?;
        Ok(plan)
    }

    /// Length of the front, which [`finish`](Self::finish) returns and which belongs at offset 0.
    pub const fn front_bytes(&self) -> u64 {
        self.header.front_bytes
    }

    /// Length of the whole object.
    pub const fn object_bytes(&self) -> u64 {
        self.header.object_bytes
    }

    /// Every payload and its place, in file order.
    pub fn payloads(&self) -> &[PlannedPayload] {
        &self.payloads
    }

    /// Where one payload lies; `None` if there is no such payload in the object.
    pub fn range(&self, payload: Payload) -> Option<Range<u64>> {
        if let Payload::Block(id) = payload {
            let stored = self.blocks.get(id.0).filter(|block| !block.is_external());
            return stored.map(|block| block.payload.clone());
        }
        let planned = self.sections.get(self.section_index(payload)?)?;
        Some(planned.section.range.clone())
    }

    /// Where the factors of a spectral block lie within its payload: `u`, `s`, `vt`. `None` for a
    /// dense block.
    pub fn factor_ranges(&self, block: BlockId) -> Option<[Range<u64>; 3]> {
        match &self.blocks.get(block.0)?.body {
            BlockBody::Spectral { u, s, vt, .. } => Some([u.clone(), s.clone(), vt.clone()]),
            BlockBody::Dense { .. } => None,
        }
    }

    /// Records the BLAKE3 of a payload, or of the bytes that an external block stands for.
    ///
    /// # Errors
    /// [`Error::NotDeclared`] if this knot has no such payload.
    pub fn record_digest(&mut self, payload: Payload, blake3: [u8; 32]) -> Result<(), Error> {
        let place = match payload {
            Payload::Block(id) => self.blocks.get_mut(id.0).map(|block| &mut block.blake3),
            _ => self.section_mut(payload).map(|section| &mut section.blake3),
        };
        *place.ok_or_else(|| not_declared(&payload))? = blake3;
        self.digested.insert(payload);
        Ok(())
    }

    /// Records what a conversion or factorisation cost: see [`Block::error`] for the measure.
    ///
    /// # Errors
    /// [`Error::NotDeclared`] for a block of another knot, [`Error::ErrorFigure`] or
    /// [`Error::Contradiction`] for a figure that the block can't have.
    pub fn record_error(&mut self, id: BlockId, error: f64) -> Result<(), Error> {
        let block = self.blocks.get_mut(id.0).ok_or_else(|| not_declared(&id))?;
        block.error = error;
        block.check()?;
        self.measured.insert(id.0);
        Ok(())
    }

    /// Records the row tree of a columnar-eligible block: its root, and the nodes of the pinned level,
    /// 16 bytes each, whose number [`RowTreeShape`](crate::RowTreeShape) gives.
    ///
    /// # Errors
    /// [`Error::NotDeclared`] if the block is not columnar-eligible, [`Error::Mismatch`] for another
    /// number of nodes.
    pub fn record_row_tree(
        &mut self,
        id: BlockId,
        root: [u8; 16],
        pinned_nodes: &[u8],
    ) -> Result<(), Error> {
        let block = self.blocks.get_mut(id.0).ok_or_else(|| not_declared(&id))?;
        let (mut facts, shape) = Columnar::expected(block)?;
        facts.tree_root = root;
        block.columnar = Some(facts);
        let found = length(pinned_nodes.len());
        if found != shape.pinned_bytes() {
            let tensor = Some(block.name.clone());
            return Err(Error::Mismatch {
                place: Place::Section {
                    kind: SectionKind::PinnedNodes,
                    tensor,
                },
                field: "body_bytes",
                expected: shape.pinned_bytes(),
                found,
            });
        }
        let nodes = self.section_of(id, SectionKind::PinnedNodes);
        nodes.ok_or_else(|| not_declared(&id))?.body = Some(pinned_nodes.to_vec());
        self.trees.insert(id.0);
        Ok(())
    }

    /// Records the sidecar of a columnar-eligible block whose row store has rows of several kinds.
    ///
    /// # Errors
    /// [`Error::NotDeclared`] if none was declared for the block, [`Error::Mismatch`] for another
    /// length than the declared one.
    pub fn record_row_sidecar(&mut self, id: BlockId, sidecar: &[u8]) -> Result<(), Error> {
        let tensor = self.blocks.get(id.0).map(|block| block.name.clone());
        let planned = self.section_of(id, SectionKind::RowSidecar);
        let planned = planned.ok_or_else(|| not_declared(&id))?;
        let range = &planned.section.range;
        let (expected, found) = (range.end.saturating_sub(range.start), length(sidecar.len()));
        if found != expected {
            return Err(Error::Mismatch {
                place: Place::Section {
                    kind: SectionKind::RowSidecar,
                    tensor,
                },
                field: "body_bytes",
                expected,
                found,
            });
        }
        planned.body = Some(sidecar.to_vec());
        self.sidecars.insert(id.0);
        Ok(())
    }

    /// The bytes of the front, which the caller writes at offset 0.
    ///
    /// # Errors
    /// [`Error::NotRecorded`] if a digest, an error figure or a row tree is missing.
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        self.check_recorded()?;
        self.fill_columnar()?;
        let mut front = self.header.encode().to_vec();
        for block in &self.blocks {
            front.extend(block.encode());
        }
        for planned in &mut self.sections {
            if let Some(body) = &planned.body {
                planned.section.blake3 = *blake3::hash(body).as_bytes();
            }
            front.extend(planned.section.encode());
        }
        for block in &self.blocks {
            front.extend(block.name.as_bytes());
        }
        for body in self
            .sections
            .iter()
            .filter_map(|planned| planned.body.as_ref())
        {
            front.extend(body);
        }
        front.resize(
            usize::try_from(self.header.front_bytes).unwrap_or(usize::MAX),
            0,
        );
        self.header.front_blake3 = front_digest(&front);
        header_at::FRONT_BLAKE3.write(
            front
                .first_chunk_mut::<{ header_at::BYTES }>()
                .unwrap_or(&mut [0; header_at::BYTES]),
            self.header.front_blake3,
        );
        // What can't be opened must never be published.
        Knot::parse(&front, self.header.object_bytes)?;
        Ok(front)
    }

    /// Bytes of header, block table and section table; counts are within their limits.
    fn tables_bytes(&self) -> u64 {
        let table = |count: usize, record: usize| length(count).saturating_mul(length(record));
        length(header_at::BYTES)
            .saturating_add(table(self.blocks.len(), block_at::BYTES))
            .saturating_add(table(self.sections.len(), section_at::BYTES))
    }

    /// Gives the sections of the front their ranges; returns the length of the front.
    fn place_front_sections(&mut self, start: u64) -> Option<u64> {
        let mut cursor = start;
        for planned in &mut self.sections {
            if planned.body.is_some() {
                let bytes = planned.section.range.end;
                let end = cursor.checked_add(bytes)?;
                planned.section.range = cursor..end;
                cursor = end;
            }
        }
        align_up(cursor, PAYLOAD_ALIGN)
    }

    /// Gives the payloads their ranges; sets the length of the object.
    fn place_payloads(&mut self, payloads: &[Payload]) -> Result<(), Error> {
        let mut cursor = self.header.front_bytes;
        for &payload in payloads {
            let bytes = self.payload_bytes(payload)?;
            let start = align_up(cursor, PAYLOAD_ALIGN).unwrap_or(u64::MAX);
            let range = byte_range(start, bytes, || Place::Header)?;
            cursor = range.end;
            if let Some(place) = self.payload_range(payload) {
                *place = range.clone();
            }
            self.payloads.push(PlannedPayload { payload, range });
        }
        self.header.object_bytes = cursor;
        self.header.check()
    }

    fn payload_bytes(&mut self, payload: Payload) -> Result<u64, Error> {
        if let Payload::Block(id) = payload {
            let block = self
                .blocks
                .get(id.0)
                .ok_or_else(|| not_declared(&payload))?;
            return block.checked_stored_bytes();
        }
        // Until it is placed, the range of a section is `0..bytes`.
        self.payload_range(payload)
            .map(|range| range.end)
            .ok_or_else(|| not_declared(&payload))
    }

    fn payload_range(&mut self, payload: Payload) -> Option<&mut Range<u64>> {
        match payload {
            Payload::Block(id) => self.blocks.get_mut(id.0).map(|block| &mut block.payload),
            _ => self.section_mut(payload).map(|section| &mut section.range),
        }
    }

    /// The section that a payload is; `None` for a block and for what was not declared.
    fn section_index(&self, payload: Payload) -> Option<usize> {
        let (id, kind) = match payload {
            Payload::Block(_) => return None,
            Payload::Section(id) => return Some(id.0),
            Payload::PathTable(id) => (id, SectionKind::PathTable),
            Payload::HotIds(id) => (id, SectionKind::HotIds),
            Payload::Sketch(id) => (id, SectionKind::Sketch),
        };
        let owned = |planned: &PlannedSection| {
            planned.section.block == Some(id.0) && planned.section.kind == kind
        };
        self.sections.iter().position(owned)
    }

    fn section_mut(&mut self, payload: Payload) -> Option<&mut Section> {
        let index = self.section_index(payload)?;
        self.sections
            .get_mut(index)
            .map(|planned| &mut planned.section)
    }

    fn section_of(&mut self, id: BlockId, kind: SectionKind) -> Option<&mut PlannedSection> {
        self.sections
            .iter_mut()
            .find(|planned| planned.section.block == Some(id.0) && planned.section.kind == kind)
    }

    fn check_recorded(&self) -> Result<(), Error> {
        let missing = |block: &Block, what| Error::NotRecorded {
            place: block.place(),
            what,
        };
        for (index, block) in self.blocks.iter().enumerate() {
            let spectral = matches!(block.body, BlockBody::Spectral { .. });
            let converted = spectral || block.source_dtype != block.dtype();
            if !self.digested.contains(&Payload::Block(BlockId(index))) {
                return Err(missing(block, "the digest of the payload"));
            }
            if converted && !self.measured.contains(&index) {
                return Err(missing(block, "the error of the conversion"));
            }
            if block.is_columnar_eligible() && !self.trees.contains(&index) {
                return Err(missing(block, "the row tree"));
            }
        }
        let open = self.sections.iter().find(|planned| {
            let owner = planned.section.block.unwrap_or(usize::MAX);
            planned.section.kind == SectionKind::RowSidecar && !self.sidecars.contains(&owner)
        });
        if let Some(planned) = open {
            let (place, what) = (planned.section.place(&self.blocks), "the sidecar");
            return Err(Error::NotRecorded { place, what });
        }
        let open = self
            .payloads
            .iter()
            .find(|planned| !self.digested.contains(&planned.payload));
        match open {
            None => Ok(()),
            Some(planned) => {
                let place = self
                    .sections
                    .iter()
                    .find(|section| section.section.range == planned.range);
                let place = place.map(|planned| planned.section.place(&self.blocks));
                let what = "the digest of the payload";
                Err(Error::NotRecorded {
                    place: place.unwrap_or(Place::Front),
                    what,
                })
            }
        }
    }

    /// Writes the columnar records, whose row digest is that of the block.
    fn fill_columnar(&mut self) -> Result<(), Error> {
        for index in 0..self.blocks.len() {
            let facts = self.blocks.get_mut(index).and_then(|block| {
                let mut facts = block.columnar.take()?;
                facts.rows_blake3 = block.blake3;
                Some(facts)
            });
            let Some(facts) = facts else { continue };
            let id = BlockId(index);
            let record = self.section_of(id, SectionKind::Columnar);
            record.ok_or_else(|| not_declared(&id))?.body = Some(facts.encode().to_vec());
        }
        Ok(())
    }
}

impl From<DraftSection> for PlannedSection {
    fn from(draft: DraftSection) -> Self {
        let mut section = draft.to_section();
        section.range = 0..draft.bytes;
        Self {
            section,
            body: draft.body,
        }
    }
}

fn not_declared(what: &impl std::fmt::Debug) -> Error {
    Error::NotDeclared {
        what: format!("{what:?}"),
    }
}

/// A count as the header stores it. One that does not fit is above every limit, and stays so.
fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}
