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
//!
//! Raw TCP and not an HTTP library, because a library refuses to lie about `Content-Length`.

pub mod fault;
pub mod link;
pub mod log;
pub mod object;
pub mod server;
pub mod several;

pub use fault::{Fault, Script};
pub use link::{Link, LinkOptions};
pub use log::{LogEntry, RequestLog};
pub use object::Object;
pub use server::FaultServer;
pub use several::{PartDefect, Parts, Several};
