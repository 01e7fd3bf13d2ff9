//! Ranges over HTTP/1.1 and HTTP/2, plain or TLS; the only place that knows hyper. Not here: HEAD
//! (the first data range is the probe), content codings, cookies.
//! RFC 9110 section 14 (ranges), 8.8 (validators) and 15.4 (redirects) are the specification.
//!
//! | module | what |
//! |---|---|
//! | `backend` | [`HttpBackend`]: one URL as a [`RangeSource`](crate::RangeSource) |
//! | `transfer`, `pace` | one read: attempts, resumption, exact length, the least speed |
//! | `many` | a batch of ranges: which go out together, which alone |
//! | `group` | several ranges by one request |
//! | `multipart` | a reader of `multipart/byteranges`. Pure |
//! | `capability` | what an origin has shown it can do, remembered for a day |
//! | `exchange` | one reply: redirects, the stale-socket repetition, first byte |
//! | `route`, `redirect` | where the object is asked for at present; what a redirect may lead to |
//! | `body` | a reply's body with its connection |
//! | `response` | is this reply the range that was asked? Pure |
//! | `content_range`, `retry_after` | header values as types |
//! | `origin` | the connections of one origin |
//! | `connection`, `keep_alive` | one connection; how long it may lie idle |
//! | `dial`, `tunnel`, `names`, `roots` | how it is made |
//! | `proxy`, `credentials` | through whom; as whom |
//! | `client` | what several backends share: origins, trust anchors, settings |

mod backend;
mod body;
mod capability;
mod client;
mod config;
mod connection;
mod content_range;
mod credentials;
mod dial;
mod exchange;
mod group;
mod head_bytes;
mod keep_alive;
mod many;
mod multipart;
mod names;
mod origin;
mod pace;
mod proxy;
mod redirect;
mod response;
mod retry_after;
mod roots;
mod route;
mod transfer;
mod tunnel;

/// What requests and tunnels say of themselves.
const AGENT: &str = concat!("helix-transport/", env!("CARGO_PKG_VERSION"));

pub use backend::HttpBackend;
pub use client::HttpClient;
pub use config::HttpConfig;
pub use credentials::Credentials;
pub use proxy::ProxySettings;
