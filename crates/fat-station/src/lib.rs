//! The inference node: starts a language model on a few hundred embedding rows.
//!
//! Data flows one way:
//! ```text
//! cli ─► config ─► knot (front, payloads) ─► model ─► engine ─► command, api ─► text
//!                  resolver ─► embedding ────┘                   summary ◄─ traffic (meters)
//! ```
//! The library exists for the binary and its tests. What leaves this crate's hands is text on
//! stdout and JSON over HTTP; every byte that enters it is counted in [`traffic`].

pub mod api;
pub mod calendar;
pub mod chat;
pub mod cli;
pub mod command;
pub mod config;
pub mod embedding;
pub mod engine;
pub mod error;
pub mod head;
pub mod hot_ids;
pub mod hub;
pub mod interrupt;
pub mod knot;
pub mod language;
pub mod locator;
pub mod manifest;
pub mod matrix;
pub mod mmap;
pub mod model;
pub mod origin;
pub mod places;
mod progress;
pub mod resolver;
pub mod row_table;
pub mod stand_in;
pub mod summary;
pub mod telemetry;
pub mod traffic;
pub mod warm;

/// The page on taking the crates into another station, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adopting.md")]
struct Adopting;
