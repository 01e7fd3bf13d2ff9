//! Integration tests of `decoder-models`: the public API on the reference models of
//! fixtures/decoder-models, against transformers and against itself.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests may end by panicking, and their numbers are small"
)]

mod cached;
mod fixture;
mod low_rank;
mod names;
mod reference;
mod refused;
mod stored_form;
