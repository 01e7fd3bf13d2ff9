//! The knot container (GKQ version 2): bytes in, views and byte ranges out.
//!
//! A knot is one file that holds a whole model: its tensors as *blocks*, everything else as
//! *sections*. Its *front* (header, tables, names, small sections) is a few hundred kilobytes; one or
//! two range requests of it open a remote knot. Everything else is a *payload*: a byte range with a
//! digest, which the caller maps or fetches.
//!
//! Deliberately absent: I/O, async, arithmetic on tensor values, the hashing of rows. No input makes
//! this crate panic or allocate more than a small multiple of the input's size.
//!
//! The specification is `docs/format/gkq-v2.md`; [`Knot`] reads, [`KnotDraft`] writes.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "bytes from strangers are parsed here: every step is checked"
)]

mod block;
mod columnar;
mod dtype;
mod embed_sketch;
mod error;
mod flags;
mod header;
mod knot;
mod layout;
pub mod limits;
mod num;
mod section;
mod table;
mod tiling;
mod writer;

pub use block::{Block, BlockBody};
pub use columnar::{Columnar, RowTreeShape};
pub use dtype::Dtype;
pub use embed_sketch::{EmbedSketch, SketchError, SketchHeader, push_sketch_row};
pub use error::{Error, ErrorKind, Place};
pub use header::HEADER_BYTES;
pub use knot::Knot;
pub use section::{Section, SectionKind};
pub use writer::{
    BlockId, BlockSpec, ColumnarSpec, KnotDraft, KnotPlan, Payload, PlannedPayload, SectionId,
};
