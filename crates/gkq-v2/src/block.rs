//! One tensor of a knot: its table entry as bytes and as a checked value. Payloads are byte ranges;
//! nothing here reads one. Specification: `docs/format/gkq-v2.md`, block table.

use std::ops::Range;

use crate::columnar::Columnar;
use crate::dtype::Dtype;
use crate::error::{Error, Place};
use crate::flags::refuse_unknown_required;
use crate::layout::{PAYLOAD_ALIGN, block as at, flags};
use crate::limits::DIMS_MAX;
use crate::num::{align_up, byte_range, length};

/// How a tensor is stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BlockBody {
    /// The tensor itself, row-major, `[.., rows, cols]` with `cols` contiguous.
    Dense {
        /// Element type of the payload.
        dtype: Dtype,
    },
    /// `W ~ U diag(s) V^T` for `W` of shape `[rows, cols]`.
    Spectral {
        /// K, the number of singular values kept.
        rank: u32,
        /// Element type of `u` and `vt`: f32, f16 or bf16. `s` is always f32.
        dtype: Dtype,
        /// Bytes of `u`, `[rows, rank]`, within the payload.
        u: Range<u64>,
        /// Bytes of `s`, `[rank]` f32, within the payload.
        s: Range<u64>,
        /// Bytes of `vt`, `[rank, cols]`, within the payload.
        vt: Range<u64>,
    },
}

/// One tensor of a knot.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Block {
    /// The tensor's Hugging Face name, verbatim. Unique in its knot.
    pub name: String,
    /// How it is stored.
    pub body: BlockBody,
    /// Dimensions of the tensor, outermost first: `[out_features, in_features]` for a linear layer.
    pub shape: Vec<u64>,
    /// The flag bits as stored, with optional bits that this version does not know.
    pub flags: u32,
    /// Element type of the tensor in the checkpoint that the knot was made from.
    pub source_dtype: Dtype,
    /// What the conversion from [`source_dtype`](Self::source_dtype) cost. Dense: the largest
    /// absolute difference of a value, 0 for bytes kept as they were. Spectral: `|W - U diag(s) V^T|`
    /// over `|W|`, Frobenius norms.
    pub error: f64,
    /// Bytes of the object that hold the payload; empty if it is external.
    pub payload: Range<u64>,
    /// BLAKE3 of the payload. Of an external one: of the bytes where they are.
    pub blake3: [u8; 32],
    /// What a row store of this tensor must have, if the tensor is columnar-eligible.
    pub columnar: Option<Columnar>,
}

impl Block {
    /// Whether the rows of this tensor may be had from a row store instead.
    pub const fn is_columnar_eligible(&self) -> bool {
        self.flags & flags::COLUMNAR_ELIGIBLE != 0
    }

    /// Whether the payload is not in this object, so that a row store is the only way to its rows.
    pub const fn is_external(&self) -> bool {
        self.flags & flags::EXTERNAL_PAYLOAD != 0
    }

    /// Element type of the payload; of the factors if the block is spectral.
    pub const fn dtype(&self) -> Dtype {
        match &self.body {
            BlockBody::Dense { dtype } | BlockBody::Spectral { dtype, .. } => *dtype,
        }
    }

    /// Bytes of the payload, wherever it is.
    pub fn stored_bytes(&self) -> Option<u64> {
        match &self.body {
            BlockBody::Dense { dtype } => dtype.tensor_bytes(&self.shape),
            BlockBody::Spectral { vt, .. } => Some(vt.end),
        }
    }

    pub(crate) fn place(&self) -> Place {
        Place::Block(self.name.clone())
    }

    /// Reads an entry whose name is already known, and checks all that can be checked without its
    /// neighbours.
    pub(crate) fn decode(record: &[u8; at::BYTES], name: &str) -> Result<Self, Error> {
        let place = || Place::Block(name.to_owned());
        refuse_unknown_required(at::FLAGS.u32(record), flags::EXTERNAL_PAYLOAD, place)?;
        if at::RESERVED_WORD.u32(record) != 0 || at::RESERVED_TAIL.u64(record) != 0 {
            return Err(Error::ReservedNotZero {
                place: place(),
                field: "reserved",
            });
        }
        let code = |field, code| {
            Dtype::from_code(code).ok_or_else(|| Error::UnknownCode {
                place: place(),
                field,
                code,
            })
        };
        let dtype = code("dtype", at::DTYPE.u32(record))?;
        let shape = decode_shape(record, name)?;
        let body = match (at::KIND.u32(record), at::RANK.u32(record)) {
            (at::KIND_DENSE, 0) => BlockBody::Dense { dtype },
            (at::KIND_DENSE, rank) => {
                let (field, found) = ("rank of a dense block", rank.into());
                return Err(Error::Mismatch {
                    place: place(),
                    field,
                    expected: 0,
                    found,
                });
            }
            (at::KIND_SPECTRAL, rank) => spectral(name, dtype, &shape, rank)?,
            (other, _) => {
                return Err(Error::UnknownCode {
                    place: place(),
                    field: "kind",
                    code: other,
                });
            }
        };
        let start = at::PAYLOAD_OFFSET.u64(record);
        let block = Self {
            name: name.to_owned(),
            body,
            shape,
            flags: at::FLAGS.u32(record),
            source_dtype: code("source dtype", at::SOURCE_DTYPE.u32(record))?,
            error: f64::from_le_bytes(at::ERROR.read(record)),
            payload: byte_range(start, at::PAYLOAD_BYTES.u64(record), place)?,
            blake3: at::BLAKE3.read(record),
            columnar: None,
        };
        block.check()?;
        block.check_payload()?;
        Ok(block)
    }

    /// The payload is as long as the shape says, or nowhere.
    fn check_payload(&self) -> Result<(), Error> {
        let found = self.payload.end.saturating_sub(self.payload.start);
        let expected = if self.is_external() {
            0
        } else {
            self.checked_stored_bytes()?
        };
        let wrong = |field, expected, found| {
            Err(Error::Mismatch {
                place: self.place(),
                field,
                expected,
                found,
            })
        };
        if found != expected {
            return wrong("payload_bytes", expected, found);
        }
        if self.is_external() && self.payload.start != 0 {
            return wrong("payload_offset of an external block", 0, self.payload.start);
        }
        Ok(())
    }

    /// The rules that concern one block, whether it was read or is about to be written.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.checked_stored_bytes()?;
        if !self.error.is_finite() || self.error.is_sign_negative() {
            return Err(Error::ErrorFigure {
                place: self.place(),
                found: self.error,
            });
        }
        let spectral = matches!(self.body, BlockBody::Spectral { .. });
        let kept = !spectral && self.source_dtype == self.dtype();
        let rules = [
            (
                kept && self.error != 0.0,
                "a block kept in its source dtype has no error",
            ),
            (
                spectral && self.is_columnar_eligible(),
                "a spectral block has no rows to be had elsewhere",
            ),
            (
                self.is_columnar_eligible() && self.shape.len() != 2,
                "a columnar-eligible tensor has two dimensions",
            ),
            (
                self.is_external() && !self.is_columnar_eligible(),
                "an external payload can only be had from a row store",
            ),
        ];
        match rules.into_iter().find(|(broken, _)| *broken) {
            Some((_, rule)) => Err(Error::Contradiction {
                place: self.place(),
                rule,
            }),
            None => Ok(()),
        }
    }

    /// Bytes of the payload, or why this shape can't have one.
    pub(crate) fn checked_stored_bytes(&self) -> Result<u64, Error> {
        let broken = |cols: &u64| !cols.is_multiple_of(self.dtype().values_per_block());
        self.stored_bytes().ok_or_else(|| Error::Shape {
            place: self.place(),
            shape: self.shape.clone(),
            dtype: self.dtype().name(),
            reason: if self.shape.last().is_some_and(broken) {
                "a row is no whole number of quantisation blocks"
            } else {
                "its bytes overflow 64 bits"
            },
        })
    }

    /// The table entry of this block.
    pub(crate) fn encode(&self) -> [u8; at::BYTES] {
        let mut record = [0; at::BYTES];
        let (kind, rank) = match self.body {
            BlockBody::Dense { .. } => (at::KIND_DENSE, 0),
            BlockBody::Spectral { rank, .. } => (at::KIND_SPECTRAL, rank),
        };
        // Names and shapes are within their limits, which are far below 2^32: checked on declaration.
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        let dim = |index: usize| self.shape.get(index).copied().unwrap_or(0).to_le_bytes();
        let payload_bytes = self.payload.end.saturating_sub(self.payload.start);
        at::NAME_BYTES.write(&mut record, small(self.name.len()));
        at::KIND.write(&mut record, kind.to_le_bytes());
        at::DTYPE.write(&mut record, self.dtype().code().to_le_bytes());
        at::FLAGS.write(&mut record, self.flags.to_le_bytes());
        at::DIMS.write(&mut record, small(self.shape.len()));
        at::RANK.write(&mut record, rank.to_le_bytes());
        at::SOURCE_DTYPE.write(&mut record, self.source_dtype.code().to_le_bytes());
        at::DIM_0.write(&mut record, dim(0));
        at::DIM_1.write(&mut record, dim(1));
        at::DIM_2.write(&mut record, dim(2));
        at::DIM_3.write(&mut record, dim(3));
        at::PAYLOAD_OFFSET.write(&mut record, self.payload.start.to_le_bytes());
        at::PAYLOAD_BYTES.write(&mut record, payload_bytes.to_le_bytes());
        at::ERROR.write(&mut record, self.error.to_le_bytes());
        at::BLAKE3.write(&mut record, self.blake3);
        record
    }
}

/// The used dimensions of an entry; the others must be zero.
fn decode_shape(record: &[u8; at::BYTES], name: &str) -> Result<Vec<u64>, Error> {
    let place = || Place::Block(name.to_owned());
    let dims: [u64; DIMS_MAX] = [
        at::DIM_0.u64(record),
        at::DIM_1.u64(record),
        at::DIM_2.u64(record),
        at::DIM_3.u64(record),
    ];
    let count = at::DIMS.u32(record);
    let Some((used, unused)) = usize::try_from(count)
        .ok()
        .and_then(|count| dims.split_at_checked(count))
    else {
        return Err(Error::Limit {
            place: place(),
            field: "dims",
            found: count.into(),
            limit: length(DIMS_MAX),
        });
    };
    if unused.iter().any(|&dim| dim != 0) {
        return Err(Error::ReservedNotZero {
            place: place(),
            field: "unused dimensions",
        });
    }
    check_dims(used, place)?;
    Ok(used.to_vec())
}

/// A tensor has at least one dimension, and no dimension is empty.
pub(crate) fn check_dims(shape: &[u64], place: impl Fn() -> Place) -> Result<(), Error> {
    if shape.is_empty() {
        return Err(Error::Empty {
            place: place(),
            field: "dims",
        });
    }
    if shape.len() > DIMS_MAX {
        return Err(Error::Limit {
            place: place(),
            field: "dims",
            found: length(shape.len()),
            limit: length(DIMS_MAX),
        });
    }
    if shape.contains(&0) {
        return Err(Error::Empty {
            place: place(),
            field: "a dimension",
        });
    }
    Ok(())
}

/// The body of a spectral block: where its factors lie follows from shape, rank and dtype alone.
pub(crate) fn spectral(
    name: &str,
    dtype: Dtype,
    shape: &[u64],
    rank: u32,
) -> Result<BlockBody, Error> {
    let refuse = |reason| Error::Shape {
        place: Place::Block(name.to_owned()),
        shape: shape.to_vec(),
        dtype: dtype.name(),
        reason,
    };
    if !dtype.is_float() {
        return Err(refuse("spectral factors are f32, f16 or bf16"));
    }
    let &[rows, cols] = shape else {
        return Err(refuse("a spectral block has two dimensions"));
    };
    let kept = u64::from(rank);
    if kept == 0 || kept > rows.min(cols) {
        return Err(refuse("the rank is from 1 to the smaller dimension"));
    }
    let ranges = || {
        let u_end = dtype.tensor_bytes(&[rows, kept])?;
        let s_start = align_up(u_end, PAYLOAD_ALIGN)?;
        let s_end = s_start.checked_add(Dtype::F32.row_bytes(kept)?)?;
        let vt_start = align_up(s_end, PAYLOAD_ALIGN)?;
        let vt_end = vt_start.checked_add(dtype.tensor_bytes(&[kept, cols])?)?;
        Some((0..u_end, s_start..s_end, vt_start..vt_end))
    };
    let (u, s, vt) = ranges().ok_or_else(|| refuse("the factors' bytes overflow 64 bits"))?;
    Ok(BlockBody::Spectral {
        rank,
        dtype,
        u,
        s,
        vt,
    })
}
