//! What x86-64 has: AVX2, AVX-VNNI and AVX-512, and plain text compiled again for their registers.

use super::avx2::{Avx2, AvxVnni};
use super::avx512::Avx512;
use super::tile::TileScratch;
use super::vector::OnVectors;
use super::{SCRATCH, VectorFormat, attention, float, tile};
use crate::WeightType;
use crate::activation::QuantisedActivations;
use crate::attention::CacheValue;
use crate::attention::tile::{Head, Tile, attend_in};
use crate::gated::{GateFunction, gate_in};

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

entries!(
    Avx2,
    "avx2,fma,f16c",
    has_avx2(),
    quantise_avx2,
    quantised_rows_avx2,
    float_rows_avx2
);
entries!(
    AvxVnni,
    "avx2,fma,f16c,avxvnni",
    has_avx_vnni(),
    quantise_avx_vnni,
    quantised_rows_avx_vnni,
    float_rows_avx_vnni
);
entries!(
    Avx512,
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    has_avx512_vnni(),
    quantise_avx512,
    quantised_rows_avx512,
    float_rows_avx512
);
attention_entries!(
    Avx2,
    "avx2,fma,f16c",
    has_avx2(),
    attend_avx2,
    store_f16_avx2
);
attention_entries!(
    Avx512,
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    has_avx512_vnni(),
    attend_avx512,
    store_f16_avx512
);
