//! Integration tests of `compact-tokenizer`.
