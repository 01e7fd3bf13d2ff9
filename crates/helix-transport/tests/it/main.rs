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

mod addresses;
mod connections;
mod credentials;
mod hostile;
mod http2;
mod http2_faults;
mod latency;
mod logs;
mod origin;
mod proxies;
mod redirects;
mod replies;
mod retries;
mod setup;
mod several;
mod signed_urls;
mod sources;
mod streams;
mod tls;
