//! The publishing side: pack checkpoints into knots and row files, inspect, verify, serve.
//!
//! It reads checkpoints and writes knots; it never runs a model and holds no row cache. The knot's
//! bytes are specified in `docs/format/gkq-v2.md`, the row file's in `docs/format/row-store.md`.
//!
//! | module | what it is |
//! |---|---|
//! | [`pack`] | a Hugging Face directory or a GGUF to `NAME.gkq` and `NAME.rows` |
//! | [`inspect`] | what a knot holds, from its front alone |
//! | [`verify`] | every digest, the row file, the row tree |
//! | [`tokenize`] | the ids of a text, for comparison |
//! | [`publish`] | a packed model to a directory or a bucket, its manifest last |
//! | [`serve`] | a static range server: HTTP/1.1, HTTP/2, TLS |
//! | [`checkpoint`], [`tokenizer`] | the formats that are read |
//!
//! ```no_run
//! # async fn example() -> Result<(), fat_origin::Error> {
//! use fat_origin::pack::{PackOptions, pack};
//! use fat_origin::serve::{ServeOptions, Server};
//!
//! let options = PackOptions { out: "site".into(), ..PackOptions::default() };
//! let report = pack("SmolLM2-135M-Instruct.gguf".as_ref(), &options)?;
//! assert_eq!(report.rows_bytes, report.row_count * u64::from(report.row_bytes));
//!
//! let server = Server::start(ServeOptions::new("site")).await?; // loopback, a free port
//! println!("{}/{}", server.base_url(), report.rows.display());
//! server.shutdown().await;
//! # Ok(()) }
//! ```

pub mod checkpoint;
pub mod cli;
pub mod command;
mod error;
mod factor;
pub mod inspect;
mod knot_file;
pub mod pack;
mod progress;
pub mod publish;
pub mod serve;
pub mod tokenize;
pub mod tokenizer;
pub mod verify;

pub use error::Error;
