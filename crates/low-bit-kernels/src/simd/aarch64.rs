//! What AArch64 has: Advanced SIMD with dot products. Gates are plain text there, as every CPU of the
//! architecture has the registers that they are compiled for.

use super::neon::Neon;
use super::tile::TileScratch;
use super::vector::OnVectors;
use super::{SCRATCH, VectorFormat, attention, float, tile};
use crate::WeightType;
use crate::activation::QuantisedActivations;
use crate::attention::CacheValue;
use crate::attention::tile::{Head, Tile, attend_in};
use std::arch::is_aarch64_feature_detected;

/// Advanced SIMD and the dot products of Armv8.2.
pub(crate) fn has_neon() -> bool {
    is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod")
}

entries!(
    Neon,
    "neon,dotprod",
    has_neon(),
    quantise_neon,
    quantised_rows_neon,
    float_rows_neon
);
attention_entries!(
    Neon,
    "neon,dotprod",
    has_neon(),
    attend_neon,
    store_f16_neon
);
