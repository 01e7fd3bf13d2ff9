//! Ids to text, whole or as a stream. A stream holds back at most three bytes: an unfinished
//! character waits for its rest, a byte that can never become one is U+FFFD at once. Specification:
//! `docs/format/tokenizer.md`, decoding.

use crate::layout;
use crate::normalise::METASPACE;
use crate::spec::Algorithm;
use crate::tokenizer::{Inner, Tokenizer};

impl Inner {
    /// Appends the bytes that an id stands for, special tokens included.
    pub(crate) fn append_bytes(&self, id: u32, out: &mut Vec<u8>) {
        let text = self.tables.text(id);
        if self.header.algorithm == Algorithm::ByteLevel {
            out.extend_from_slice(text);
            return;
        }
        if let Some(byte) = self.byte_of(id) {
            out.push(byte);
            return;
        }
        let mut buffer = [0; 4];
        let space = METASPACE.encode_utf8(&mut buffer).as_bytes();
        let mut rest = text;
        while let Some((&first, tail)) = rest.split_first() {
            if let Some(after) = rest.strip_prefix(space) {
                out.push(b' ');
                rest = after;
            } else {
                out.push(first);
                rest = tail;
            }
        }
    }

    /// The byte of a byte token.
    pub(crate) fn byte_of(&self, id: u32) -> Option<u8> {
        if self.tables.kind(id) != layout::KIND_BYTE {
            return None;
        }
        let digits = self
            .tables
            .text(id)
            .strip_prefix(b"<0x")?
            .strip_suffix(b">")?;
        if digits.len() != 2 {
            return None;
        }
        u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids.iter().filter(|&&id| !self.is_special(id)) {
            self.append_bytes(id, &mut bytes);
        }
        if self.header.flags & layout::FLAG_STRIP_LEADING_SPACE != 0 && bytes.first() == Some(&b' ')
        {
            bytes.remove(0);
        }
        match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

/// Text of ids that arrive one by one, for printing while a model writes.
///
/// The pieces joined are the ids' text with special tokens left out. Unlike
/// [`Tokenizer::decode`] a stream keeps a space at its start: it continues a text that it does not
/// see.
#[derive(Clone, Debug)]
pub struct DecodeStream {
    tokenizer: Tokenizer,
    pending: Vec<u8>,
}

impl DecodeStream {
    /// A stream at its start.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Self {
            tokenizer: tokenizer.clone(),
            pending: Vec::new(),
        }
    }

    /// Takes the next id and gives the characters that are complete with it, if any.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let inner = self.tokenizer.inner();
        if !inner.is_special(id) {
            inner.append_bytes(id, &mut self.pending);
        }
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        let held = loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    break 0;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                    let Some(length) = error.error_len() else {
                        break after.len();
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = after.get(length..).unwrap_or_default();
                }
            }
        };
        self.pending.drain(..self.pending.len() - held);
        (!text.is_empty()).then_some(text)
    }

    /// Ends the stream: a character that never became whole is U+FFFD.
    pub fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.pending);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}
