//! The inference node: starts a language model on a few hundred embedding rows.
