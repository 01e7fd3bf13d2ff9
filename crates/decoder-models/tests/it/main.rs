//! Integration tests of `decoder-models`.
