//! Integration tests of `helix-transport`: real sockets, scripted servers, the requests counted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test says what it needs, and fails where it does not get it"
)]

mod connections;
mod http2;
mod latency;
mod origin;
mod redirects;
mod replies;
mod retries;
mod setup;
mod sources;
mod streams;
mod tls;
