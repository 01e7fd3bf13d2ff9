//! The station as its users meet it: a process, an origin that logs what it was asked, and a model
//! small enough to be made on the spot.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stderr,
    clippy::too_many_lines,
    reason = "a test that cannot go on ends, one that cannot run says so, and cases stand one a line"
)]

mod acceptance;
mod cache;
mod command_line;
mod degraded;
mod disk_room;
mod disk_tier;
mod failures;
mod generation;
mod hub;
mod mixed_rows;
mod origins;
mod row_sources;
mod server;
mod signals;
mod station;
mod streaming;
mod tiny_model;
mod warm;
