//! Integration tests of `helix-transport`.
