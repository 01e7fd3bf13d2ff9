//! The one `validate`: a whole front becomes checked blocks and sections, or an error that names the
//! rule. Every byte of the object belongs to exactly one thing. Specification: `docs/format/gkq-v2.md`.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::block::Block;
use crate::columnar::{Columnar, RowTreeShape};
use crate::error::{Error, Place};
use crate::header::Header;
use crate::layout::{
    HOT_ID_BYTES, PAYLOAD_ALIGN, block as block_at, header as header_at, section as section_at,
};
use crate::limits::NAME_MAX_BYTES;
use crate::num::{align_up, length, slice};
use crate::section::{Home, Section, SectionKind};
use crate::tiling::Tiling;

/// What the front says, checked.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) blocks: Vec<Block>,
    pub(crate) sections: Vec<Section>,
    /// Numbers of the blocks in order of their names.
    pub(crate) by_name: Vec<usize>,
}

/// Checks a whole front against every rule of the format.
pub(crate) fn validate(header: &Header, front: &[u8]) -> Result<Table, Error> {
    let parts = Parts::split(header, front)?;
    let mut blocks = decode_blocks(parts.block_entries, parts.names)?;
    let by_name = index_names(&blocks)?;
    let entries = parts.section_entries.iter();
    let decoded = entries.map(|entry| Section::decode(entry, &blocks));
    let sections = decoded.collect::<Result<Vec<_>, _>>()?;
    check_front_sections(header, front, parts.inline_start, &blocks, &sections)?;
    check_payloads(header, &blocks, &sections)?;
    bind_columnar(front, &mut blocks, &sections)?;
    Ok(Table {
        blocks,
        sections,
        by_name,
    })
}

/// The pieces of a front, in their order.
struct Parts<'a> {
    block_entries: &'a [[u8; block_at::BYTES]],
    section_entries: &'a [[u8; section_at::BYTES]],
    names: &'a [u8],
    /// Where the sections inside the front begin.
    inline_start: u64,
}

impl<'a> Parts<'a> {
    fn split(header: &Header, front: &'a [u8]) -> Result<Self, Error> {
        let piece = |count: u32, record: usize| u64::from(count).checked_mul(length(record));
        let sizes = [
            Some(length(header_at::BYTES)),
            piece(header.block_count, block_at::BYTES),
            piece(header.section_count, section_at::BYTES),
            Some(u64::from(header.names_bytes)),
        ];
        let mut ends = [0; 4];
        let mut cursor = 0_u64;
        for (end, size) in ends.iter_mut().zip(sizes) {
            cursor = cursor.saturating_add(size.unwrap_or(u64::MAX));
            *end = cursor;
        }
        let [header_end, blocks_end, sections_end, names_end] = ends;
        let cut = |range: Range<u64>| {
            let tables = Error::OutOfBounds {
                place: Place::Header,
                start: 0,
                end: names_end,
                region_start: 0,
                region_end: header.front_bytes,
            };
            slice(front, &range).ok_or(tables)
        };
        Ok(Self {
            names: cut(sections_end..names_end)?,
            block_entries: cut(header_end..blocks_end)?.as_chunks().0,
            section_entries: cut(blocks_end..sections_end)?.as_chunks().0,
            inline_start: names_end,
        })
    }
}

/// Reads every block entry; the names lie one after another in the order of the entries.
fn decode_blocks(entries: &[[u8; block_at::BYTES]], mut names: &[u8]) -> Result<Vec<Block>, Error> {
    let mut blocks = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let place = || Place::BlockEntry(index);
        let name_bytes = block_at::NAME_BYTES.u32(entry);
        check_name_bytes(name_bytes.into(), place)?;
        let split = usize::try_from(name_bytes)
            .ok()
            .and_then(|at| names.split_at_checked(at));
        let Some((name, rest)) = split else {
            return Err(Error::OutOfBounds {
                place: place(),
                start: 0,
                end: name_bytes.into(),
                region_start: 0,
                region_end: length(names.len()),
            });
        };
        let Ok(name) = std::str::from_utf8(name) else {
            return Err(Error::NotUtf8 { place: place() });
        };
        blocks.push(Block::decode(entry, name)?);
        names = rest;
    }
    if !names.is_empty() {
        return Err(Error::Mismatch {
            place: Place::Header,
            field: "bytes after the last name",
            expected: 0,
            found: length(names.len()),
        });
    }
    Ok(blocks)
}

/// A name has from 1 to [`NAME_MAX_BYTES`] bytes.
pub(crate) fn check_name_bytes(bytes: u64, place: impl Fn() -> Place) -> Result<(), Error> {
    let field = "name_bytes";
    if bytes == 0 {
        return Err(Error::Empty {
            place: place(),
            field,
        });
    }
    if bytes > NAME_MAX_BYTES.into() {
        let limit = NAME_MAX_BYTES.into();
        return Err(Error::Limit {
            place: place(),
            field,
            found: bytes,
            limit,
        });
    }
    Ok(())
}

/// The blocks in order of their names, which must differ.
pub(crate) fn index_names(blocks: &[Block]) -> Result<Vec<usize>, Error> {
    let mut named: Vec<(&str, usize)> = blocks
        .iter()
        .enumerate()
        .map(|(index, block)| (block.name.as_str(), index))
        .collect();
    named.sort_unstable();
    for pair in named.windows(2) {
        if let [(first, _), (second, _)] = pair
            && first == second
        {
            return Err(Error::DuplicateName {
                name: (*first).to_owned(),
            });
        }
    }
    Ok(named.into_iter().map(|(_, index)| index).collect())
}

/// Sections inside the front follow the names in table order, have their digest, and are followed
/// by zeros up to the end of the front.
fn check_front_sections(
    header: &Header,
    front: &[u8],
    start: u64,
    blocks: &[Block],
    sections: &[Section],
) -> Result<(), Error> {
    let mut tiling = Tiling::new(start..header.front_bytes, 1);
    for section in sections {
        let place = || section.place(blocks);
        let inside = section.range.start < header.front_bytes;
        match section.kind.home() {
            Home::Front if !inside => {
                return Err(Error::SectionOwner {
                    place: place(),
                    rule: "must lie in the front",
                });
            }
            Home::Payload if inside => {
                return Err(Error::SectionOwner {
                    place: place(),
                    rule: "must be a payload",
                });
            }
            _ if !inside => continue,
            _ => tiling.place_next(&section.range, place)?,
        }
        let body = slice(front, &section.range).unwrap_or_default();
        let found = *blake3::hash(body).as_bytes();
        if found != section.blake3 {
            return Err(Error::Digest {
                place: place(),
                expected: section.blake3,
                found,
            });
        }
        if section.kind.is_text() && std::str::from_utf8(body).is_err() {
            return Err(Error::NotUtf8 { place: place() });
        }
    }
    let expected = align_up(tiling.cursor, PAYLOAD_ALIGN).unwrap_or(u64::MAX);
    if header.front_bytes != expected {
        return Err(Error::Gap {
            place: Place::Front,
            offset: header.front_bytes,
            expected,
        });
    }
    let padding = slice(front, &(tiling.cursor..header.front_bytes)).unwrap_or_default();
    if padding.iter().any(|&byte| byte != 0) {
        return Err(Error::ReservedNotZero {
            place: Place::Front,
            field: "padding at its end",
        });
    }
    Ok(())
}

/// Payloads fill the object from the end of the front to its last byte; those of blocks come in the
/// order of the block table.
fn check_payloads(header: &Header, blocks: &[Block], sections: &[Section]) -> Result<(), Error> {
    let stored = blocks.iter().filter(|block| !block.is_external());
    let mut previous_start = 0;
    for block in stored.clone() {
        if block.payload.start < previous_start {
            return Err(Error::OutOfOrder {
                place: block.place(),
            });
        }
        previous_start = block.payload.start;
    }
    enum Owner<'a> {
        Block(&'a Block),
        Section(&'a Section),
    }
    let outside = sections
        .iter()
        .filter(|section| section.range.start >= header.front_bytes);
    let mut spans: Vec<(&Range<u64>, Owner<'_>)> = stored
        .map(|block| (&block.payload, Owner::Block(block)))
        .chain(outside.map(|section| (&section.range, Owner::Section(section))))
        .collect();
    spans.sort_by_key(|(span, _)| (span.start, span.end));
    let mut tiling = Tiling::new(header.front_bytes..header.object_bytes, PAYLOAD_ALIGN);
    for (span, owner) in spans {
        tiling.place_next(span, || match owner {
            Owner::Block(block) => block.place(),
            Owner::Section(section) => section.place(blocks),
        })?;
    }
    if tiling.cursor != header.object_bytes {
        return Err(Error::Gap {
            place: Place::Header,
            offset: header.object_bytes,
            expected: tiling.cursor,
        });
    }
    Ok(())
}

/// Gives every columnar-eligible block its columnar facts.
fn bind_columnar(front: &[u8], blocks: &mut [Block], sections: &[Section]) -> Result<(), Error> {
    let mut owned: HashMap<(usize, SectionKind), &Section> = HashMap::new();
    let mut of_the_file = HashSet::new();
    for section in sections {
        let first = match (section.kind, section.block) {
            (SectionKind::Unknown(_), _) => true,
            (kind, Some(block)) => owned.insert((block, kind), section).is_none(),
            (kind, None) => of_the_file.insert(kind),
        };
        if !first {
            return Err(Error::DuplicateSection {
                place: section.place(blocks),
            });
        }
    }
    for (index, block) in blocks.iter_mut().enumerate() {
        if block.is_columnar_eligible() {
            let columnar =
                decode_columnar(front, block, |kind| owned.get(&(index, kind)).copied())?;
            block.columnar = Some(columnar);
        }
    }
    Ok(())
}

/// The columnar facts of one block, from those of its sections that `find` knows.
fn decode_columnar<'a>(
    front: &[u8],
    block: &Block,
    find: impl Fn(SectionKind) -> Option<&'a Section>,
) -> Result<Columnar, Error> {
    let place = |kind| Place::Section {
        kind,
        tensor: Some(block.name.clone()),
    };
    let require = |kind| find(kind).ok_or_else(|| Error::MissingSection { place: place(kind) });
    let body = &require(SectionKind::Columnar)?.range;
    let (mut columnar, shape): (Columnar, RowTreeShape) =
        Columnar::decode(slice(front, body).unwrap_or_default(), block)?;
    let sized = |kind, section: &Section, expected: Option<u64>| {
        let found = section.range.end.saturating_sub(section.range.start);
        if expected == Some(found) {
            return Ok(section.range.clone());
        }
        let expected = expected.unwrap_or(u64::MAX);
        Err(Error::Mismatch {
            place: place(kind),
            field: "body_bytes",
            expected,
            found,
        })
    };
    let nodes = require(SectionKind::PinnedNodes)?;
    columnar.pinned_nodes = sized(SectionKind::PinnedNodes, nodes, Some(shape.pinned_bytes()))?;
    let path_table = find(SectionKind::PathTable);
    columnar.path_table = match path_table {
        // A tree whose leaves are pinned has no paths.
        None if columnar.path_bytes_per_row == 0 => 0..0,
        None => {
            return Err(Error::MissingSection {
                place: place(SectionKind::PathTable),
            });
        }
        Some(paths) => sized(SectionKind::PathTable, paths, columnar.path_table_bytes())?,
    };
    columnar.hot_ids = match find(SectionKind::HotIds) {
        None => None,
        Some(ids) => {
            // Each id comes once, so there are at most as many as rows.
            let bytes = ids.range.end.saturating_sub(ids.range.start);
            let whole = bytes.checked_next_multiple_of(length(HOT_ID_BYTES));
            let most = columnar.rows.checked_mul(length(HOT_ID_BYTES));
            Some(sized(SectionKind::HotIds, ids, whole.min(most))?)
        }
    };
    let range = |section: &Section| section.range.clone();
    columnar.sketch = find(SectionKind::Sketch).map(range);
    columnar.row_sidecar = find(SectionKind::RowSidecar).map(range);
    Ok(columnar)
}
