//! Products of low-bit weight matrices with f32 activations, and attention over a key/value cache.
//!
//! Weights stay in the bytes they arrived in (GGML blocks, f16, bf16 or f32, little endian, no
//! alignment assumed). For block types the activations are quantised to 8 bits as the reference
//! implementation does it, so that the inner product is an integer one.
//!
//! # Arithmetic contract
//! The value of a product depends only on its weight row and its activation row: not on how many
//! activation rows come along, on how the rows are cut over threads, or on whether the row stands
//! alone. [`attention::attend`] makes the same promise for one (query, head). Both hold bit for bit
//! within one [`InstructionSet`]; different instruction sets may round differently.
//!
//! What this crate deliberately does not do: it knows no tensors, no models and no files, and it
//! owns no thread pool. Work is spread over the rayon pool of the caller, whose threads park when
//! idle. Prefer to call from *inside* that pool (`ThreadPool::install`, `rayon::scope`): the calling
//! thread then takes part, where a call from outside waits asleep for the pool.
//!
//! ```
//! use low_bit_kernels::{WeightMatrix, WeightType, quantise_rows};
//! let weights: Vec<f32> = (0..4 * 64).map(|i| (i as f32 * 0.37).sin()).collect();
//! let bytes = quantise_rows(WeightType::Q8_0, &weights, 64)?;
//! let matrix = WeightMatrix::new(WeightType::Q8_0, 4, 64, bytes.into())?;
//! let mut output = [0.0; 4];
//! matrix.matmul(&[1.0; 64], 1, &mut output)?;
//! assert!((output[0] - weights[..64].iter().sum::<f32>()).abs() < 0.1);
//! # Ok::<(), low_bit_kernels::Error>(())
//! ```

mod activation;
pub mod attention;
mod block;
mod dequantise;
mod error;
mod exponential;
mod gated;
mod greatest;
mod half_bits;
mod instruction_set;
mod matrix;
pub mod naive;
mod portable;
mod product;
mod quantise;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd;
mod together;
mod weight_type;

pub use dequantise::dequantise_row;
pub use error::Error;
pub use gated::{GateFunction, apply_gate};
pub use greatest::{Greatest, greatest};
pub use instruction_set::InstructionSet;
pub use matrix::WeightMatrix;
pub use quantise::quantise_rows;
pub use together::{Product, matmul_together};
pub use weight_type::WeightType;
