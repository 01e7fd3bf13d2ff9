//! Byte ranges over HTTP, files and memory: planned, pinned to one object version, metered.
//!
//! This crate knows no file format. It moves bytes of *one object* and proves three things about
//! them: they are the range that was asked, whole; they belong to the version of the object that
//! the first reply belonged to; and what crossed the wire was counted. Whether the bytes are the
//! *right* bytes is for the caller's digests: a reply with perfect headers can carry shifted data.
//!
//! | module | what |
//! |---|---|
//! | [`source`] | [`RangeSource`], the object-safe seam every caller works against |
//! | [`memory`], [`mod@file`], `http` | one implementation each; hyper lives behind feature `http` |
//! | [`plan`] | which spans to ask for a set of wanted ranges; pure |
//! | [`validator`] | the pinned version of an object |
//! | [`retry`] | the only place that decides to try again |
//! | [`meter`] | counters, kept first; logs and spans are derived from them |
//!
//! ```
//! use std::sync::Arc;
//! use helix_transport::{ByteRange, MemorySource, Meter, Patience, RangeSource, ReadOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), helix_transport::Error> {
//! let source = MemorySource::new("greeting", "hello, world");
//! let options = ReadOptions::new(Arc::new(Meter::default()), Patience::Batch);
//! let bytes = source.read(ByteRange::new(7, 12)?, &options).await?;
//! assert_eq!(&bytes[..], b"world");
//! assert_eq!(options.meter.snapshot().received_bytes, 5);
//! # Ok(())
//! # }
//! ```

pub mod error;
pub mod file;
#[cfg(feature = "http")]
pub mod http;
pub mod memory;
pub mod meter;
pub mod plan;
pub mod range;
#[cfg(feature = "http")]
mod redact;
#[cfg(feature = "http")]
pub mod retry;
pub mod source;
pub mod validator;

pub use error::{Error, ErrorKind};
pub use file::FileSource;
#[cfg(feature = "http")]
pub use http::{Credentials, HttpBackend, HttpClient, HttpConfig, ProxySettings};
pub use memory::MemorySource;
pub use meter::{Meter, MeterSnapshot};
pub use range::ByteRange;
pub use source::{Connection, ManyRead, Patience, RangeSource, ReadOptions, read_whole};
pub use validator::{ObjectVersion, StrongEtag, WeakEtag};
