//! Kernels for vector registers: products written once over [`vector::Vector`], and what each
//! architecture has of it. Everything here is reached only after the CPU has been asked.
#![allow(
    unsafe_code,
    reason = "calls into code compiled for CPU features, and the products' loads and stores"
)]

mod attention;
mod float;
mod levels;
mod rounding;
mod scales;
mod tile;
mod vector;

pub(crate) use levels::VectorFormat;

use std::cell::Cell;
use tile::TileScratch;

thread_local! {
    static SCRATCH: Cell<TileScratch> = Cell::default();
}

/// Makes the entries of one instruction set: safe functions that hand over to code compiled with
/// its features, into which everything generic is inlined.
macro_rules! entries {
    ($vector:ty, $features:literal, $has:expr, $quantise:ident, $quantised_rows:ident, $float_rows:ident) => {
        /// Quantises activations.
        pub(crate) fn $quantise<F: VectorFormat>(
            values: &[f32],
            cols: usize,
            out: &mut QuantisedActivations,
        ) {
            #[target_feature(enable = $features)]
            fn compiled<F: VectorFormat>(
                values: &[f32],
                cols: usize,
                out: &mut QuantisedActivations,
            ) {
                let together = tile::together(values.len() / cols);
                out.fill::<F, OnVectors<$vector>>(values, cols, together);
            }
            assert!($has);
            // SAFETY: the CPU has just been asked.
            unsafe { compiled::<F>(values, cols, out) }
        }

        /// Products of block weights.
        pub(crate) fn $quantised_rows<F: VectorFormat>(
            bytes: &[u8],
            activations: &QuantisedActivations,
            outputs: &mut [&mut [f32]],
        ) {
            #[target_feature(enable = $features)]
            fn compiled<F: VectorFormat>(
                scratch: &mut TileScratch,
                bytes: &[u8],
                activations: &QuantisedActivations,
                outputs: &mut [&mut [f32]],
            ) {
                // SAFETY: this function is compiled with the features of the vector.
                unsafe { tile::rows::<F, $vector>(scratch, bytes, activations, outputs) }
            }
            assert!($has);
            let mut scratch = SCRATCH.take();
            // SAFETY: the CPU has just been asked.
            unsafe { compiled::<F>(&mut scratch, bytes, activations, outputs) }
            SCRATCH.set(scratch);
        }

        /// Products of floating-point weights.
        pub(crate) fn $float_rows(
            (weight_type, cols): (WeightType, usize),
            bytes: &[u8],
            values: &[f32],
            outputs: &mut [&mut [f32]],
        ) {
            #[target_feature(enable = $features)]
            fn compiled<F: float::FloatFormat>(
                cols: usize,
                bytes: &[u8],
                values: &[f32],
                outputs: &mut [&mut [f32]],
            ) {
                // SAFETY: this function is compiled with the features of the vector.
                unsafe { float::rows::<F, $vector>(cols, bytes, values, outputs) }
            }
            assert!($has && weight_type.is_float());
            // SAFETY: the CPU has just been asked.
            unsafe {
                match weight_type {
                    WeightType::F16 => compiled::<float::F16>(cols, bytes, values, outputs),
                    WeightType::Bf16 => compiled::<float::Bf16>(cols, bytes, values, outputs),
                    _ => compiled::<float::F32>(cols, bytes, values, outputs),
                }
            }
        }
    };
}

/// Makes the entries of attention, as [`entries`] does for products.
macro_rules! attention_entries {
    ($vector:ty, $features:literal, $has:expr, $attend:ident, $store_f16:ident) => {
        /// Attention.
        pub(crate) fn $attend<E: CacheValue>(
            head: &Head<'_, E>,
            tile: &Tile<'_>,
            scores: &mut Vec<f32>,
            out: &mut [f32],
        ) {
            #[target_feature(enable = $features)]
            fn compiled<E: CacheValue>(
                head: &Head<'_, E>,
                tile: &Tile<'_>,
                scores: &mut Vec<f32>,
                out: &mut [f32],
            ) {
                // SAFETY: this function is compiled with the features of the vector.
                unsafe { attend_in::<OnVectors<$vector>, E>(head, tile, scores, out) }
            }
            assert!($has);
            // SAFETY: the CPU has just been asked.
            unsafe { compiled::<E>(head, tile, scores, out) }
        }

        /// Rounds to f16.
        pub(crate) fn $store_f16(values: &[f32], stored: &mut [u16]) {
            #[target_feature(enable = $features)]
            fn compiled(values: &[f32], stored: &mut [u16]) {
                // SAFETY: this function is compiled with the features of the vector.
                unsafe { attention::store_f16::<$vector>(values, stored) }
            }
            assert!($has);
            // SAFETY: the CPU has just been asked.
            unsafe { compiled(values, stored) }
        }
    };
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
