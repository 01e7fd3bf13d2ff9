//! Products of a tile of weight rows with activation rows.
//!
//! Two ways to the same value. With one or two activation rows, levels are unpacked in registers
//! and multiplied at once; with more, a tile is first unpacked into scratch with its rows
//! interleaved, and each activation row then costs only dot products. In both, a group's integer
//! product is exact and a row adds its groups up in order with the same two fused operations, so
//! the bits agree.
#![allow(
    unsafe_code,
    reason = "loads of many rows through one pointer and a stride"
)]

use super::levels::VectorFormat;
use super::vector::Vector;
use crate::activation::{QuantisedActivations, RUNS, Together, run_at};

/// Activation rows up to which unpacking in registers wins.
const FEW: usize = 2;

/// Whether as many activation rows share passes over interleaved tiles. The widest run's sums and
/// integer products take 16 of 32 registers.
pub(crate) const fn together(tokens: usize) -> Together {
    if tokens <= FEW {
        Together::Never
    } else {
        Together::InRuns
    }
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub(crate) struct TileScratch {
    /// `[cols / 4, ROWS, 4]`
    levels: Vec<u8>,
    /// `[groups, ROWS]`
    scales: Vec<f32>,
    /// `[groups, ROWS]`
    minima: Vec<f32>,
    /// The last rows, filled up to a whole tile with zeros.
    padded: Vec<u8>,
}

/// `outputs[t][r]` = row `r` of `bytes` times activation row `t`.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
pub(crate) unsafe fn rows<F: VectorFormat, V: Vector>(
    scratch: &mut TileScratch,
    bytes: &[u8],
    activations: &QuantisedActivations,
    outputs: &mut [&mut [f32]],
) {
    let row_bytes = activations.cols / F::VALUES * F::BYTES;
    let mut padded = std::mem::take(&mut scratch.padded);
    let TileScratch {
        levels,
        scales,
        minima,
        ..
    } = scratch;
    levels.resize(activations.cols * V::ROWS, 0);
    scales.resize(activations.groups * V::ROWS, 0.0);
    minima.resize(activations.groups * V::ROWS, 0.0);
    for (index, rows) in bytes.chunks(row_bytes * V::ROWS).enumerate() {
        let whole = if rows.len() == row_bytes * V::ROWS {
            rows
        } else {
            padded.clear();
            padded.extend_from_slice(rows);
            padded.resize(row_bytes * V::ROWS, 0);
            &padded
        };
        let tile = Tile {
            rows: whole,
            row_bytes,
            activations,
            first_row: index * V::ROWS,
        };
        // What every pointer below relies on.
        assert!(
            whole.len() == row_bytes * V::ROWS
                && row_bytes == activations.groups * F::GROUP / F::VALUES * F::BYTES
                && scales.len() == activations.groups * V::ROWS
                && minima.len() == scales.len()
        );
        // SAFETY: the CPU has `V`; the lengths have just been checked.
        unsafe { unpack_scales::<F, V>(&tile, scales, minima) };
        let scales = Scales { scales, minima };
        // SAFETY: the CPU has `V`; the tile is whole, and the scratch was sized for it above.
        unsafe {
            if outputs.len() <= FEW {
                few::<F, V>(&tile, &scales, outputs);
            } else {
                interleave::<F, V>(&tile, levels);
                many::<F, V>(&tile, levels, &scales, outputs);
            }
        }
    }
    scratch.padded = padded;
}

/// `ROWS` whole rows and what they are multiplied with.
struct Tile<'a> {
    /// `[ROWS, row_bytes]`
    rows: &'a [u8],
    row_bytes: usize,
    activations: &'a QuantisedActivations,
    /// Where the tile's products go in the outputs.
    first_row: usize,
}

/// `[groups, ROWS]` each.
struct Scales<'a> {
    scales: &'a [f32],
    minima: &'a [f32],
}

/// Scales and minima of a tile.
///
/// # Safety
/// The CPU has `V`; the tile has `ROWS` whole rows and the slices room for `[groups, ROWS]`.
#[inline(always)]
unsafe fn unpack_scales<F: VectorFormat, V: Vector>(
    tile: &Tile<'_>,
    scales: &mut [f32],
    minima: &mut [f32],
) {
    let per_block = F::VALUES / F::GROUP * V::ROWS;
    for block in 0..tile.row_bytes / F::BYTES {
        // SAFETY: the caller's duty.
        unsafe {
            let scales = scales.as_mut_ptr().add(block * per_block);
            let minima = minima.as_mut_ptr().add(block * per_block);
            F::unpack::<V>(
                tile.rows.as_ptr().add(block * F::BYTES),
                tile.row_bytes,
                scales,
                minima,
            );
        }
    }
}

/// Whether levels are loaded as signed bytes with the zero point already off.
#[inline(always)]
const fn is_signed<F: VectorFormat, V: Vector>() -> bool {
    F::ZERO_POINT == 128 && !V::FULL_RANGE
}

/// One step of an integer product.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn dot<F: VectorFormat, V: Vector>(
    sum: V::Int,
    levels: V::Int,
    activations: V::Int,
) -> V::Int {
    // SAFETY: the caller's duty.
    unsafe {
        if is_signed::<F, V>() {
            V::dot_signed(sum, levels, activations)
        } else {
            V::dot(sum, levels, activations)
        }
    }
}

/// What an integer product starts from: the zero point's share.
#[inline(always)]
fn offset<F: VectorFormat, V: Vector>(offsets: &[i32], group: usize) -> i32 {
    if F::ZERO_POINT == 0 || is_signed::<F, V>() {
        0
    } else {
        offsets[group]
    }
}

/// Adds one group's product to the sums of a tile's rows.
///
/// # Safety
/// The CPU has `V`; `scales` has `group`.
#[inline(always)]
unsafe fn add_group<F: VectorFormat, V: Vector>(
    sums: V::Float,
    product: V::Int,
    (scales, group): (&Scales<'_>, usize),
    (scale, scaled_sum): (f32, f32),
) -> V::Float {
    // SAFETY: the caller's duty; scales and minima are equally long.
    unsafe {
        let weight_scales = V::load(scales.scales.as_ptr().add(group * V::ROWS));
        let factors = V::multiply(weight_scales, V::splat(scale));
        let sums = V::multiply_add(factors, V::convert(product), sums);
        if !F::HAS_MINIMA {
            return sums;
        }
        V::multiply_add(
            V::load(scales.minima.as_ptr().add(group * V::ROWS)),
            V::splat(scaled_sum),
            sums,
        )
    }
}

/// Writes the sums of the rows that the output has.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn put<V: Vector>(sums: V::Float, output: &mut [f32], first_row: usize) {
    let output = &mut output[first_row..];
    if output.len() >= V::ROWS {
        // SAFETY: there is room for `ROWS` floats.
        unsafe { V::store(sums, output.as_mut_ptr()) };
    } else {
        let mut all = [0.0_f32; 16];
        // SAFETY: no tile has more than 16 rows.
        unsafe { V::store(sums, all.as_mut_ptr()) };
        output.copy_from_slice(&all[..output.len()]);
    }
}

/// One activation row at a time, levels unpacked in registers.
///
/// # Safety
/// The CPU has `V`; the tile has `ROWS` whole rows.
#[inline(always)]
unsafe fn few<F: VectorFormat, V: Vector>(
    tile: &Tile<'_>,
    scales: &Scales<'_>,
    outputs: &mut [&mut [f32]],
) {
    let stride = tile.row_bytes;
    for (t, output) in outputs.iter_mut().enumerate() {
        let x = tile.activations.row(t);
        let row = tile.rows.as_ptr();
        // SAFETY: the caller's duty; activation rows have `groups * GROUP` levels.
        unsafe {
            let mut sums = V::zero();
            for group in 0..tile.activations.groups {
                let levels = x.levels.as_ptr().add(group * F::GROUP);
                prefetch_next::<V>(tile, group);
                let x_low = V::splat_16(levels);
                let x_high = if F::GROUP == 32 {
                    V::splat_16(levels.add(16))
                } else {
                    x_low
                };
                let z = [
                    lanes::<F, V>(row, 4 * stride, group, (x_low, x_high)),
                    lanes::<F, V>(row.add(stride), 4 * stride, group, (x_low, x_high)),
                    lanes::<F, V>(row.add(2 * stride), 4 * stride, group, (x_low, x_high)),
                    lanes::<F, V>(row.add(3 * stride), 4 * stride, group, (x_low, x_high)),
                ];
                let start = V::splat_int(offset::<F, V>(x.offsets, group));
                let product = V::add(V::add_across(z), start);
                sums = add_group::<F, V>(
                    sums,
                    product,
                    (scales, group),
                    (x.scales[group], x.scaled_sums[group]),
                );
            }
            put::<V>(sums, output, tile.first_row);
        }
    }
}

/// Asks for a group's share of the tile that follows. Rows are short and a tile reads all of its
/// rows side by side, which the hardware does not recognise as one stream.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn prefetch_next<V: Vector>(tile: &Tile<'_>, group: usize) {
    const LINE: usize = 64;
    let share = tile.rows.len() / tile.activations.groups;
    let from = tile
        .rows
        .as_ptr()
        .wrapping_add(tile.rows.len() + group * share);
    let mut at = 0;
    while at < share {
        // SAFETY: the caller's duty; the address need not be readable.
        unsafe { V::prefetch(from.wrapping_add(at)) };
        at += LINE;
    }
}

/// Partial integer products of one group of a row per lane.
///
/// # Safety
/// As [`VectorFormat::levels`].
#[inline(always)]
unsafe fn lanes<F: VectorFormat, V: Vector>(
    row: *const u8,
    stride: usize,
    group: usize,
    (x_low, x_high): (V::Int, V::Int),
) -> V::Int {
    // SAFETY: the caller's duty.
    unsafe {
        let [low, high] = F::levels::<V>(row, stride, group);
        let sum = dot::<F, V>(V::splat_int(0), low, x_low);
        if F::GROUP == 32 {
            dot::<F, V>(sum, high, x_high)
        } else {
            sum
        }
    }
}

/// Levels of a tile as `[cols / 4, ROWS, 4]`.
///
/// # Safety
/// The CPU has `V`; the tile has `ROWS` whole rows and `levels` room for them.
#[inline(always)]
unsafe fn interleave<F: VectorFormat, V: Vector>(tile: &Tile<'_>, levels: &mut [u8]) {
    assert_eq!(levels.len(), V::ROWS * tile.activations.cols);
    let stride = tile.row_bytes;
    for group in 0..tile.activations.groups {
        // SAFETY: the caller's duty; `GROUP` columns of a tile take `GROUP * ROWS` bytes.
        unsafe {
            let mut to = levels.as_mut_ptr().add(group * F::GROUP * V::ROWS);
            let row = tile.rows.as_ptr();
            let a = F::levels::<V>(row, 4 * stride, group);
            let b = F::levels::<V>(row.add(stride), 4 * stride, group);
            let c = F::levels::<V>(row.add(2 * stride), 4 * stride, group);
            let d = F::levels::<V>(row.add(3 * stride), 4 * stride, group);
            let halves = [[a[0], b[0], c[0], d[0]], [a[1], b[1], c[1], d[1]]];
            for half in halves.into_iter().take(F::GROUP / 16) {
                for columns in V::transpose(half) {
                    V::store_int(columns, to);
                    to = to.add(4 * V::ROWS);
                }
            }
        }
    }
}

/// All activation rows over an interleaved tile.
///
/// # Safety
/// The CPU has `V`; `levels` and `scales` are those of the tile.
#[inline(always)]
unsafe fn many<F: VectorFormat, V: Vector>(
    tile: &Tile<'_>,
    levels: &[u8],
    scales: &Scales<'_>,
    outputs: &mut [&mut [f32]],
) {
    const { assert!(RUNS[0] == 8 && RUNS[1] == 2 && RUNS[2] == 1) };
    let tokens = outputs.len();
    let (mut first, mut rest) = (0, outputs);
    while !rest.is_empty() {
        let run = run_at(first, tokens, Together::InRuns);
        let (outputs, after) = rest.split_at_mut(run);
        // SAFETY: the caller's duty.
        unsafe {
            match run {
                8 => together_in::<F, V, 8>(tile, levels, scales, (first, outputs)),
                2 => together_in::<F, V, 2>(tile, levels, scales, (first, outputs)),
                _ => together_in::<F, V, 1>(tile, levels, scales, (first, outputs)),
            }
        }
        first += run;
        rest = after;
    }
}

/// The run of `T` activation rows from `first` on over an interleaved tile.
///
/// # Safety
/// The CPU has `V`; `levels` and `scales` are those of the tile; there is such a run.
#[inline(always)]
unsafe fn together_in<F: VectorFormat, V: Vector, const T: usize>(
    tile: &Tile<'_>,
    levels: &[u8],
    scales: &Scales<'_>,
    (first, outputs): (usize, &mut [&mut [f32]]),
) {
    let (cols, groups) = (tile.activations.cols, tile.activations.groups);
    let run = tile.activations.run(first, T);
    // What every pointer below relies on.
    assert!(
        levels.len() == V::ROWS * cols
            && cols == groups * F::GROUP
            && run.levels.len() == T * cols
            && run.scales.len() == T * groups
            && run.offsets.len() == T * groups
            && run.scaled_sums.len() == T * groups
            && outputs.len() == T
    );
    // SAFETY: the caller's duty; the lengths have just been checked.
    unsafe {
        let mut sums = [V::zero(); T];
        for group in 0..groups {
            let at = group * T;
            let weights = levels.as_ptr().add(group * F::GROUP * V::ROWS);
            let x = run.levels.as_ptr().add(at * F::GROUP);
            let mut products = [V::splat_int(0); T];
            if F::ZERO_POINT != 0 && !is_signed::<F, V>() {
                for (t, product) in products.iter_mut().enumerate() {
                    *product = V::splat_int(*run.offsets.as_ptr().add(at + t));
                }
            }
            for step in 0..F::GROUP / 4 {
                let weights = V::load_int(weights.add(4 * step * V::ROWS));
                for (t, product) in products.iter_mut().enumerate() {
                    let x = V::splat_4(x.add(t * F::GROUP + 4 * step));
                    *product = dot::<F, V>(*product, weights, x);
                }
            }
            for t in 0..T {
                let factors = (
                    *run.scales.as_ptr().add(at + t),
                    *run.scaled_sums.as_ptr().add(at + t),
                );
                sums[t] = add_group::<F, V>(sums[t], products[t], (scales, group), factors);
            }
        }
        for (sums, output) in sums.into_iter().zip(outputs) {
            put::<V>(sums, output, tile.first_row);
        }
    }
}
