//! Integration tests of `columnar-embed`.
