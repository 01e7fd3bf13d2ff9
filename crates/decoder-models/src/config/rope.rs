//! Rotary parameters as a config states them, checked. The frequencies themselves are computed in
//! [`crate::rope`]. Specification: `modeling_rope_utils.py` of transformers.

use super::raw::{RawConfig, RawRope};
use super::{Family, MAX_POSITIONS, positive};
use crate::Error;

/// Rotary embedding of one layer type.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// Base of the geometric series of wavelengths.
    pub rope_theta: f64,
    /// Leading dimensions of each head that are rotated; even, at most `head_dim`.
    pub rotary_dim: usize,
    /// How the frequencies are stretched beyond the trained length.
    pub scaling: RopeScaling,
    /// Divisor of each of the `rotary_dim / 2` frequencies, applied last. A GGUF stores llama3
    /// scaling in this form (its tensor `rope_freqs.weight`).
    pub freq_factors: Option<Vec<f32>>,
}

/// Context extension by changed frequencies.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// None: `rope_theta` alone.
    Default,
    /// Position interpolation: all frequencies divided by `factor`.
    Linear {
        /// Stretch, at least 1.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between.
    Llama3 {
        /// Stretch of the long wavelengths, at least 1.
        factor: f64,
        /// Wavelengths above `original / low_freq_factor` are stretched.
        low_freq_factor: f64,
        /// Wavelengths below `original / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Positions of the original training.
        original_max_position_embeddings: usize,
    },
    /// LongRoPE (Phi-3, formerly `su`): a divisor per frequency, one list up to the original
    /// length and another beyond.
    LongRope {
        /// Divisors for sequences up to the original length, `[rotary_dim / 2]`.
        short_factor: Vec<f32>,
        /// Divisors for longer ones, `[rotary_dim / 2]`.
        long_factor: Vec<f32>,
        /// Positions of the original training.
        original_max_position_embeddings: usize,
        /// Multiplier of cosine and sine.
        attention_factor: f64,
    },
    /// YaRN (Qwen 2.5 and 3 beyond 32,768 positions).
    Yarn {
        /// Stretch of the slow dimensions, at least 1.
        factor: f64,
        /// Positions of the original training.
        original_max_position_embeddings: usize,
        /// Rotations over the original length above which a dimension is kept.
        beta_fast: f64,
        /// Rotations below which a dimension is stretched fully.
        beta_slow: f64,
        /// Whether the ramp's ends are rounded outward to whole dimensions.
        truncate: bool,
        /// Multiplier of cosine and sine.
        attention_factor: f64,
    },
}

/// What the rotary parameters depend on besides their own object.
pub(super) struct RopeContext<'a> {
    pub(super) family: Family,
    pub(super) raw: &'a RawConfig,
    pub(super) head_dim: usize,
    pub(super) max_position_embeddings: usize,
}

impl RopeContext<'_> {
    /// Checks one object of rotary parameters; `default_theta` where it does not say.
    pub(super) fn resolve(&self, rope: &RawRope, default_theta: f64) -> Result<RopeConfig, Error> {
        let rope_theta = rope.rope_theta.unwrap_or(default_theta);
        if !(rope_theta.is_finite() && rope_theta > 1.0) {
            return Err(Error::value("rope_theta", "finite and above 1", rope_theta));
        }
        let rotary_dim = self.rotary_dim(rope)?;
        let scaling = self.scaling(rope, rotary_dim / 2)?;
        let freq_factors = self
            .raw
            .gkq
            .as_ref()
            .and_then(|gkq| gkq.rope_freq_factors.clone());
        if let Some(factors) = &freq_factors {
            check_factors("gkq.rope_freq_factors", factors, rotary_dim / 2)?;
        }
        Ok(RopeConfig {
            rope_theta,
            rotary_dim,
            scaling,
            freq_factors,
        })
    }

    fn rotary_dim(&self, rope: &RawRope) -> Result<usize, Error> {
        let factor = rope
            .partial_rotary_factor
            .or(self.raw.partial_rotary_factor)
            .unwrap_or(1.0);
        if !(factor > 0.0 && factor <= 1.0) {
            return Err(Error::value("partial_rotary_factor", "in (0, 1]", factor));
        }
        // Truncation toward zero is what transformers' `int(head_dim * factor)` does.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "head_dim is at most 2^16 and factor at most 1"
        )]
        let rotary_dim = (self.head_dim as f64 * factor) as usize;
        if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
            let expected = format!(
                "such that head_dim {} * factor is even and not 0",
                self.head_dim
            );
            return Err(Error::value("partial_rotary_factor", expected, factor));
        }
        Ok(rotary_dim)
    }

    fn scaling(&self, rope: &RawRope, frequencies: usize) -> Result<RopeScaling, Error> {
        let name = rope
            .rope_type
            .as_deref()
            .or(rope.legacy_type.as_deref())
            .unwrap_or("default");
        match name {
            "default" => Ok(RopeScaling::Default),
            "linear" => Ok(RopeScaling::Linear {
                factor: stretch(rope)?,
            }),
            "llama3" => self.llama3(rope),
            "longrope" | "su" => self.longrope(rope, frequencies),
            // Early Phi-3 checkpoints called their LongRoPE "yarn".
            "yarn" if self.family == Family::Phi3 => self.longrope(rope, frequencies),
            "yarn" => self.yarn(rope),
            other => Err(Error::Unsupported {
                field: "rope_scaling.rope_type",
                found: other.to_owned(),
                supported: "default, linear, llama3, longrope (su), yarn",
            }),
        }
    }

    fn llama3(&self, rope: &RawRope) -> Result<RopeScaling, Error> {
        let low_freq_factor = required(rope.low_freq_factor, "rope_scaling.low_freq_factor")?;
        let high_freq_factor = required(rope.high_freq_factor, "rope_scaling.high_freq_factor")?;
        if high_freq_factor <= low_freq_factor {
            let expected = format!("above low_freq_factor {low_freq_factor}");
            return Err(Error::value(
                "rope_scaling.high_freq_factor",
                expected,
                high_freq_factor,
            ));
        }
        Ok(RopeScaling::Llama3 {
            factor: stretch(rope)?,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings: self.original_positions(rope)?,
        })
    }

    fn longrope(&self, rope: &RawRope, frequencies: usize) -> Result<RopeScaling, Error> {
        let missing = |field| move || Error::ConfigMissing { field };
        let short_factor = rope
            .short_factor
            .clone()
            .ok_or_else(missing("rope_scaling.short_factor"))?;
        let long_factor = rope
            .long_factor
            .clone()
            .ok_or_else(missing("rope_scaling.long_factor"))?;
        check_factors("rope_scaling.short_factor", &short_factor, frequencies)?;
        check_factors("rope_scaling.long_factor", &long_factor, frequencies)?;
        let original = self.original_positions(rope)?;
        let attention_factor = match rope.attention_factor {
            Some(factor) => required(Some(factor), "rope_scaling.attention_factor")?,
            None => {
                let factor = rope
                    .factor
                    .unwrap_or(self.max_position_embeddings as f64 / original as f64);
                // Below 2 positions the logarithm in the denominator would vanish.
                if factor <= 1.0 || original < 2 {
                    1.0
                } else {
                    (1.0 + factor.ln() / (original as f64).ln()).sqrt()
                }
            }
        };
        Ok(RopeScaling::LongRope {
            short_factor,
            long_factor,
            original_max_position_embeddings: original,
            attention_factor,
        })
    }

    fn yarn(&self, rope: &RawRope) -> Result<RopeScaling, Error> {
        let original = self.original_positions(rope)?;
        let factor = match rope.factor {
            Some(_) => stretch(rope)?,
            None => self.max_position_embeddings as f64 / original as f64,
        };
        let magnitude = |scale: f64| {
            if factor <= 1.0 {
                1.0
            } else {
                0.1 * scale * factor.ln() + 1.0
            }
        };
        let attention_factor = match (rope.attention_factor, rope.mscale, rope.mscale_all_dim) {
            (Some(stated), _, _) => required(Some(stated), "rope_scaling.attention_factor")?,
            (None, Some(scale), Some(all_dim)) if scale != 0.0 && all_dim != 0.0 => {
                magnitude(scale) / magnitude(all_dim)
            }
            _ => magnitude(1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            original_max_position_embeddings: original,
            beta_fast: required(
                Some(rope.beta_fast.unwrap_or(32.0)),
                "rope_scaling.beta_fast",
            )?,
            beta_slow: required(
                Some(rope.beta_slow.unwrap_or(1.0)),
                "rope_scaling.beta_slow",
            )?,
            truncate: rope.truncate.unwrap_or(true),
            attention_factor,
        })
    }

    /// The outer field wins over the nested one, as in transformers, because Phi-3 states it there.
    fn original_positions(&self, rope: &RawRope) -> Result<usize, Error> {
        let stated = self
            .raw
            .original_max_position_embeddings
            .or(rope.original_max_position_embeddings);
        match (stated, self.family) {
            (Some(positions), _) => positive(
                "original_max_position_embeddings",
                Some(positions),
                MAX_POSITIONS,
            ),
            (None, Family::Phi3) => Ok(4096),
            (None, _) => Ok(self.max_position_embeddings),
        }
    }
}

fn stretch(rope: &RawRope) -> Result<f64, Error> {
    let factor = required(rope.factor, "rope_scaling.factor")?;
    if factor < 1.0 {
        return Err(Error::value("rope_scaling.factor", "at least 1", factor));
    }
    Ok(factor)
}

fn required(value: Option<f64>, field: &'static str) -> Result<f64, Error> {
    let value = value.ok_or(Error::ConfigMissing { field })?;
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(Error::value(field, "finite and above 0", value))
    }
}

fn check_factors(field: &'static str, factors: &[f32], frequencies: usize) -> Result<(), Error> {
    if factors.len() != frequencies {
        let expected = format!("a list of {frequencies} numbers, half the rotary dimension");
        return Err(Error::value(
            field,
            expected,
            format!("{} numbers", factors.len()),
        ));
    }
    match factors
        .iter()
        .find(|factor| !(factor.is_finite() && **factor > 0.0))
    {
        Some(bad) => Err(Error::value(field, "a list of finite numbers above 0", bad)),
        None => Ok(()),
    }
}
