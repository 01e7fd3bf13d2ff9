//! Declaring a knot: what it will hold, before a payload byte is known. The layout follows from the
//! declaration alone, so payloads can be streamed to their places. Nothing here does I/O.
//! Specification: `docs/format/gkq-v2.md`.

mod plan;

pub use plan::{KnotPlan, PlannedPayload};

use crate::block::{Block, BlockBody, check_dims, spectral};
use crate::columnar::Columnar;
use crate::dtype::Dtype;
use crate::error::{Error, Place};
use crate::layout::{HOT_ID_BYTES, columnar, flags};
use crate::num::length;
use crate::section::{Home, Section, SectionKind};
use crate::table::check_name_bytes;

/// A declared block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId(usize);

/// A declared section that is a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SectionId(usize);

/// Bytes that the caller writes to the object and whose digest the caller hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Payload {
    /// The tensor of a block. Of an external block only the digest is asked.
    Block(BlockId),
    /// The path table of a columnar-eligible block.
    PathTable(BlockId),
    /// The hot ids of a columnar-eligible block.
    HotIds(BlockId),
    /// The sketch of a columnar-eligible block.
    Sketch(BlockId),
    /// A section of the file.
    Section(SectionId),
}

/// What accompanies a columnar-eligible block, apart from its row tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnarSpec {
    /// Length of the hot-id list; 0 for none.
    pub hot_ids: u32,
    /// Bytes of the sketch; 0 for none.
    pub sketch_bytes: u64,
    /// Bytes of the sidecar of rows of several kinds; 0 where all rows of a store are the block's.
    pub row_sidecar_bytes: u64,
}

/// A block to be declared.
#[derive(Clone, Debug)]
pub struct BlockSpec {
    name: String,
    shape: Vec<u64>,
    dtype: Dtype,
    rank: Option<u32>,
    source_dtype: Option<Dtype>,
    columnar: Option<ColumnarSpec>,
    external: bool,
}

impl BlockSpec {
    /// A tensor as stored: `shape` is outermost dimension first, rows are contiguous.
    pub fn dense(name: impl Into<String>, dtype: Dtype, shape: &[u64]) -> Self {
        Self {
            name: name.into(),
            shape: shape.to_vec(),
            dtype,
            rank: None,
            source_dtype: None,
            columnar: None,
            external: false,
        }
    }

    /// `W ~ U diag(s) V^T` for `W` of shape `[rows, cols]`; `dtype` is that of `u` and `vt`.
    pub fn spectral(name: impl Into<String>, dtype: Dtype, shape: [u64; 2], rank: u32) -> Self {
        Self {
            rank: Some(rank),
            ..Self::dense(name, dtype, &shape)
        }
    }

    /// The element type in the checkpoint, where it is not the stored one. What the conversion cost
    /// is then asked by [`KnotPlan::record_error`].
    #[must_use]
    pub fn converted_from(mut self, source_dtype: Dtype) -> Self {
        self.source_dtype = Some(source_dtype);
        self
    }

    /// Marks the tensor columnar-eligible.
    #[must_use]
    pub fn columnar(mut self, columnar: ColumnarSpec) -> Self {
        self.columnar = Some(columnar);
        self
    }

    /// Leaves the payload out of the object: only a row store has it.
    #[must_use]
    pub fn external(mut self) -> Self {
        self.external = true;
        self
    }

    /// The block without its ranges and digest.
    fn into_block(self) -> Result<Block, Error> {
        let place = || Place::Block(self.name.clone());
        check_name_bytes(length(self.name.len()), place)?;
        check_dims(&self.shape, place)?;
        let body = match self.rank {
            Some(rank) => spectral(&self.name, self.dtype, &self.shape, rank)?,
            None => BlockBody::Dense { dtype: self.dtype },
        };
        let columnar = if self.columnar.is_some() {
            flags::COLUMNAR_ELIGIBLE
        } else {
            0
        };
        let external = if self.external {
            flags::EXTERNAL_PAYLOAD
        } else {
            0
        };
        let block = Block {
            name: self.name,
            body,
            shape: self.shape,
            flags: columnar | external,
            source_dtype: self.source_dtype.unwrap_or(self.dtype),
            error: 0.0,
            payload: 0..0,
            blake3: [0; 32],
            columnar: None,
        };
        block.check()?;
        Ok(block)
    }
}

/// A section as declared: its range waits for the layout.
#[derive(Clone, Debug)]
struct DraftSection {
    kind: SectionKind,
    block: Option<usize>,
    bytes: u64,
    /// The body of a section inside the front.
    body: Option<Vec<u8>>,
}

/// A knot in the making. Payloads lie in the order of their declaration.
#[derive(Clone, Debug, Default)]
pub struct KnotDraft {
    blocks: Vec<Block>,
    sections: Vec<DraftSection>,
    payloads: Vec<Payload>,
}

impl KnotDraft {
    /// A knot without blocks and sections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a small section, which lies inside the front and so comes with the first range.
    ///
    /// # Errors
    /// If the kind is a payload or describes a block, is there already, is empty, or must be UTF-8
    /// and is not.
    pub fn front_section(&mut self, kind: SectionKind, body: Vec<u8>) -> Result<(), Error> {
        let place = Place::Section { kind, tensor: None };
        if kind.is_text() && std::str::from_utf8(&body).is_err() {
            return Err(Error::NotUtf8 { place });
        }
        self.declare_of_the_file(kind, Home::Front, length(body.len()), Some(body))
    }

    /// Adds a section that is a payload, such as the tokenizer.
    ///
    /// # Errors
    /// If the kind lies in the front or describes a block, is there already, or is empty.
    pub fn payload_section(&mut self, kind: SectionKind, bytes: u64) -> Result<SectionId, Error> {
        let id = SectionId(self.sections.len());
        self.declare_of_the_file(kind, Home::Payload, bytes, None)?;
        self.payloads.push(Payload::Section(id));
        Ok(id)
    }

    /// Adds a block. The path table, hot ids and sketch of a columnar-eligible one lie before its
    /// payload.
    ///
    /// # Errors
    /// If the name, shape, rank or a combination of properties breaks a rule of the format.
    pub fn block(&mut self, spec: BlockSpec) -> Result<BlockId, Error> {
        let columnar = spec.columnar;
        let block = spec.into_block()?;
        let id = BlockId(self.blocks.len());
        if let Some(columnar) = columnar {
            self.declare_columnar(id, &block, columnar)?;
        }
        if !block.is_external() {
            self.payloads.push(Payload::Block(id));
        }
        self.blocks.push(block);
        Ok(id)
    }

    /// Decides where everything lies.
    ///
    /// # Errors
    /// If two blocks have one name, a limit is exceeded, or the object's length overflows.
    pub fn plan(self) -> Result<KnotPlan, Error> {
        KnotPlan::new(self)
    }

    fn declare_of_the_file(
        &mut self,
        kind: SectionKind,
        home: Home,
        bytes: u64,
        body: Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let place = || Place::Section { kind, tensor: None };
        if kind.is_columnar() {
            let rule = "is declared with its block";
            return Err(Error::SectionOwner {
                place: place(),
                rule,
            });
        }
        if kind.home() != home {
            let rule = match home {
                Home::Front => "does not lie in the front",
                _ => "is no payload",
            };
            return Err(Error::SectionOwner {
                place: place(),
                rule,
            });
        }
        if bytes == 0 {
            return Err(Error::Empty {
                place: place(),
                field: "body_bytes",
            });
        }
        if self.sections.iter().any(|section| section.kind == kind) {
            return Err(Error::DuplicateSection { place: place() });
        }
        self.sections.push(DraftSection {
            kind,
            block: None,
            bytes,
            body,
        });
        Ok(())
    }

    fn declare_columnar(
        &mut self,
        id: BlockId,
        block: &Block,
        spec: ColumnarSpec,
    ) -> Result<(), Error> {
        let (facts, shape) = Columnar::expected(block)?;
        let paths = facts.path_table_bytes().ok_or_else(|| Error::Shape {
            place: block.place(),
            shape: block.shape.clone(),
            dtype: block.dtype().name(),
            reason: "the path table's bytes overflow 64 bits",
        })?;
        // The pinned nodes are at most 128 KiB; they are filled in when the rows have been hashed.
        let nodes = usize::try_from(shape.pinned_bytes()).unwrap_or(0);
        let hot_ids = u64::from(spec.hot_ids).saturating_mul(length(HOT_ID_BYTES));
        let mut declare = |kind, bytes, body| {
            self.sections.push(DraftSection {
                kind,
                block: Some(id.0),
                bytes,
                body,
            });
        };
        declare(
            SectionKind::Columnar,
            length(columnar::BYTES),
            Some(vec![0; columnar::BYTES]),
        );
        declare(
            SectionKind::PinnedNodes,
            shape.pinned_bytes(),
            Some(vec![0; nodes]),
        );
        if spec.row_sidecar_bytes > 0 {
            // Filled in with the rows; what is too long for a front is refused with the front.
            declare(
                SectionKind::RowSidecar,
                spec.row_sidecar_bytes,
                Some(Vec::new()),
            );
        }
        let payloads = [
            (SectionKind::PathTable, paths, Payload::PathTable(id)),
            (SectionKind::HotIds, hot_ids, Payload::HotIds(id)),
            (SectionKind::Sketch, spec.sketch_bytes, Payload::Sketch(id)),
        ];
        for (kind, bytes, payload) in payloads {
            if bytes > 0 {
                declare(kind, bytes, None);
                self.payloads.push(payload);
            }
        }
        Ok(())
    }
}

impl DraftSection {
    /// The section without its range and digest.
    fn to_section(&self) -> Section {
        Section {
            kind: self.kind,
            flags: 0,
            block: self.block,
            range: 0..0,
            blake3: [0; 32],
        }
    }
}
