//! Integration tests of `gkq-v2`.
