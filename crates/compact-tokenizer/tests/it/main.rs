//! Integration tests of `compact-tokenizer`: the file format against hostile bytes, and encoding and
//! decoding through the public interface.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod coding;
mod hostile;
mod samples;
