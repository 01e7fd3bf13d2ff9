//! Test servers for range transports. Knows HTTP/1.1 and TCP, nothing of this workspace.
//!
//! | module | what |
//! |---|---|
//! | [`server`] | [`FaultServer`]: a range server on raw TCP that misbehaves by script |
//! | [`fault`] | the script: which request meets which fault |
//! | [`several`] | how a request for several ranges is answered |
//! | [`object`] | what it serves: bytes, or a pattern of any length |
//! | [`log`] | what was asked, and how many body bytes were sent |
//! | [`link`] | [`Link`]: a TCP proxy with a round trip and a rate, for every latency figure |
//! | [`proxy`] | [`ProxyServer`]: an HTTP proxy, with CONNECT, credentials and refusals |
//! | [`mix`] | every fault with a weight, for long runs |
//!
//! Raw TCP and not an HTTP library, because a library refuses to lie about `Content-Length`.
//!
//! # Faults and their tests
//!
//! Each fault alone, in `crates/helix-transport/tests/it`; all of them together under `cargo xtask soak`.
//!
//! | fault | test |
//! |---|---|
//! | [`Fault::HangUp`], [`Fault::Reset`], [`Fault::Truncate`], [`Fault::Silence`], [`Fault::Stall`] | `retries::passing_failures_are_ridden_out`, `hostile::breaking_off_within_the_body_is_ridden_out_wherever_it_is` |
//! | [`Fault::TruncateHead`], [`Fault::ResetHead`] | `hostile::breaking_off_within_the_head_is_ridden_out_wherever_it_is` |
//! | [`Fault::CloseWhenIdle`] | `connections::a_socket_closed_while_idle_costs_one_repetition_and_no_error` |
//! | [`Fault::ResetWhenIdle`], [`Fault::RequestTimeout`], [`Fault::Delay`], [`Fault::Interim`], [`Fault::Http10`], [`Fault::Chunked`], [`Fault::Trailers`] | `hostile::what_the_specification_allows_is_read` |
//! | [`Fault::Drip`] | `hostile::a_stream_that_drips_for_ever_is_given_up`, `retries::a_batch_has_one_clock_for_all_its_attempts` |
//! | [`Fault::SlowHead`], a flood of [`Fault::Interim`] | `hostile::a_head_that_never_ends_is_ended_by_the_first_byte_limit` |
//! | [`Fault::Garbage`], [`Fault::Fields`] of 1 MB | `hostile::what_is_no_http_is_named_and_not_waited_for` |
//! | [`Fault::Fields`] with `Keep-Alive`, `Connection` | `hostile::an_idle_connection_is_kept_as_long_as_the_server_says` |
//! | [`Fault::Etag`] with control letters | `hostile::what_a_head_holds_reaches_no_request_and_no_line_of_its_own` |
//! | [`Fault::Etag`], [`Fault::ContentRange`], [`Fault::ContentLength`], [`Fault::ChunkedWithExtra`], [`Fault::Superset`], [`Fault::Encoding`], [`Fault::WholeObject`] | `replies`, `connections::the_whole_object_instead_of_a_range_is_aborted_unread` |
//! | [`Fault::Status`] | `retries::passing_failures_are_ridden_out`, `retries::retry_after_is_waited_for_within_the_read_and_not_beyond`, `signed_urls` |
//! | [`Fault::Redirect`] | `redirects`, `credentials`, `signed_urls` |
//! | [`Fault::Shift`] | `columnar-embed`: `origin::shifted_bytes_behind_perfect_headers_are_refused` |
//! | [`Fault::Several`], [`Fault::Instead`] | the tests of several ranges and of changed objects |
//! | GOAWAY, RST_STREAM, REFUSED_STREAM, one stream at a time, floods of PING | `http2_faults` |
//! | proxies that refuse or are down; dead addresses; trust anchors | `proxies`, `addresses`, `tls` |

pub mod fault;
pub mod link;
pub mod log;
pub mod mix;
pub mod object;
pub mod proxy;
pub mod server;
pub mod several;

pub use fault::{Fault, Script};
pub use link::{Link, LinkOptions};
pub use log::{LogEntry, RequestLog};
pub use object::Object;
pub use proxy::{ProxyOptions, ProxyServer};
pub use server::FaultServer;
pub use several::{PartDefect, Parts, Several};
