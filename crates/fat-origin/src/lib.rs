//! The publishing side: pack checkpoints into knots and row files, inspect, verify, serve.
//!
//! It reads checkpoints and writes knots; it never runs a model and holds no row cache. The knot's
//! bytes are specified in `docs/format/gkq-v2.md`, the row file's in `docs/format/row-store.md`.

pub mod checkpoint;
mod error;
pub mod serve;
pub mod tokenizer;

pub use error::Error;
