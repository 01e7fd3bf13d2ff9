//! The few vector operations that the products need, so that each product is written once.
//!
//! A vector of bytes is seen as lanes of 16 bytes; a *tile* is as many weight rows as a vector has
//! 32-bit elements, 4 per lane. Four vectors `z[0..4]` hold 16 bytes of each row of a tile: lane `l`
//! of `z[i]` belongs to row `4 * l + i`, so that [`Vector::add_across`] and [`Vector::transpose`]
//! stay within lanes and yet deliver rows in order.

use std::marker::PhantomData;

/// Stands for work done on the vectors of `V`. Whoever names it vouches that the CPU has them.
pub(crate) struct OnVectors<V>(PhantomData<V>);

/// Vector operations of one instruction set.
///
/// # Safety
/// Of every method: the CPU has the instruction set. Of those that take a pointer: as many bytes
/// as stated are readable there; no alignment is asked. Implementations promise that `dot` is exact.
pub(crate) unsafe trait Vector {
    /// Bytes or 32-bit integers.
    type Int: Copy;
    /// 32-bit floats, one per row of a tile.
    type Float: Copy;
    /// Rows of a tile: 32-bit elements of a vector.
    const ROWS: usize;
    /// Whether `dot` takes levels above 127. Otherwise weights of 8 bits go to `dot_signed`.
    const FULL_RANGE: bool;

    /// The same 32-bit integer everywhere.
    unsafe fn splat_int(value: i32) -> Self::Int;
    /// `4 * ROWS` bytes at `from`.
    unsafe fn load_int(from: *const u8) -> Self::Int;
    /// `4 * ROWS` bytes to `to`.
    unsafe fn store_int(value: Self::Int, to: *mut u8);
    /// 16 bytes at `from`, `from + stride`, ...: one lane each.
    unsafe fn load_lanes(from: *const u8, stride: usize) -> Self::Int;
    /// 16 bytes at `from` in every lane.
    unsafe fn splat_16(from: *const i8) -> Self::Int;
    /// 4 bytes at `from` in every element.
    unsafe fn splat_4(from: *const i8) -> Self::Int;
    /// 4 bytes at `from`, `from + stride`, ...: one element each.
    unsafe fn gather_4(from: *const u8, stride: usize) -> Self::Int;
    /// Each element of `sum` plus the dot product of its 4 unsigned and 4 signed bytes.
    unsafe fn dot(sum: Self::Int, unsigned: Self::Int, signed: Self::Int) -> Self::Int;
    /// As `dot` with signed weights; `activations` within -127..=127.
    unsafe fn dot_signed(sum: Self::Int, weights: Self::Int, activations: Self::Int) -> Self::Int;
    /// Asks for the cache line at `at`, which need not be readable.
    unsafe fn prefetch(at: *const u8);
    /// 32-bit sums.
    unsafe fn add(a: Self::Int, b: Self::Int) -> Self::Int;
    /// Every byte and `mask`.
    unsafe fn and(a: Self::Int, mask: u8) -> Self::Int;
    /// Bitwise and.
    unsafe fn and_bits(a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise or.
    unsafe fn or(a: Self::Int, b: Self::Int) -> Self::Int;
    /// Every byte exclusive-or `mask`.
    unsafe fn xor(a: Self::Int, mask: u8) -> Self::Int;
    /// 16-bit elements shifted right; bits cross from byte to byte.
    unsafe fn shift_right(a: Self::Int, bits: i32) -> Self::Int;
    /// 16-bit elements shifted left; bits cross from byte to byte.
    unsafe fn shift_left(a: Self::Int, bits: i32) -> Self::Int;
    /// 32-bit elements shifted right, and `mask`.
    unsafe fn field(a: Self::Int, from: i32, mask: i32) -> Self::Int;
    /// Byte `index` of each element, with its sign.
    unsafe fn signed_byte(a: Self::Int, index: i32) -> Self::Int;
    /// In each lane, byte `j` becomes 16 where bit `j` of the two bytes from `first` on is set.
    unsafe fn spread_bits(a: Self::Int, first: usize) -> Self::Int;
    /// Element `4 * l + i` is the sum of lane `l` of `z[i]`.
    unsafe fn add_across(z: [Self::Int; 4]) -> Self::Int;
    /// Element `4 * l + i` of result `j` is element `j` of lane `l` of `z[i]`.
    unsafe fn transpose(z: [Self::Int; 4]) -> [Self::Int; 4];

    /// Each element the larger of two unsigned ones.
    unsafe fn largest(a: Self::Int, b: Self::Int) -> Self::Int;
    /// The largest unsigned element.
    unsafe fn largest_element(a: Self::Int) -> u32;
    /// Floats as their bits.
    unsafe fn bits(a: Self::Float) -> Self::Int;
    /// The 16 floats at `from` times `factor` as the nearest integers, ties to even, to 16 bytes at
    /// `to`; their sum. They are within a byte.
    unsafe fn round_16(from: *const f32, factor: f32, to: *mut i8) -> i32;

    /// Zeros.
    unsafe fn zero() -> Self::Float;
    /// The same float everywhere.
    unsafe fn splat(value: f32) -> Self::Float;
    /// `ROWS` floats at `from`.
    unsafe fn load(from: *const f32) -> Self::Float;
    /// `ROWS` f16 at `from`, widened.
    unsafe fn load_f16(from: *const u8) -> Self::Float;
    /// `ROWS` bf16 at `from`, widened.
    unsafe fn load_bf16(from: *const u8) -> Self::Float;
    /// `ROWS` floats to `to`.
    unsafe fn store(value: Self::Float, to: *mut f32);
    /// `ROWS` floats as f16 to `to`, `2 * ROWS` bytes: rounded to nearest, ties to even, finite
    /// magnitudes beyond 65504 cut to it, infinities and NaNs kept.
    unsafe fn store_f16(value: Self::Float, to: *mut u8);
    /// 32-bit integers to floats, rounded to nearest.
    unsafe fn convert(a: Self::Int) -> Self::Float;
    /// The f16 in the lower half of each element, widened.
    unsafe fn widen_low_half(a: Self::Int) -> Self::Float;
    /// The f16 in the upper half of each element, widened.
    unsafe fn widen_high_half(a: Self::Int) -> Self::Float;
    /// Products.
    unsafe fn multiply(a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a * b + c` with one rounding.
    unsafe fn multiply_add(a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
}
