//! Integration tests of `gkq-v2`: goldens, the old reader, hostile input, the writer.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops at the first surprise"
)]

mod fields;
mod format_page;
mod golden;
mod hexdump;
mod hostile;
mod old_reader;
mod rejects;
mod round_trip;
mod row_sidecar;
mod row_store;
mod writer;
