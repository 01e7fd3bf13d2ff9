//! Integration tests of `range-testkit`.
