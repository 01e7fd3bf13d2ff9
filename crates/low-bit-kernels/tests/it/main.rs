//! Integration tests of `low-bit-kernels`.
