//! Text to ids: added tokens, normaliser, words, symbols, merges, in that order. It keeps no cache
//! and never fails. Specification: `docs/format/tokenizer.md`, encoding.

use crate::added::Fragment;
use crate::layout::{self, NO_ID};
use crate::merge::{Joiner, Merger, Rule, Symbol};
use crate::normalise::{self, Position};
use crate::pre_tokenise;
use crate::spec::{Algorithm, UnknownSymbol};
use crate::tokenizer::Inner;

/// Longest word whose places fit the symbols' 32-bit fields; longer ones are cut there.
const WORD_BYTES: usize = 1 << 31;

pub(crate) struct Encoder<'a> {
    tokenizer: &'a Inner,
    merger: Merger,
    ids: Vec<u32>,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(tokenizer: &'a Inner, ids: Vec<u32>) -> Self {
        Self {
            tokenizer,
            merger: Merger::default(),
            ids,
        }
    }

    pub(crate) fn finish(self) -> Vec<u32> {
        self.ids
    }

    /// Encodes a whole text, added tokens included.
    pub(crate) fn text(&mut self, text: &str) {
        let Inner {
            tables,
            header,
            raw_added,
            ..
        } = self.tokenizer;
        let fragments = if header.flags & layout::FLAG_LONGEST_FIRST != 0 {
            raw_added.longest_first(tables, text)
        } else {
            raw_added.leftmost_longest(tables, text)
        };
        for fragment in fragments {
            match fragment {
                Fragment::Token(id) => self.ids.push(id),
                Fragment::Text(range) => {
                    let position = if range.start == 0 {
                        Position::Start
                    } else {
                        Position::Later
                    };
                    let stretch = text.get(range).unwrap_or_default();
                    let stretch = normalise::apply(&header.normalise, stretch, position);
                    self.normalised(&stretch);
                }
            }
        }
    }

    fn normalised(&mut self, text: &str) {
        let Inner {
            tables,
            normalised_added,
            ..
        } = self.tokenizer;
        if normalised_added.is_empty() {
            self.words(text);
            return;
        }
        for fragment in normalised_added.leftmost_longest(tables, text) {
            match fragment {
                Fragment::Token(id) => self.ids.push(id),
                Fragment::Text(range) => self.words(text.get(range).unwrap_or_default()),
            }
        }
    }

    fn words(&mut self, text: &str) {
        let steps = &self.tokenizer.header.pre_tokenise;
        pre_tokenise::split(steps, text, &mut |word| {
            let mut rest = word;
            while rest.len() > WORD_BYTES {
                let (head, tail) = rest.split_at(rest.floor_char_boundary(WORD_BYTES));
                self.word(head);
                rest = tail;
            }
            self.word(rest);
        });
    }

    fn word(&mut self, word: &str) {
        let Inner { tables, header, .. } = self.tokenizer;
        if header.flags & layout::FLAG_IGNORE_MERGES != 0
            && let Some(id) = tables.find(word.as_bytes())
        {
            self.ids.push(id);
            return;
        }
        let rule = if header.flags & layout::FLAG_SCORED != 0 {
            Rule::Scored
        } else {
            Rule::Listed
        };
        self.merger.symbols.clear();
        match header.algorithm {
            Algorithm::ByteLevel => self.byte_symbols(word.as_bytes()),
            Algorithm::SentencePiece => self.character_symbols(word, rule),
        }
        self.merger.merge(Joiner {
            tables,
            rule,
            word: word.as_bytes(),
        });
        for index in 0..self.merger.symbols.len() {
            if let Some(&symbol) = self.merger.symbols.get(index) {
                self.symbol_ids(symbol, word.as_bytes());
            }
        }
    }

    fn byte_symbols(&mut self, word: &[u8]) {
        for (start, &byte) in (0..).zip(word) {
            match self.tokenizer.byte_id(byte) {
                NO_ID => self.unknown(start, 1),
                id => self.merger.symbols.push(Symbol::new(id, start, 1)),
            }
        }
    }

    fn character_symbols(&mut self, word: &str, rule: Rule) {
        let mut start = 0;
        for character in word.chars() {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            // One to four.
            let length = u32::try_from(bytes.len()).unwrap_or(4);
            match (self.tokenizer.character_id(character, bytes), rule) {
                // By score a character without a token may still merge; what is left of it in the
                // end becomes bytes in `symbol_ids`.
                (id, Rule::Scored) => {
                    self.merger
                        .symbols
                        .push(Symbol::new(id.unwrap_or(NO_ID), start, length));
                }
                (Some(id), Rule::Listed) => {
                    self.merger.symbols.push(Symbol::new(id, start, length));
                }
                (None, Rule::Listed) if self.tokenizer.has_byte_ids(bytes) => {
                    for (offset, &byte) in (0..).zip(bytes) {
                        let id = self.tokenizer.byte_id(byte);
                        self.merger.symbols.push(Symbol::new(id, start + offset, 1));
                    }
                }
                (None, Rule::Listed) => self.unknown(start, length),
            }
            start += length;
        }
    }

    /// A symbol that has no token, by the tokenizer's policy.
    fn unknown(&mut self, start: u32, bytes: u32) {
        let header = &self.tokenizer.header;
        let unk = header.unk_id.unwrap_or(NO_ID);
        match (header.unknown, self.merger.symbols.last_mut()) {
            (UnknownSymbol::Skip, _) => {}
            (UnknownSymbol::Fused, Some(last)) if last.id == unk => last.bytes += bytes,
            (UnknownSymbol::Each | UnknownSymbol::Fused, _) => {
                self.merger.symbols.push(Symbol::new(unk, start, bytes));
            }
            (UnknownSymbol::Barrier, _) => {
                self.merger.symbols.push(Symbol::new(NO_ID, start, bytes));
            }
        }
    }

    fn symbol_ids(&mut self, symbol: Symbol, word: &[u8]) {
        let tokenizer = self.tokenizer;
        if symbol.id != NO_ID {
            self.ids.push(symbol.id);
            return;
        }
        if tokenizer.header.algorithm == Algorithm::ByteLevel {
            return;
        }
        let start = symbol.start as usize;
        let bytes = word
            .get(start..start + symbol.bytes as usize)
            .unwrap_or_default();
        if tokenizer.has_byte_ids(bytes) {
            self.ids
                .extend(bytes.iter().map(|&byte| tokenizer.byte_id(byte)));
        } else if let Some(unk) = tokenizer.header.unk_id {
            self.ids.push(unk);
        }
    }
}
