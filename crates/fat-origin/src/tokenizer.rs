//! Tokenizers of checkpoints, brought into their compact form.
