//! The validated file as tables: each method reads one entry where it lies, without copying or
//! allocating. It trusts `reader.rs` for meaning and nobody for bounds: an index past a table reads
//! as "nothing". Specification: `docs/format/tokenizer.md`.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use crate::layout;

/// Where each table begins in the file. Counts are entries, positions are bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) text_offsets: usize,
    pub(crate) lookup: usize,
    /// Ranks by id of a scored tokenizer, else the row starts of the merge table.
    pub(crate) ranks_or_rows: usize,
    pub(crate) merges: usize,
    pub(crate) added: usize,
    pub(crate) eos: usize,
    pub(crate) kinds: usize,
    pub(crate) text: usize,
}

/// The file and its places.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) bytes: Bytes,
    pub(crate) places: Places,
    pub(crate) vocabulary_len: u32,
    pub(crate) lookup_len: u32,
    pub(crate) merge_count: u32,
    pub(crate) added_count: u32,
    pub(crate) eos_count: u32,
}

/// One entry of the added-token table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddedEntry {
    pub(crate) id: u32,
    pub(crate) flags: u32,
}

impl Tables {
    /// The `u32` at a byte position, or `u32::MAX` past the end.
    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        self.bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map_or(u32::MAX, |chunk| u32::from_le_bytes(*chunk))
    }

    fn entry(&self, table: usize, index: usize) -> u32 {
        index
            .checked_mul(layout::ID_BYTES)
            .and_then(|offset| offset.checked_add(table))
            .map_or(u32::MAX, |at| self.u32_at(at))
    }

    /// Offset of a token's text in the text table; index `vocabulary_len` is its end.
    pub(crate) fn text_offset(&self, id: u32) -> u32 {
        self.entry(self.places.text_offsets, id as usize)
    }

    /// A token's text; empty for an id outside the vocabulary.
    pub(crate) fn text(&self, id: u32) -> &[u8] {
        if id >= self.vocabulary_len {
            return &[];
        }
        let start = self
            .places
            .text
            .saturating_add(self.text_offset(id) as usize);
        let end = self
            .places
            .text
            .saturating_add(self.text_offset(id.saturating_add(1)) as usize);
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// A token's kind code; a hole for an id outside the vocabulary.
    pub(crate) fn kind(&self, id: u32) -> u8 {
        if id >= self.vocabulary_len {
            return layout::KIND_HOLE;
        }
        self.bytes
            .get(self.places.kinds.saturating_add(id as usize))
            .copied()
            .unwrap_or(layout::KIND_HOLE)
    }

    /// The id at a position of the lookup table.
    pub(crate) fn lookup_id(&self, index: usize) -> u32 {
        self.entry(self.places.lookup, index)
    }

    /// The reachable token with exactly this text.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        let (mut low, mut high) = (0, self.lookup_len as usize);
        while low < high {
            let middle = low.midpoint(high);
            let id = self.lookup_id(middle);
            match self.text(id).cmp(text) {
                Ordering::Equal => return Some(id),
                Ordering::Less => low = middle.saturating_add(1),
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The merge rank of an id in a scored tokenizer.
    pub(crate) fn rank(&self, id: u32) -> u32 {
        self.entry(self.places.ranks_or_rows, id as usize)
    }

    /// Positions of a left id's merges in the merge table.
    pub(crate) fn merge_row(&self, left: u32) -> Range<usize> {
        if left >= self.vocabulary_len {
            return 0..0;
        }
        let start = self.entry(self.places.ranks_or_rows, left as usize) as usize;
        let end = self.entry(self.places.ranks_or_rows, (left as usize).saturating_add(1)) as usize;
        start..end
    }

    /// `[right id, merged id, rank]` at a position of the merge table.
    pub(crate) fn merge_at(&self, index: usize) -> [u32; 3] {
        let at = index
            .checked_mul(layout::MERGE_BYTES)
            .and_then(|offset| offset.checked_add(self.places.merges))
            .unwrap_or(usize::MAX);
        let word =
            |part: usize| self.u32_at(at.saturating_add(part.saturating_mul(layout::ID_BYTES)));
        [word(0), word(1), word(2)]
    }

    /// Rank and id of the token that two ids merge into.
    pub(crate) fn find_merge(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let Range {
            start: mut low,
            end: mut high,
        } = self.merge_row(left);
        while low < high {
            let middle = low.midpoint(high);
            let [candidate, merged, rank] = self.merge_at(middle);
            match candidate.cmp(&right) {
                Ordering::Equal => return Some((rank, merged)),
                Ordering::Less => low = middle.saturating_add(1),
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// An entry of the added-token table, which is sorted by text.
    pub(crate) fn added_at(&self, index: usize) -> AddedEntry {
        let at = index
            .checked_mul(layout::ADDED_BYTES)
            .and_then(|offset| offset.checked_add(self.places.added))
            .unwrap_or(usize::MAX);
        AddedEntry {
            id: self.u32_at(at),
            flags: self.u32_at(at.saturating_add(layout::ID_BYTES)),
        }
    }

    /// An entry of the end-of-sequence table.
    pub(crate) fn eos_at(&self, index: usize) -> u32 {
        self.entry(self.places.eos, index)
    }
}
