//! Ranges over HTTP/1.1 and HTTP/2, plain or TLS; the only place that knows hyper. Not here: HEAD
//! (the first data range is the probe), content codings, cookies, credentials, multi-range.
//! RFC 9110 section 14 (ranges), 8.8 (validators) and 15.4 (redirects) are the specification.
//!
//! | module | what |
//! |---|---|
//! | `backend` | [`HttpBackend`]: one URL as a [`RangeSource`](crate::RangeSource) |
//! | `transfer` | one read: attempts, resumption, exact length |
//! | `exchange` | one reply: redirects, the stale-socket repetition, first byte |
//! | `response` | is this reply the range that was asked? Pure |
//! | `content_range`, `retry_after` | header values as types |
//! | `origin` | the connections of one origin |
//! | `connection`, `dial` | one connection; how it is made |
//! | `client` | what several backends share: origins, trust anchors, settings |

mod backend;
mod client;
mod config;
mod connection;
mod content_range;
mod dial;
mod exchange;
mod origin;
mod response;
mod retry_after;
mod transfer;

pub use backend::HttpBackend;
pub use client::HttpClient;
pub use config::HttpConfig;
