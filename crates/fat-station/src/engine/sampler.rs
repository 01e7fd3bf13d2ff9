//! Chooses the next token from the logits of one position.
//! Order: temperature, top-k, top-p, min-p, as Hugging Face's logits processors apply them. It knows
//! neither text nor stop conditions.

use crate::error::Error;
use low_bit_kernels::{Greatest, greatest};
use rand::rngs::ChaCha12Rng;
use rand::{RngExt as _, SeedableRng as _};

/// How tokens are drawn. Every field is checked by [`SamplingOptions::validate`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Tokens kept, most likely first; 0 keeps all.
    pub top_k: usize,
    /// Probability that the kept tokens must reach together, in (0, 1].
    pub top_p: f32,
    /// Least share of the most likely token's probability, in [0, 1].
    pub min_p: f32,
    /// Seed of the draw; a fresh one where absent.
    pub seed: Option<u64>,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: None,
        }
    }
}

impl SamplingOptions {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Request`] naming the parameter, its value and its range.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |name: &'static str, value: f32, range: &str| {
            Err(Error::Request {
                parameter: name,
                message: format!("{name} must be {range}, found {value}"),
            })
        };
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return refuse(
                "temperature",
                self.temperature,
                "a finite number of at least 0",
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top_p", self.top_p, "above 0 and at most 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return refuse("min_p", self.min_p, "between 0 and 1");
        }
        Ok(())
    }
}

/// Draws tokens; one per session.
#[derive(Debug)]
pub struct Sampler {
    options: SamplingOptions,
    rng: ChaCha12Rng,
    /// Of the last draw, kept for its buffer: as long as the vocabulary.
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler for one session.
    ///
    /// # Errors
    /// [`Error::Request`] for options out of range.
    pub fn new(options: SamplingOptions) -> Result<Self, Error> {
        options.validate()?;
        let seed = options.seed.unwrap_or_else(rand::random);
        Ok(Self {
            options,
            rng: ChaCha12Rng::seed_from_u64(seed),
            candidates: Vec::new(),
        })
    }

    /// The next token for `logits` (`[vocabulary]`). Of equal logits the lowest id wins.
    ///
    /// # Errors
    /// [`Error::Logits`] where there are none or one is not a number.
    pub fn choose(&mut self, logits: &[f32]) -> Result<u32, Error> {
        let best = best_of(logits)?;
        if self.options.temperature == 0.0 {
            return token_id(best);
        }
        self.keep(logits, logits[best]);
        let kept = &self.candidates;
        let total: f64 = kept.iter().map(|candidate| candidate.weight).sum();
        let mut left = self.rng.random::<f64>() * total;
        for candidate in kept {
            left -= candidate.weight;
            if left < 0.0 {
                return token_id(candidate.index);
            }
        }
        // Rounding may leave a crumb: it belongs to the last candidate.
        token_id(kept.last().map_or(best, |candidate| candidate.index))
    }

    /// Sets the candidates that may be drawn, most likely first, with weights relative to the best
    /// one.
    fn keep(&mut self, logits: &[f32], best: f32) {
        let temperature = f64::from(self.options.temperature);
        let candidates = &mut self.candidates;
        candidates.clear();
        let all = logits.iter().enumerate();
        candidates.extend(all.map(|(index, &logit)| Candidate {
            index,
            weight: ((f64::from(logit) - f64::from(best)) / temperature).exp(),
        }));
        let order = |a: &Candidate, b: &Candidate| {
            b.weight.total_cmp(&a.weight).then(a.index.cmp(&b.index))
        };
        let top_k = self.options.top_k;
        if top_k > 0 && top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k - 1, order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(order);
        if self.options.top_p < 1.0 {
            let total: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
            let wanted = f64::from(self.options.top_p) * total;
            let mut reached = 0.0;
            let kept = candidates.iter().take_while(|candidate| {
                let open = reached < wanted;
                reached += candidate.weight;
                open
            });
            let kept = kept.count().max(1);
            candidates.truncate(kept);
        }
        // The best candidate's weight is exp(0) = 1, so min-p is a bound on the weight itself.
        let least = f64::from(self.options.min_p);
        candidates.retain(|candidate| candidate.weight >= least);
    }
}

#[derive(Debug)]
struct Candidate {
    index: usize,
    weight: f64,
}

/// Where the greatest logit is.
fn best_of(logits: &[f32]) -> Result<usize, Error> {
    match greatest(logits) {
        Greatest::At(index) => Ok(index),
        Greatest::Unordered(index) => Err(Error::Logits {
            index,
            value: logits[index],
        }),
        Greatest::Nothing => Err(Error::Logits {
            index: 0,
            value: f32::NAN,
        }),
    }
}

fn token_id(index: usize) -> Result<u32, Error> {
    u32::try_from(index).map_err(|_overflow| Error::Logits { index, value: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [0.0, 3.0, 1.0, 3.0, 2.0];

    fn draws(options: SamplingOptions, count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(options).unwrap();
        (0..count)
            .map(|_| sampler.choose(&LOGITS).unwrap())
            .collect()
    }

    fn warm(seed: u64) -> SamplingOptions {
        SamplingOptions {
            temperature: 1.0,
            seed: Some(seed),
            ..SamplingOptions::default()
        }
    }

    #[test]
    fn greedy_takes_the_lowest_of_equal_ids() {
        assert_eq!(draws(SamplingOptions::default(), 3), [1, 1, 1]);
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        assert_eq!(draws(warm(7), 64), draws(warm(7), 64));
        assert_ne!(draws(warm(7), 64), draws(warm(8), 64));
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let count = 40_000;
        let drawn = draws(warm(1), count);
        let total: f64 = LOGITS.iter().map(|&logit| f64::from(logit).exp()).sum();
        for (id, &logit) in LOGITS.iter().enumerate() {
            let expected = f64::from(logit).exp() / total;
            let found =
                drawn.iter().filter(|&&token| token as usize == id).count() as f64 / count as f64;
            // Four standard deviations of a binomial share.
            let bound = 4.0 * (expected * (1.0 - expected) / count as f64).sqrt();
            assert!(
                (found - expected).abs() < bound,
                "{id}: {found} against {expected}"
            );
        }
    }

    #[test]
    fn each_filter_keeps_what_it_says() {
        let kept = |options: SamplingOptions| {
            let mut tokens = draws(options, 2_000);
            tokens.sort_unstable();
            tokens.dedup();
            tokens
        };
        assert_eq!(
            kept(SamplingOptions {
                top_k: 1,
                ..warm(3)
            }),
            [1]
        );
        assert_eq!(
            kept(SamplingOptions {
                top_k: 3,
                ..warm(3)
            }),
            [1, 3, 4]
        );
        // The two best hold 0.74 of the probability.
        assert_eq!(
            kept(SamplingOptions {
                top_p: 0.7,
                ..warm(3)
            }),
            [1, 3]
        );
        assert_eq!(
            kept(SamplingOptions {
                top_p: 1e-9,
                ..warm(3)
            }),
            [1]
        );
        // exp(2 - 3) = 0.37, exp(1 - 3) = 0.14.
        assert_eq!(
            kept(SamplingOptions {
                min_p: 0.3,
                ..warm(3)
            }),
            [1, 3, 4]
        );
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (options, name) in [
            (
                SamplingOptions {
                    temperature: -1.0,
                    ..warm(1)
                },
                "temperature",
            ),
            (
                SamplingOptions {
                    temperature: f32::NAN,
                    ..warm(1)
                },
                "temperature",
            ),
            (
                SamplingOptions {
                    top_p: 0.0,
                    ..warm(1)
                },
                "top_p",
            ),
            (
                SamplingOptions {
                    top_p: 1.1,
                    ..warm(1)
                },
                "top_p",
            ),
            (
                SamplingOptions {
                    min_p: -0.1,
                    ..warm(1)
                },
                "min_p",
            ),
        ] {
            let error = Sampler::new(options).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        let mut sampler = Sampler::new(SamplingOptions::default()).unwrap();
        assert!(matches!(
            sampler.choose(&[0.0, f32::NAN]),
            Err(Error::Logits { index: 1, .. })
        ));
        assert!(sampler.choose(&[]).is_err());
        assert_eq!(sampler.choose(&[f32::NEG_INFINITY, -1.0]).unwrap(), 1);
    }
}
