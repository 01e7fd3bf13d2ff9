//! Tests of config.
