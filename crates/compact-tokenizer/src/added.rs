//! Finds added tokens in text, in the two orders that the reference implementations use. The tokens
//! lie in the file sorted by text, so a match at one place is a narrowing search and the index holds
//! four bytes a token. Specification: `docs/format/tokenizer.md`, added tokens.

use std::ops::Range;

use crate::character::is_word;
use crate::layout;
use crate::tables::{AddedEntry, Tables};

/// A stretch of text, or a token that was found in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    Text(Range<usize>),
    Token(u32),
}

/// The added tokens of one pass: raw or normalised.
#[derive(Debug)]
pub(crate) struct AddedIndex {
    /// Positions in the added-token table, by ascending text.
    order: Vec<u32>,
    first_bytes: ByteSet,
    /// Distinct text lengths, longest first, with the first bytes of the texts that have them.
    lengths: Vec<(usize, ByteSet)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

impl AddedIndex {
    /// The tokens whose flags pass `wanted`.
    pub(crate) fn new(tables: &Tables, wanted: impl Fn(u32) -> bool) -> Self {
        let order: Vec<u32> = (0..tables.added_count)
            .filter(|&index| wanted(tables.added_at(index as usize).flags))
            .collect();
        let mut index = Self {
            order,
            first_bytes: ByteSet::default(),
            lengths: Vec::new(),
        };
        let mut by_length = std::collections::BTreeMap::<usize, ByteSet>::new();
        for position in 0..index.order.len() {
            let text = index.text(tables, position);
            if let Some(&first) = text.first() {
                index.first_bytes.insert(first);
                by_length.entry(text.len()).or_default().insert(first);
            }
        }
        index.lengths = by_length.into_iter().rev().collect();
        index
    }

    /// Whether no token takes part in this pass.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn entry(&self, tables: &Tables, position: usize) -> AddedEntry {
        tables.added_at(
            self.order
                .get(position)
                .map_or(usize::MAX, |&index| index as usize),
        )
    }

    fn text<'a>(&self, tables: &'a Tables, position: usize) -> &'a [u8] {
        tables.text(self.entry(tables, position).id)
    }

    /// The token with exactly this text.
    pub(crate) fn find(&self, tables: &Tables, text: &[u8]) -> Option<u32> {
        self.position(tables, text)
            .map(|position| self.entry(tables, position).id)
    }

    fn position(&self, tables: &Tables, text: &[u8]) -> Option<usize> {
        self.order
            .binary_search_by(|&index| tables.text(tables.added_at(index as usize).id).cmp(text))
            .ok()
    }

    /// The longest token that `rest` begins with: position in `order` and length.
    fn longest(&self, tables: &Tables, rest: &[u8]) -> Option<(usize, usize)> {
        let (mut low, mut high) = (0, self.order.len());
        let mut best = None;
        for (depth, &byte) in rest.iter().enumerate() {
            // Texts between `low` and `high` share their first `depth` bytes and are longer.
            let at = |position: usize| self.text(tables, position).get(depth).copied();
            low = partition(low..high, |position| at(position) < Some(byte));
            high = partition(low..high, |position| at(position) <= Some(byte));
            if low < high && self.text(tables, low).len() == depth + 1 {
                best = Some((low, depth + 1));
                low += 1;
            }
            if low >= high {
                break;
            }
        }
        best
    }

    /// Hugging Face's order: the match that begins first, then the longest; non-overlapping.
    pub(crate) fn leftmost_longest(&self, tables: &Tables, text: &str) -> Vec<Fragment> {
        let bytes = text.as_bytes();
        let mut fragments = Vec::new();
        let mut done = 0;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let found = self
                .first_bytes
                .contains(byte)
                .then(|| self.longest(tables, bytes.get(at..).unwrap_or_default()))
                .flatten();
            let Some((position, length)) = found else {
                at += 1;
                continue;
            };
            let entry = self.entry(tables, position);
            let (mut start, mut end) = (at, at + length);
            at = end;
            let before = text.get(..start).unwrap_or_default();
            let after = text.get(end..).unwrap_or_default();
            let has = |flag: u32| entry.flags & flag != 0;
            if has(layout::ADDED_SINGLE_WORD)
                && (before.ends_with(is_word) || after.starts_with(is_word))
            {
                continue;
            }
            if has(layout::ADDED_LSTRIP) {
                start = before.trim_end().len().max(done);
            }
            if has(layout::ADDED_RSTRIP) {
                end += after.len() - after.trim_start().len();
            }
            if done < start {
                fragments.push(Fragment::Text(done..start));
            }
            fragments.push(Fragment::Token(entry.id));
            done = end;
        }
        if done < bytes.len() {
            fragments.push(Fragment::Text(done..bytes.len()));
        }
        fragments
    }

    /// llama.cpp's order: every match of the longest texts, then in what is left those of the next
    /// length, and so on.
    ///
    /// One narrowing search a place finds where any token matches at all, which in most text is
    /// nowhere; only those places are visited once for each length.
    pub(crate) fn longest_first(&self, tables: &Tables, text: &str) -> Vec<Fragment> {
        let bytes = text.as_bytes();
        let mut places = self.places(tables, bytes);
        let mut taken = Taken {
            occupied: vec![false; if places.is_empty() { 0 } else { bytes.len() }],
            spans: Vec::new(),
        };
        for (length, first_bytes) in &self.lengths {
            if places.is_empty() {
                break;
            }
            for &(start, longest) in places.iter().filter(|(_, longest)| longest >= length) {
                let candidate = bytes.get(start..start + length).unwrap_or_default();
                let possible = *length <= longest
                    && candidate
                        .first()
                        .is_some_and(|&first| first_bytes.contains(first))
                    && taken.is_free(start, *length);
                if let Some(position) = possible.then(|| self.position(tables, candidate)).flatten()
                {
                    taken.take(bytes, start..start + length, self.entry(tables, position));
                }
            }
            places.retain(|&(start, _)| taken.is_free(start, 1));
        }
        taken.fragments(bytes.len())
    }

    /// Where a token begins, with the length of the longest that does.
    fn places(&self, tables: &Tables, bytes: &[u8]) -> Vec<(usize, usize)> {
        let candidates = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| self.first_bytes.contains(**byte));
        candidates
            .filter_map(|(start, _)| {
                let (_, length) = self.longest(tables, bytes.get(start..)?)?;
                Some((start, length))
            })
            .collect()
    }
}

/// What the longer tokens have left of a text.
struct Taken {
    occupied: Vec<bool>,
    spans: Vec<(Range<usize>, u32)>,
}

impl Taken {
    /// Spans taken before are at least this long, so one that overlaps covers an end.
    fn is_free(&self, start: usize, length: usize) -> bool {
        let occupied = |at: usize| self.occupied.get(at).copied().unwrap_or(true);
        !occupied(start) && !occupied(start + length - 1)
    }

    fn take(&mut self, bytes: &[u8], span: Range<usize>, entry: AddedEntry) {
        let Range { mut start, mut end } = span;
        // `isspace` of the C locale, which is what the reference strips.
        let strips = |at: usize, occupied: &[bool]| {
            bytes
                .get(at)
                .is_some_and(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
                && occupied.get(at) == Some(&false)
        };
        if entry.flags & layout::ADDED_LSTRIP != 0 {
            while start > 0 && strips(start - 1, &self.occupied) {
                start -= 1;
            }
        }
        if entry.flags & layout::ADDED_RSTRIP != 0 {
            while strips(end, &self.occupied) {
                end += 1;
            }
        }
        if let Some(places) = self.occupied.get_mut(start..end) {
            places.fill(true);
        }
        self.spans.push((start..end, entry.id));
    }

    fn fragments(mut self, length: usize) -> Vec<Fragment> {
        self.spans.sort_unstable_by_key(|(span, _)| span.start);
        let mut fragments = Vec::new();
        let mut done = 0;
        for (span, id) in self.spans {
            if done < span.start {
                fragments.push(Fragment::Text(done..span.start));
            }
            fragments.push(Fragment::Token(id));
            done = span.end;
        }
        if done < length {
            fragments.push(Fragment::Text(done..length));
        }
        fragments
    }
}

/// The first position of `range` where `before` no longer holds.
fn partition(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let Range {
        start: mut low,
        end: mut high,
    } = range;
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
