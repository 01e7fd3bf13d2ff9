//! Sections: everything of a knot that is no tensor, each with its kind, owner, place and digest.
//! What they contain is not interpreted here. Specification: `docs/format/gkq-v2.md`, section table.

use std::fmt;
use std::ops::Range;

use crate::block::Block;
use crate::error::{Error, Place};
use crate::flags::refuse_unknown_required;
use crate::layout::{NO_BLOCK, section as at};
use crate::num::byte_range;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SectionKind {
    /// `config.json` of the model, UTF-8. In the front.
    ModelConfig,
    /// The compact tokenizer. A payload.
    Tokenizer,
    /// `tokenizer_config.json`, UTF-8. In the front.
    TokenizerConfig,
    /// The chat template, UTF-8. In the front.
    ChatTemplate,
    /// `generation_config.json`, UTF-8. In the front.
    GenerationConfig,
    /// Where the knot comes from, for people, UTF-8. In the front.
    Provenance,
    /// What a row store of one tensor must have. In the front.
    Columnar,
    /// The pinned nodes of a tensor's row tree. In the front.
    PinnedNodes,
    /// The path table of a tensor's row tree. A payload.
    PathTable,
    /// Row ids in order of heat, u32. A payload.
    HotIds,
    /// A sketch of a tensor's rows. A payload.
    Sketch,
    /// Which kind each row of a row store has, and where it lies. In the front.
    RowSidecar,
    /// A kind that this version does not know, with its code; ignored.
    Unknown(u32),
}

/// Where sections of a kind lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Front,
    Payload,
    Either,
}

impl SectionKind {
    const KNOWN: [Self; 12] = [
        Self::ModelConfig,
        Self::Tokenizer,
        Self::TokenizerConfig,
        Self::ChatTemplate,
        Self::GenerationConfig,
        Self::Provenance,
        Self::Columnar,
        Self::PinnedNodes,
        Self::PathTable,
        Self::HotIds,
        Self::Sketch,
        Self::RowSidecar,
    ];

    /// The number that stands for this kind in a knot.
    pub const fn code(self) -> u32 {
        match self {
            Self::ModelConfig => at::KIND_MODEL_CONFIG,
            Self::Tokenizer => at::KIND_TOKENIZER,
            Self::TokenizerConfig => at::KIND_TOKENIZER_CONFIG,
            Self::ChatTemplate => at::KIND_CHAT_TEMPLATE,
            Self::GenerationConfig => at::KIND_GENERATION_CONFIG,
            Self::Provenance => at::KIND_PROVENANCE,
            Self::Columnar => at::KIND_COLUMNAR,
            Self::PinnedNodes => at::KIND_PINNED_NODES,
            Self::PathTable => at::KIND_PATH_TABLE,
            Self::HotIds => at::KIND_HOT_IDS,
            Self::Sketch => at::KIND_SKETCH,
            Self::RowSidecar => at::KIND_ROW_SIDECAR,
            Self::Unknown(code) => code,
        }
    }

    pub(crate) fn from_code(code: u32) -> Self {
        Self::KNOWN
            .into_iter()
            .find(|kind| kind.code() == code)
            .unwrap_or(Self::Unknown(code))
    }

    /// Whether the body must be UTF-8.
    pub const fn is_text(self) -> bool {
        matches!(
            self,
            Self::ModelConfig
                | Self::TokenizerConfig
                | Self::ChatTemplate
                | Self::GenerationConfig
                | Self::Provenance
        )
    }

    pub(crate) const fn home(self) -> Home {
        match self {
            Self::ModelConfig
            | Self::TokenizerConfig
            | Self::ChatTemplate
            | Self::GenerationConfig
            | Self::Provenance
            | Self::Columnar
            | Self::PinnedNodes
            | Self::RowSidecar => Home::Front,
            Self::Tokenizer | Self::PathTable | Self::HotIds | Self::Sketch => Home::Payload,
            Self::Unknown(_) => Home::Either,
        }
    }

    /// Whether sections of this kind describe a columnar-eligible tensor.
    pub(crate) const fn is_columnar(self) -> bool {
        matches!(
            self,
            Self::Columnar
                | Self::PinnedNodes
                | Self::PathTable
                | Self::HotIds
                | Self::Sketch
                | Self::RowSidecar
        )
    }
}

impl fmt::Display for SectionKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ModelConfig => "model-config",
            Self::Tokenizer => "tokenizer",
            Self::TokenizerConfig => "tokenizer-config",
            Self::ChatTemplate => "chat-template",
            Self::GenerationConfig => "generation-config",
            Self::Provenance => "provenance",
            Self::Columnar => "columnar",
            Self::PinnedNodes => "pinned-nodes",
            Self::PathTable => "path-table",
            Self::HotIds => "hot-ids",
            Self::Sketch => "sketch",
            Self::RowSidecar => "row-sidecar",
            Self::Unknown(code) => return write!(formatter, "of unknown kind {code}"),
        })
    }
}

/// One section of a knot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Section {
    /// What it holds.
    pub kind: SectionKind,
    /// The flag bits as stored.
    pub flags: u32,
    /// Number of the block it belongs to, in table order; `None` if it belongs to the whole knot.
    pub block: Option<usize>,
    /// Bytes of the object that hold the body. Never empty.
    pub range: Range<u64>,
    /// BLAKE3 of the body.
    pub blake3: [u8; 32],
}

impl Section {
    pub(crate) fn place(&self, blocks: &[Block]) -> Place {
        let owner = self.block.and_then(|block| blocks.get(block));
        Place::Section {
            kind: self.kind,
            tensor: owner.map(|block| block.name.clone()),
        }
    }

    /// Reads an entry and checks what can be checked without its neighbours.
    pub(crate) fn decode(record: &[u8; at::BYTES], blocks: &[Block]) -> Result<Self, Error> {
        let owner = at::BLOCK.u32(record);
        let mut section = Self {
            kind: SectionKind::from_code(at::KIND.u32(record)),
            flags: at::FLAGS.u32(record),
            block: if owner == NO_BLOCK {
                None
            } else {
                usize::try_from(owner).ok()
            },
            range: 0..0,
            blake3: at::BLAKE3.read(record),
        };
        let place = || section.place(blocks);
        refuse_unknown_required(section.flags, 0, place)?;
        if at::RESERVED.u32(record) != 0 {
            return Err(Error::ReservedNotZero {
                place: place(),
                field: "reserved",
            });
        }
        let range = byte_range(
            at::BODY_OFFSET.u64(record),
            at::BODY_BYTES.u64(record),
            place,
        )?;
        if range.is_empty() {
            return Err(Error::Empty {
                place: place(),
                field: "body_bytes",
            });
        }
        section.range = range;
        section.check_owner(blocks)?;
        Ok(section)
    }

    /// Sections of the file belong to no block, columnar ones to an eligible block.
    pub(crate) fn check_owner(&self, blocks: &[Block]) -> Result<(), Error> {
        let refuse = |rule| {
            Err(Error::SectionOwner {
                place: self.place(blocks),
                rule,
            })
        };
        let owner = match self.block {
            None if self.kind.is_columnar() => return refuse("belongs to no block"),
            None => return Ok(()),
            Some(index) => blocks.get(index),
        };
        match (self.kind, owner) {
            (_, None) => refuse("belongs to a block that does not exist"),
            (SectionKind::Unknown(_), Some(_)) => Ok(()),
            (kind, Some(_)) if !kind.is_columnar() => refuse("belongs to the file, not to a block"),
            (_, Some(block)) if !block.is_columnar_eligible() => {
                refuse("belongs to a block that is not columnar-eligible")
            }
            _ => Ok(()),
        }
    }

    /// The table entry of this section.
    pub(crate) fn encode(&self) -> [u8; at::BYTES] {
        let mut record = [0; at::BYTES];
        let owner = self
            .block
            .and_then(|block| u32::try_from(block).ok())
            .unwrap_or(NO_BLOCK);
        let bytes = self.range.end.saturating_sub(self.range.start);
        at::KIND.write(&mut record, self.kind.code().to_le_bytes());
        at::FLAGS.write(&mut record, self.flags.to_le_bytes());
        at::BLOCK.write(&mut record, owner.to_le_bytes());
        at::BODY_OFFSET.write(&mut record, self.range.start.to_le_bytes());
        at::BODY_BYTES.write(&mut record, bytes.to_le_bytes());
        at::BLAKE3.write(&mut record, self.blake3);
        record
    }
}
