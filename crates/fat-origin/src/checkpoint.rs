//! A checkpoint as the packer sees it: named tensors read by range, whatever file they lie in.
//! It knows no knot and converts nothing.

pub mod gguf;
