//! Merges the symbols of one word: the pair with the lowest rank first, between equal ranks the
//! leftmost. Short words scan their few pairs, long ones keep a heap, so that a whole text taken as
//! one word (SentencePiece has no words) costs `n log n`. Specification: `docs/format/tokenizer.md`,
//! merging.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::layout::NO_ID;
use crate::tables::Tables;

/// Words of up to this many symbols are scanned: below it the scan wins over the heap.
const SCAN_SYMBOLS: usize = 24;
const NONE: u32 = u32::MAX;

/// A piece of the word; `bytes == 0` marks one that was merged into its left neighbour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// The token, or [`NO_ID`] for a symbol that has none (yet).
    pub(crate) id: u32,
    pub(crate) start: u32,
    pub(crate) bytes: u32,
    previous: u32,
    next: u32,
}

impl Symbol {
    pub(crate) fn new(id: u32, start: u32, bytes: u32) -> Self {
        Self {
            id,
            start,
            bytes,
            previous: NONE,
            next: NONE,
        }
    }
}

/// Which pairs merge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// By the merge table.
    Listed,
    /// By the joined text, which must be a reachable token.
    Scored,
}

/// One word and the rule that says what merges in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joiner<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) rule: Rule,
    pub(crate) word: &'a [u8],
}

impl Joiner<'_> {
    /// Rank and id of what two neighbours merge into.
    fn join(&self, left: &Symbol, right: &Symbol) -> Option<(u32, u32)> {
        match self.rule {
            Rule::Listed if left.id == NO_ID || right.id == NO_ID => None,
            Rule::Listed => self.tables.find_merge(left.id, right.id),
            Rule::Scored => {
                let end = (right.start as usize).checked_add(right.bytes as usize)?;
                let merged = self.tables.find(self.word.get(left.start as usize..end)?)?;
                Some((self.tables.rank(merged), merged))
            }
        }
    }
}

/// A pair that may merge: ordered by rank, then by the left symbol's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    bytes: u32,
    merged: u32,
}

/// Work space that is kept from word to word.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    pub(crate) symbols: Vec<Symbol>,
    ranks: Vec<Option<(u32, u32)>>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Merges `symbols` in place until no pair is left; merged-away symbols are removed.
    pub(crate) fn merge(&mut self, joiner: Joiner<'_>) {
        if self.symbols.len() <= SCAN_SYMBOLS {
            self.merge_by_scan(joiner);
        } else {
            self.merge_by_heap(joiner);
        }
    }

    /// The obvious way, quadratic in the number of symbols.
    fn merge_by_scan(&mut self, joiner: Joiner<'_>) {
        let Self { symbols, ranks, .. } = self;
        let pair = |symbols: &[Symbol], left: usize| {
            let right = symbols.get(left + 1)?;
            joiner.join(symbols.get(left)?, right)
        };
        ranks.clear();
        ranks.extend((1..symbols.len()).map(|right| pair(symbols, right - 1)));
        loop {
            let best = ranks
                .iter()
                .enumerate()
                .filter_map(|(left, found)| found.map(|(rank, merged)| (rank, left, merged)))
                .min();
            let Some((_, left, merged)) = best else {
                return;
            };
            let right = symbols.remove(left + 1);
            ranks.remove(left);
            if let Some(symbol) = symbols.get_mut(left) {
                symbol.id = merged;
                symbol.bytes += right.bytes;
            }
            if let Some(rank) = ranks.get_mut(left) {
                *rank = pair(symbols, left);
            }
            if left > 0
                && let Some(rank) = ranks.get_mut(left - 1)
            {
                *rank = pair(symbols, left - 1);
            }
        }
    }

    fn merge_by_heap(&mut self, joiner: Joiner<'_>) {
        self.heap.clear();
        let count = u32::try_from(self.symbols.len()).unwrap_or(NONE);
        for (index, symbol) in (0..count).zip(self.symbols.iter_mut()) {
            symbol.previous = index.checked_sub(1).unwrap_or(NONE);
            symbol.next = if index + 1 < count { index + 1 } else { NONE };
        }
        for left in 0..count.saturating_sub(1) {
            self.push(joiner, left, left + 1);
        }
        while let Some(Reverse(candidate)) = self.heap.pop() {
            let Some(&left) = self.symbols.get(candidate.left as usize) else {
                continue;
            };
            let Some(&right) = self.symbols.get(left.next as usize) else {
                continue;
            };
            // A pair that changed since it was pushed covers another number of bytes.
            if left.bytes == 0 || left.bytes + right.bytes != candidate.bytes {
                continue;
            }
            if let Some(merged) = self.symbols.get_mut(candidate.left as usize) {
                merged.id = candidate.merged;
                merged.bytes = candidate.bytes;
                merged.next = right.next;
            }
            if let Some(gone) = self.symbols.get_mut(left.next as usize) {
                gone.bytes = 0;
            }
            if let Some(after) = self.symbols.get_mut(right.next as usize) {
                after.previous = candidate.left;
            }
            self.push(joiner, left.previous, candidate.left);
            self.push(joiner, candidate.left, right.next);
        }
        self.symbols.retain(|symbol| symbol.bytes != 0);
    }

    fn push(&mut self, joiner: Joiner<'_>, left: u32, right: u32) {
        let (Some(first), Some(second)) = (
            self.symbols.get(left as usize),
            self.symbols.get(right as usize),
        ) else {
            return;
        };
        if let Some((rank, merged)) = joiner.join(first, second) {
            let bytes = first.bytes + second.bytes;
            self.heap.push(Reverse(Candidate {
                rank,
                left,
                bytes,
                merged,
            }));
        }
    }
}

#[cfg(test)]
mod tests;
