//! Integration tests of `fat-origin`: packing, what is refused, verification, the server on real
//! sockets, the command line.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "a test stops at the first surprise, and its cases stand one a line"
)]

mod command_line;
mod embed_sketch;
mod gguf_source;
mod hot_ids;
mod huggingface_source;
mod pack_gguf;
mod pack_huggingface;
mod pack_mix;
mod packed;
mod publish;
mod publishing;
mod refused;
mod refused_model;
mod serve;
mod serve_protocols;
mod verify;
