//! The store as its users see it: against a model, against sources that fail on purpose, and
//! against an HTTP origin that keeps a log.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::clone_on_ref_ptr,
    clippy::panic,
    clippy::too_many_lines,
    reason = "a test may stop at a fault, its tables fit in memory, and its cases stand one a line"
)]

mod disk;
mod flight;
mod integrity;
mod locate;
mod mixed;
mod model;
mod origin;
mod source;
mod span;
mod table;
mod versions;
