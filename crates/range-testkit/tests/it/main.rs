//! Integration tests of `range-testkit`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    reason = "a test says what it needs, and fails where it does not get it"
)]

mod link;
mod proxy;
mod server;
