//! Products of floating-point weight rows: each (row, activation row) has one vector of partial
//! sums that walks the columns; a few rows and activation rows go together to hide latency and to
//! share loads.
#![allow(
    unsafe_code,
    reason = "loads through pointers into rows whose lengths are checked once"
)]

use super::vector::Vector;

/// A stored floating-point type.
pub(crate) trait FloatFormat {
    /// Bytes per value.
    const BYTES: usize;
    /// `V::ROWS` weights at `from`, widened.
    ///
    /// # Safety
    /// The CPU has `V` and the weights are there.
    unsafe fn load<V: Vector>(from: *const u8) -> V::Float;
}

macro_rules! float_format {
    ($name:ident, $doc:literal, $bytes:literal, $load:expr) => {
        #[doc = $doc]
        pub(crate) struct $name;
        impl FloatFormat for $name {
            const BYTES: usize = $bytes;
            #[inline(always)]
            unsafe fn load<V: Vector>(from: *const u8) -> V::Float {
                // SAFETY: the caller's duty.
                unsafe { $load(from) }
            }
        }
    };
}
float_format!(F32, "f32 at any alignment.", 4, |from: *const u8| V::load(
    from.cast()
));
float_format!(F16, "f16.", 2, V::load_f16);
float_format!(Bf16, "bf16.", 2, V::load_bf16);

/// Rows that go together.
const ROWS: usize = 4;

/// `outputs[t][r]` = row `r` of `bytes` times `values[t, cols]`.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
pub(crate) unsafe fn rows<F: FloatFormat, V: Vector>(
    cols: usize,
    bytes: &[u8],
    values: &[f32],
    outputs: &mut [&mut [f32]],
) {
    let block_bytes = ROWS * cols * F::BYTES;
    for (index, rows) in bytes.chunks(block_bytes).enumerate() {
        let first = index * ROWS;
        if rows.len() == block_bytes {
            // SAFETY: the caller's duty.
            unsafe { some_rows::<F, V, ROWS>((cols, first), rows, values, outputs) };
        } else {
            for (r, row) in rows.chunks_exact(cols * F::BYTES).enumerate() {
                // SAFETY: the caller's duty.
                unsafe { some_rows::<F, V, 1>((cols, first + r), row, values, outputs) };
            }
        }
    }
}

/// `R` rows with all activation rows.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn some_rows<F: FloatFormat, V: Vector, const R: usize>(
    (cols, first_row): (usize, usize),
    rows: &[u8],
    values: &[f32],
    outputs: &mut [&mut [f32]],
) {
    // As many activation rows as leave registers for the weights.
    let together = if V::ROWS == 16 { 4 } else { 2 };
    for (values, outputs) in values
        .chunks(together * cols)
        .zip(outputs.chunks_mut(together))
    {
        // SAFETY: the caller's duty.
        unsafe {
            match outputs.len() {
                4 => block::<F, V, R, 4>((cols, first_row), rows, values, outputs),
                2 => block::<F, V, R, 2>((cols, first_row), rows, values, outputs),
                _ => {
                    for (values, output) in values.chunks_exact(cols).zip(outputs) {
                        block::<F, V, R, 1>(
                            (cols, first_row),
                            rows,
                            values,
                            std::slice::from_mut(output),
                        );
                    }
                }
            }
        }
    }
}

/// `R` rows with `T` activation rows.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn block<F: FloatFormat, V: Vector, const R: usize, const T: usize>(
    (cols, first_row): (usize, usize),
    rows: &[u8],
    values: &[f32],
    outputs: &mut [&mut [f32]],
) {
    assert!(rows.len() == R * cols * F::BYTES && values.len() == T * cols && outputs.len() == T);
    let row_bytes = cols * F::BYTES;
    let whole = cols / V::ROWS * V::ROWS;
    let rest = cols - whole;
    // SAFETY: the CPU has `V`; columns below `whole` come in full vectors in every row, and the
    // rest is copied into buffers of a full vector, of which no vector has more than 16 floats.
    unsafe {
        let mut sums = [[V::zero(); T]; R];
        let mut column = 0;
        while column < whole {
            let mut x = [V::zero(); T];
            for (t, x) in x.iter_mut().enumerate() {
                *x = V::load(values.as_ptr().add(t * cols + column));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let weights = F::load::<V>(rows.as_ptr().add(r * row_bytes + column * F::BYTES));
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = V::multiply_add(weights, x, *sum);
                }
            }
            column += V::ROWS;
        }
        if rest > 0 {
            for (r, sums) in sums.iter_mut().enumerate() {
                let mut weights = [0_u8; 64];
                let from = r * row_bytes + whole * F::BYTES;
                weights[..rest * F::BYTES].copy_from_slice(&rows[from..from + rest * F::BYTES]);
                let weights = F::load::<V>(weights.as_ptr());
                for (t, sum) in sums.iter_mut().enumerate() {
                    let mut x = [0.0_f32; 16];
                    x[..rest].copy_from_slice(&values[t * cols + whole..(t + 1) * cols]);
                    *sum = V::multiply_add(weights, V::load(x.as_ptr()), *sum);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (sum, output) in sums.into_iter().zip(outputs.iter_mut()) {
                let mut lanes = [0.0_f32; 16];
                V::store(sum, lanes.as_mut_ptr());
                output[first_row + r] = crate::portable::fold_lanes(lanes);
            }
        }
    }
}
