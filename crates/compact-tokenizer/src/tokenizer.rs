//! The tokenizer that callers hold: a checked file plus the few small tables that are built at
//! start (one id per byte, one per ASCII character, the order of the added tokens).

use std::sync::Arc;

use bytes::Bytes;

use crate::added::AddedIndex;
use crate::encode::Encoder;
use crate::error::Error;
use crate::layout::{self, NO_ID};
use crate::reader::{self, Header};
use crate::spec::Algorithm;
use crate::tables::Tables;

/// Whether the ids that frame a text (begin and end of sequence) are added, as far as the tokenizer
/// adds any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddSpecial {
    /// Add them.
    Yes,
    /// The text alone.
    No,
}

/// A loaded tokenizer; cloning it shares everything.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

/// What clones share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) header: Header,
    pub(crate) tables: Tables,
    pub(crate) raw_added: AddedIndex,
    pub(crate) normalised_added: AddedIndex,
    byte_ids: [u32; 256],
    ascii_ids: [u32; 128],
    eos_ids: Vec<u32>,
}

impl Tokenizer {
    /// Checks a file and makes a tokenizer of it. The bytes are kept, not copied: with a mapped file
    /// only the pages that texts need become resident after this one pass.
    ///
    /// # Errors
    /// [`Error::Magic`], [`Error::Version`], [`Error::Length`] or [`Error::Malformed`], naming the
    /// first rule of the format that the bytes break.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, Error> {
        let (header, tables) = reader::read(bytes)?;
        let longest_first = header.flags & layout::FLAG_LONGEST_FIRST != 0;
        let normalised = |flags: u32| !longest_first && flags & layout::ADDED_NORMALIZED != 0;
        let mut inner = Inner {
            raw_added: AddedIndex::new(&tables, |flags| !normalised(flags)),
            normalised_added: AddedIndex::new(&tables, normalised),
            byte_ids: [NO_ID; 256],
            ascii_ids: [NO_ID; 128],
            eos_ids: (0..tables.eos_count as usize)
                .map(|index| tables.eos_at(index))
                .collect(),
            header,
            tables,
        };
        inner.fill_symbol_ids();
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The ids of a text. Added tokens that stand in the text are found in it, special ones too.
    pub fn encode(&self, text: &str, special: AddSpecial) -> Vec<u32> {
        let flags = self.inner.header.flags;
        let framed = |flag: u32| special == AddSpecial::Yes && flags & flag != 0;
        let mut ids = Vec::new();
        ids.extend(
            self.inner
                .header
                .bos_id
                .filter(|_| framed(layout::FLAG_ADD_BOS)),
        );
        let mut encoder = Encoder::new(&self.inner, ids);
        encoder.text(text);
        let mut ids = encoder.finish();
        ids.extend(
            self.inner
                .eos_ids
                .first()
                .filter(|_| framed(layout::FLAG_ADD_EOS)),
        );
        ids
    }

    /// The text of ids; special tokens and ids without a token contribute nothing, bytes that are
    /// no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids)
    }

    /// The bytes that one id stands for (special tokens too), or `None` if no token has it. They
    /// need not be UTF-8.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if self.inner.tables.kind(id) == layout::KIND_HOLE {
            return None;
        }
        let mut bytes = Vec::new();
        self.inner.append_bytes(id, &mut bytes);
        Some(bytes)
    }

    /// [`token_bytes`](Self::token_bytes) as text, with U+FFFD for what is no UTF-8.
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.token_bytes(id)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The id of a token by its stored text: raw bytes for byte-level tokenizers, with U+2581 for a
    /// space for SentencePiece ones. Added tokens go first.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        let Inner {
            tables,
            raw_added,
            normalised_added,
            ..
        } = &*self.inner;
        raw_added
            .find(tables, text.as_bytes())
            .or_else(|| normalised_added.find(tables, text.as_bytes()))
            .or_else(|| tables.find(text.as_bytes()))
    }

    /// One more than the largest id; there may be holes below it.
    pub fn vocabulary_len(&self) -> u32 {
        self.inner.tables.vocabulary_len
    }

    /// Begin of sequence.
    pub fn bos_id(&self) -> Option<u32> {
        self.inner.header.bos_id
    }

    /// The ids that end a text, in the file's order.
    pub fn eos_ids(&self) -> &[u32] {
        &self.inner.eos_ids
    }

    /// Padding.
    pub fn pad_id(&self) -> Option<u32> {
        self.inner.header.pad_id
    }

    /// What a symbol without a token becomes, if the tokenizer has such an id.
    pub fn unk_id(&self) -> Option<u32> {
        self.inner.header.unk_id
    }

    /// Whether an id is left out of decoded text.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.is_special(id)
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> usize {
        self.inner.tables.bytes.len()
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn is_special(&self, id: u32) -> bool {
        matches!(
            self.tables.kind(id),
            layout::KIND_CONTROL | layout::KIND_UNKNOWN
        )
    }

    /// The token of a byte, or [`NO_ID`].
    pub(crate) fn byte_id(&self, byte: u8) -> u32 {
        self.byte_ids[usize::from(byte)]
    }

    pub(crate) fn has_byte_ids(&self, bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| self.byte_id(byte) != NO_ID)
    }

    /// The token of a character that is given with its UTF-8.
    pub(crate) fn character_id(&self, character: char, bytes: &[u8]) -> Option<u32> {
        match self.ascii_ids.get(character as usize) {
            Some(&id) => Some(id).filter(|&id| id != NO_ID),
            None => self.tables.find(bytes),
        }
    }

    fn fill_symbol_ids(&mut self) {
        for (byte, slot) in (0..128_u8).zip(&mut self.ascii_ids) {
            *slot = self.tables.find(&[byte]).unwrap_or(NO_ID);
        }
        match self.header.algorithm {
            Algorithm::ByteLevel => {
                for (byte, slot) in (0..=255_u8).zip(&mut self.byte_ids) {
                    *slot = self.tables.find(&[byte]).unwrap_or(NO_ID);
                }
            }
            Algorithm::SentencePiece => {
                for id in 0..self.tables.vocabulary_len {
                    if let Some(byte) = self.byte_of(id) {
                        self.byte_ids[usize::from(byte)] = id;
                    }
                }
            }
        }
    }
}
