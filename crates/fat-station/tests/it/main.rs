//! Integration tests of `fat-station`.
