//! From an instruction set to its code. The only place that lists both.

use crate::activation::{PlainRounding, QuantisedActivations, Together};
use crate::{InstructionSet, WeightType, portable};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use crate::block::BlockFormat as ProductFormat;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use crate::simd::VectorFormat as ProductFormat;

/// Quantises `values[tokens, cols]` for weights of format `F`.
pub(crate) fn quantise<F: ProductFormat>(
    set: InstructionSet,
    values: &[f32],
    cols: usize,
    out: &mut QuantisedActivations,
) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => simd::quantise_avx2::<F>(values, cols, out),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::AvxVnni => simd::quantise_avx_vnni::<F>(values, cols, out),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => simd::quantise_avx512::<F>(values, cols, out),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => simd::quantise_neon::<F>(values, cols, out),
        _ => out.fill::<F, PlainRounding>(values, cols, Together::Never),
    }
}

/// `outputs[t][r]` = row `r` of `bytes` times activation row `t`.
pub(crate) fn quantised_rows<F: ProductFormat>(
    set: InstructionSet,
    bytes: &[u8],
    activations: &QuantisedActivations,
    outputs: &mut [&mut [f32]],
) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => simd::quantised_rows_avx2::<F>(bytes, activations, outputs),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::AvxVnni => simd::quantised_rows_avx_vnni::<F>(bytes, activations, outputs),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => simd::quantised_rows_avx512::<F>(bytes, activations, outputs),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => simd::quantised_rows_neon::<F>(bytes, activations, outputs),
        _ => portable::quantised_rows::<F>(bytes, activations, outputs),
    }
}

/// `outputs[t][r]` = row `r` of `bytes` times `values[t, cols]`.
pub(crate) fn float_rows(
    set: InstructionSet,
    row: (WeightType, usize),
    bytes: &[u8],
    values: &[f32],
    outputs: &mut [&mut [f32]],
) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => simd::float_rows_avx2(row, bytes, values, outputs),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::AvxVnni => simd::float_rows_avx_vnni(row, bytes, values, outputs),
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => simd::float_rows_avx512(row, bytes, values, outputs),
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => simd::float_rows_neon(row, bytes, values, outputs),
        _ => portable::float_rows(row, bytes, values, outputs),
    }
}
