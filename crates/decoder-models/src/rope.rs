//! Rotary position embedding: frequencies of every scaling, angles for the positions at hand (no
//! table over the context is ever built), rotation in both layouts. Reference:
//! `modeling_rope_utils.py` of transformers, whose f32 product of position and frequency is kept,
//! because at position 10^5 an exact product would differ from it by more than 10^-3.

#[cfg(test)]
mod tests;

use std::f64::consts::TAU;

use crate::config::{RopeConfig, RopeLayout, RopeScaling};
use crate::slices::for_rows;

/// The rotary embedding of one layer type.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    frequencies: Vec<f32>,
    /// LongRoPE's other list, with the longest sequence that still takes the first.
    beyond: Option<(usize, Vec<f32>)>,
    attention_factor: f32,
    layout: RopeLayout,
}

impl Rope {
    pub(crate) fn new(config: &RopeConfig, layout: RopeLayout) -> Self {
        let base = base_frequencies(config.rope_theta, config.rotary_dim);
        let divided = |divisors: &[f32]| {
            base.iter()
                .zip(divisors)
                .map(|(f, d)| f / f64::from(*d))
                .collect()
        };
        let (frequencies, beyond, attention_factor): (Vec<f64>, _, f64) = match &config.scaling {
            RopeScaling::Default => (base, None, 1.0),
            RopeScaling::Linear { factor } => {
                (base.iter().map(|f| f / factor).collect(), None, 1.0)
            }
            scaling @ RopeScaling::Llama3 { .. } => (
                base.iter().map(|f| llama3(*f, scaling)).collect(),
                None,
                1.0,
            ),
            RopeScaling::LongRope {
                short_factor,
                long_factor,
                original_max_position_embeddings,
                attention_factor,
            } => {
                let long: Vec<f64> = divided(long_factor);
                let beyond = Some((*original_max_position_embeddings, long));
                (divided(short_factor), beyond, *attention_factor)
            }
            scaling @ RopeScaling::Yarn {
                attention_factor, ..
            } => (yarn(&base, config, scaling), None, *attention_factor),
        };
        let rounded = |frequencies: Vec<f64>| rounded(frequencies, config.freq_factors.as_deref());
        Self {
            frequencies: rounded(frequencies),
            beyond: beyond.map(|(original, long)| (original, rounded(long))),
            attention_factor: narrow(attention_factor),
            layout,
        }
    }

    /// Sets `angles` to those of `count` positions from `start`, for a sequence that may reach
    /// `capacity`.
    ///
    /// LongRoPE's choice of frequencies hangs on the capacity, not on the length so far: keys
    /// rotated by one list don't fit queries rotated by the other, so a sequence that crossed the
    /// original length half way would have to be computed again from its start.
    pub(crate) fn fill(
        &self,
        angles: &mut RopeAngles,
        start: usize,
        count: usize,
        capacity: usize,
    ) {
        let frequencies = match &self.beyond {
            Some((original, long)) if capacity > *original => long,
            _ => &self.frequencies,
        };
        angles.positions = count;
        angles.layout = self.layout;
        angles.cosines.clear();
        angles.sines.clear();
        for position in start..start + count {
            #[allow(
                clippy::cast_precision_loss,
                reason = "capacities end at 2^24, where f32 is exact"
            )]
            let position = position as f32;
            for frequency in frequencies {
                let (sine, cosine) = (position * frequency).sin_cos();
                angles.cosines.push(cosine * self.attention_factor);
                angles.sines.push(sine * self.attention_factor);
            }
        }
    }
}

#[cfg(test)]
impl Rope {
    /// [`fill`](Self::fill) of fresh angles.
    pub(crate) fn angles(&self, start: usize, count: usize, capacity: usize) -> RopeAngles {
        let mut angles = RopeAngles::default();
        self.fill(&mut angles, start, count, capacity);
        angles
    }
}

/// Cosines and sines of consecutive positions, `[positions, rotary_dim / 2]` each.
#[derive(Debug, Default)]
pub(crate) struct RopeAngles {
    cosines: Vec<f32>,
    sines: Vec<f32>,
    positions: usize,
    layout: RopeLayout,
}

impl RopeAngles {
    /// Rotates `[positions, heads * head_dim]` where it is, the leading `rotary_dim` dimensions of
    /// each head.
    pub(crate) fn rotate(&self, heads: &mut [f32], head_dim: usize) {
        let width = heads.len() / self.positions;
        for_rows(heads, width, |position, row| {
            self.rotate_row(position, row, head_dim);
        });
    }

    fn rotate_row(&self, position: usize, row: &mut [f32], head_dim: usize) {
        let half = self.cosines.len() / self.positions;
        let cosines = &self.cosines[position * half..][..half];
        let sines = &self.sines[position * half..][..half];
        for head in row.chunks_exact_mut(head_dim) {
            match self.layout {
                RopeLayout::Half => {
                    let (first, rest) = head.split_at_mut(half);
                    for (((x, y), cosine), sine) in
                        first.iter_mut().zip(rest).zip(cosines).zip(sines)
                    {
                        (*x, *y) = (*x * cosine - *y * sine, *y * cosine + *x * sine);
                    }
                }
                RopeLayout::Interleaved => {
                    for ((pair, cosine), sine) in head.chunks_exact_mut(2).zip(cosines).zip(sines) {
                        let (x, y) = (pair[0], pair[1]);
                        (pair[0], pair[1]) = (x * cosine - y * sine, y * cosine + x * sine);
                    }
                }
            }
        }
    }
}

/// `theta^(-2i / d)` for each pair `i` of the rotary dimension `d`, with torch's roundings: exponent,
/// power and reciprocal to f32 each. One rounding fewer moves a frequency by an ulp, and at a
/// distance of 3,000 positions the logits of a small model by 2.5e-4.
#[allow(clippy::cast_precision_loss, reason = "the dimension is at most 2^16")]
fn base_frequencies(theta: f64, rotary_dim: usize) -> Vec<f64> {
    let power = |pair: usize| theta.powf(f64::from((2 * pair) as f32 / rotary_dim as f32));
    (0..rotary_dim / 2)
        .map(|pair| f64::from(1.0 / narrow(power(pair))))
        .collect()
}

/// Llama 3.1's rule for one frequency.
#[allow(clippy::cast_precision_loss, reason = "positions are at most 2^24")]
fn llama3(frequency: f64, scaling: &RopeScaling) -> f64 {
    let RopeScaling::Llama3 {
        factor,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings,
    } = scaling
    else {
        return frequency;
    };
    let original = *original_max_position_embeddings as f64;
    let wavelength = TAU / frequency;
    if wavelength < original / high_freq_factor {
        frequency
    } else if wavelength > original / low_freq_factor {
        frequency / factor
    } else {
        let smooth =
            (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

/// YaRN's ramp between kept and stretched frequencies (arXiv:2309.00071, section 3.2).
#[allow(
    clippy::cast_precision_loss,
    reason = "dimensions and positions are at most 2^24"
)]
fn yarn(base: &[f64], config: &RopeConfig, scaling: &RopeScaling) -> Vec<f64> {
    let RopeScaling::Yarn {
        factor,
        original_max_position_embeddings,
        beta_fast,
        beta_slow,
        truncate,
        ..
    } = scaling
    else {
        return base.to_vec();
    };
    let dim = config.rotary_dim as f64;
    let original = *original_max_position_embeddings as f64;
    let dimension_of =
        |rotations: f64| dim * (original / (rotations * TAU)).ln() / (2.0 * config.rope_theta.ln());
    let (low, high) = (dimension_of(*beta_fast), dimension_of(*beta_slow));
    let (low, high) = if *truncate {
        (low.floor(), high.ceil())
    } else {
        (low, high)
    };
    let (low, mut high) = (low.max(0.0), high.min(dim - 1.0));
    if low == high {
        high += 0.001;
    }
    let stretched = |pair: usize| ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
    let blend = |(pair, frequency): (usize, &f64)| {
        let share = stretched(pair);
        frequency / factor * share + frequency * (1.0 - share)
    };
    base.iter().enumerate().map(blend).collect()
}

fn rounded(frequencies: Vec<f64>, divisors: Option<&[f32]>) -> Vec<f32> {
    match divisors {
        None => frequencies.into_iter().map(narrow).collect(),
        Some(divisors) => frequencies
            .into_iter()
            .zip(divisors)
            .map(|(f, d)| narrow(f / f64::from(*d)))
            .collect(),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "rounded once, after f64 arithmetic"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}
