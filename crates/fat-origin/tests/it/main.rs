//! Integration tests of `fat-origin`.
