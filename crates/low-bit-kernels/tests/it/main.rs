//! Integration tests of `low-bit-kernels`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "test data is made from small numbers, and a failed expectation names its case"
)]

mod contract;
mod refusals;
mod rows;
mod stored;
