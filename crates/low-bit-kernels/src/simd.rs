//! x86-64 kernels: the plain text compiled again for wider registers, and hand-written products.
//! Everything here is reached only after the CPU has been asked.
#![allow(
    unsafe_code,
    reason = "calls into code compiled for CPU features, and the products' loads and stores"
)]

use crate::attention::row::{Operands, attend_row_in};

/// AVX2, FMA and F16C.
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
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

/// [`attend_row_in`] with AVX2 and FMA.
pub(crate) fn attend_row_avx2(operands: &Operands<'_>, scores: &mut [f32], out: &mut [f32]) {
    #[target_feature(enable = "avx2,fma")]
    fn compiled(operands: &Operands<'_>, scores: &mut [f32], out: &mut [f32]) {
        attend_row_in::<true>(operands, scores, out);
    }
    debug_assert!(has_avx2());
    // SAFETY: an `InstructionSet` that needs AVX2 is only ever made after `has_avx2`.
    unsafe { compiled(operands, scores, out) }
}

/// [`attend_row_in`] with AVX-512.
pub(crate) fn attend_row_avx512(operands: &Operands<'_>, scores: &mut [f32], out: &mut [f32]) {
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    fn compiled(operands: &Operands<'_>, scores: &mut [f32], out: &mut [f32]) {
        attend_row_in::<true>(operands, scores, out);
    }
    debug_assert!(has_avx512_vnni());
    // SAFETY: `InstructionSet::Avx512Vnni` is only ever made after `has_avx512_vnni`.
    unsafe { compiled(operands, scores, out) }
}
