//! x86-64 kernels: the plain text compiled again for wider registers, and hand-written products.
//! Everything here is reached only after the CPU has been asked.
#![allow(
    unsafe_code,
    reason = "calls into code compiled for CPU features, and the products' loads and stores"
)]

mod attention;
mod avx2;
mod avx512;
mod float;
mod levels;
mod rounding;
mod scales;
mod tile;
mod vector;

pub(crate) use levels::VectorFormat;

use crate::WeightType;
use crate::activation::QuantisedActivations;
use crate::attention::CacheValue;
use crate::attention::tile::{Head, Tile, attend_in};
use crate::gated::{GateFunction, gate_in};
use std::cell::Cell;
use tile::TileScratch;
use vector::OnVectors;

thread_local! {
    static SCRATCH: Cell<TileScratch> = Cell::default();
}

/// AVX2, FMA and F16C.
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// [`has_avx2`] and the 8-bit dot products of AVX-VNNI.
pub(crate) fn has_avx_vnni() -> bool {
    has_avx2() && is_x86_feature_detected!("avxvnni")
}

/// [`has_avx2`] and the parts of AVX-512 that the kernels use.
pub(crate) fn has_avx512_vnni() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

/// Attention with AVX2 and FMA.
pub(crate) fn attend_avx2<E: CacheValue>(
    head: &Head<'_, E>,
    tile: &Tile<'_>,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn compiled<E: CacheValue>(
        head: &Head<'_, E>,
        tile: &Tile<'_>,
        scores: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        // SAFETY: this function is compiled with the features of the vector.
        unsafe { attend_in::<OnVectors<avx2::Avx2>, E>(head, tile, scores, out) }
    }
    assert!(has_avx2());
    // SAFETY: the CPU has just been asked.
    unsafe { compiled::<E>(head, tile, scores, out) }
}

/// Attention with AVX-512.
pub(crate) fn attend_avx512<E: CacheValue>(
    head: &Head<'_, E>,
    tile: &Tile<'_>,
    scores: &mut Vec<f32>,
    out: &mut [f32],
) {
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn compiled<E: CacheValue>(
        head: &Head<'_, E>,
        tile: &Tile<'_>,
        scores: &mut Vec<f32>,
        out: &mut [f32],
    ) {
        // SAFETY: this function is compiled with the features of the vector.
        unsafe { attend_in::<OnVectors<avx512::Avx512>, E>(head, tile, scores, out) }
    }
    assert!(has_avx512_vnni());
    // SAFETY: the CPU has just been asked.
    unsafe { compiled::<E>(head, tile, scores, out) }
}

/// Rounds to f16 with F16C.
pub(crate) fn store_f16_avx2(values: &[f32], stored: &mut [u16]) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn compiled(values: &[f32], stored: &mut [u16]) {
        // SAFETY: this function is compiled with the features of the vector.
        unsafe { attention::store_f16::<avx2::Avx2>(values, stored) }
    }
    assert!(has_avx2());
    // SAFETY: the CPU has just been asked.
    unsafe { compiled(values, stored) }
}

/// Rounds to f16 with AVX-512.
pub(crate) fn store_f16_avx512(values: &[f32], stored: &mut [u16]) {
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn compiled(values: &[f32], stored: &mut [u16]) {
        // SAFETY: this function is compiled with the features of the vector.
        unsafe { attention::store_f16::<avx512::Avx512>(values, stored) }
    }
    assert!(has_avx512_vnni());
    // SAFETY: the CPU has just been asked.
    unsafe { compiled(values, stored) }
}

/// [`gate_in`] with AVX2.
pub(crate) fn gate_avx2(function: GateFunction, gate: &[f32], up: &mut [f32]) {
    #[target_feature(enable = "avx2")]
    fn compiled(function: GateFunction, gate: &[f32], up: &mut [f32]) {
        gate_in(function, gate, up);
    }
    assert!(has_avx2());
    // SAFETY: the CPU has just been asked.
    unsafe { compiled(function, gate, up) }
}

/// [`gate_in`] with AVX-512.
pub(crate) fn gate_avx512(function: GateFunction, gate: &[f32], up: &mut [f32]) {
    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
    fn compiled(function: GateFunction, gate: &[f32], up: &mut [f32]) {
        gate_in(function, gate, up);
    }
    assert!(has_avx512_vnni());
    // SAFETY: the CPU has just been asked.
    unsafe { compiled(function, gate, up) }
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

entries!(
    avx2::Avx2,
    "avx2,fma,f16c",
    has_avx2(),
    quantise_avx2,
    quantised_rows_avx2,
    float_rows_avx2
);
entries!(
    avx2::AvxVnni,
    "avx2,fma,f16c,avxvnni",
    has_avx_vnni(),
    quantise_avx_vnni,
    quantised_rows_avx_vnni,
    float_rows_avx_vnni
);
entries!(
    avx512::Avx512,
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    has_avx512_vnni(),
    quantise_avx512,
    quantised_rows_avx512,
    float_rows_avx512
);
