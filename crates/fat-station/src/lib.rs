//! The inference node: starts a language model on a few hundred embedding rows.
//!
//! Data flows one way:
//! ```text
//! cli ─► config ─► places ─► knot (front, payloads) ─► layers, head ─► model ─► engine ─► command, api ─► text
//!           hub, manifest ┘    │                                       ▲  ▲       summary ◄─ traffic, milestones
//!                              ▼                                       │  └ warm ◄─ hot_ids
//!                 matrix ─► row_table, resolver ─► embedding ──────────┘
//!                                     stand_in ────┘
//! ```
//! [`places`] finds the objects: a hub's commit ([`hub`]), what a [`manifest`] names, or the knot beside
//! the rows. [`matrix`] is the vocabulary matrix: [`row_table`] finds its rows in whatever object was
//! named, [`resolver`] decides which way they go, [`embedding`] hands them out, [`stand_in`]
//! approximates those whose origin is away, and [`warm`] fetches the frequent ones ahead. [`layers`] and
//! [`head`] are used while they arrive.
//!
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
pub mod layers;
pub mod locator;
pub mod manifest;
pub mod matrix;
pub mod milestones;
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
mod user_file;
pub mod warm;
mod weights;

/// The page on taking the crates into another station, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adopting.md")]
struct Adopting;
