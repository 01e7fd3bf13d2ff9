//! Which tensors become spectral: matrices of the layers that are within the tolerance *and* smaller
//! that way. The embedding and the head never do (their weakest directions carry most of what tells
//! tokens apart). Factors wait in files beside the output until the layout is known.

use std::collections::HashMap;
use std::path::PathBuf;

use gkq_v2::Dtype;
use serde::Serialize;

use super::output::Output;
use super::selection::{Selected, Selection};
use super::{PackOptions, convert};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::factor::{Attempt, FactorDtype, Factors, factor};
use crate::progress::Progress;

/// What was found out about one tensor.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SpectralReport {
    /// The tensor.
    pub tensor: String,
    /// `[rows, cols]`.
    pub shape: [u64; 2],
    /// Components that the tolerance takes; `None` if there is no decomposition.
    pub rank: Option<u64>,
    /// Relative error (Frobenius) as stored; `None` where it was not factored.
    pub error: Option<f64>,
    /// Bytes as a dense block.
    pub dense_bytes: u64,
    /// Bytes as factors; `None` where it was not factored.
    pub spectral_bytes: Option<u64>,
}

/// A tensor's factors, parked in a file.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    pub(super) rank: u32,
    pub(super) dtype: Dtype,
    pub(super) error: f64,
    path: PathBuf,
    lengths: [usize; 3],
}

/// All factored tensors of a pack.
#[derive(Debug, Default)]
pub(super) struct Factored {
    by_name: HashMap<String, Parked>,
    reports: Vec<SpectralReport>,
}

impl Factored {
    pub(super) fn get(&self, name: &str) -> Option<&Parked> {
        self.by_name.get(name)
    }

    pub(super) fn into_reports(self) -> Vec<SpectralReport> {
        self.reports
    }
}

impl Parked {
    /// `u`, `s` and `vt` as bytes.
    pub(super) fn read(&self) -> Result<[Vec<u8>; 3], Error> {
        let mut bytes = std::fs::read(&self.path).map_err(Error::io(&self.path, "read"))?;
        let [u, s, _] = self.lengths;
        let vt = bytes.split_off((u + s).min(bytes.len()));
        let s = bytes.split_off(u.min(bytes.len()));
        Ok([bytes, s, vt])
    }
}

/// Tries every matrix of the layers, if a tolerance was given.
pub(super) fn factor_all(
    checkpoint: &Checkpoint,
    selection: &Selection,
    options: &PackOptions,
    output: &Output,
) -> Result<Factored, Error> {
    let mut factored = Factored::default();
    let Some(tolerance) = options.spectral_tolerance else {
        return Ok(factored);
    };
    if !(tolerance > 0.0 && tolerance < 1.0) {
        let reason = format!("expected a number between 0 and 1, found {tolerance}");
        return Err(Error::Option {
            option: "--spectral-tolerance",
            reason,
        });
    }
    let candidates: Vec<_> = selection.body.iter().filter_map(Candidate::of).collect();
    let bar = Progress::new("factoring");
    bar.set_total(
        candidates
            .iter()
            .map(|candidate| candidate.dense_bytes)
            .sum(),
    );
    for (number, candidate) in candidates.iter().enumerate() {
        options.stop.check()?;
        bar.on(&candidate.selected.name);
        let values = candidate.values(checkpoint)?;
        let cols = usize::try_from(candidate.cols).unwrap_or(usize::MAX);
        let attempt = factor(
            &values,
            cols,
            candidate.dtype,
            candidate.largest_rank(),
            tolerance,
        );
        let mut report = candidate.report();
        match attempt {
            Attempt::Factored(factors) => {
                report.rank = Some(factors.rank as u64);
                report.error = Some(factors.error);
                report.spectral_bytes =
                    Some((factors.u.len() + factors.s.len() + factors.vt.len()) as u64);
                let parked = park(&factors, candidate.selected.source, output.scratch(number))?;
                factored
                    .by_name
                    .insert(candidate.selected.name.clone(), parked);
            }
            Attempt::RankTooLarge { needed } => report.rank = Some(needed as u64),
            Attempt::NoDecomposition(reason) => {
                tracing::warn!(tensor = candidate.selected.name, reason, "kept dense");
            }
        }
        factored.reports.push(report);
        bar.add(candidate.dense_bytes);
    }
    Ok(factored)
}

fn park(factors: &Factors, dtype: Dtype, path: PathBuf) -> Result<Parked, Error> {
    let rank = u32::try_from(factors.rank).map_err(|_too_large| Error::Option {
        option: "--spectral-tolerance",
        reason: format!("a rank of {} is beyond 32 bits", factors.rank),
    })?;
    let parts = [&factors.u, &factors.s, &factors.vt];
    std::fs::write(&path, parts.map(Vec::as_slice).concat()).map_err(Error::io(&path, "write"))?;
    Ok(Parked {
        rank,
        dtype,
        error: factors.error,
        path,
        lengths: parts.map(Vec::len),
    })
}

/// A matrix that may become spectral.
struct Candidate<'a> {
    selected: &'a Selected,
    dtype: FactorDtype,
    rows: u64,
    cols: u64,
    /// What it would weigh without factoring.
    dense_bytes: u64,
}

impl<'a> Candidate<'a> {
    fn of(selected: &'a Selected) -> Option<Self> {
        let &[rows, cols] = selected.shape.as_slice() else {
            return None;
        };
        if !selected.name.starts_with("model.layers.") {
            return None;
        }
        let dtype = FactorDtype::new(selected.source)?;
        let dense_bytes = selected.target.tensor_bytes(&selected.shape)?;
        Some(Self {
            selected,
            dtype,
            rows,
            cols,
            dense_bytes,
        })
    }

    /// The largest rank that is still smaller than the dense block, padding between factors counted.
    fn largest_rank(&self) -> usize {
        const PADDING: u64 = 2 * 64;
        let value_bytes = self.selected.source.bytes_per_block();
        let component = self
            .rows
            .saturating_add(self.cols)
            .saturating_mul(value_bytes)
            .saturating_add(4);
        let rank = self
            .dense_bytes
            .saturating_sub(PADDING + 1)
            .checked_div(component)
            .unwrap_or(0);
        usize::try_from(rank.min(self.rows).min(self.cols)).unwrap_or(0)
    }

    fn values(&self, checkpoint: &Checkpoint) -> Result<Vec<f32>, Error> {
        let tensor = &self.selected.tensor;
        let len = tensor.range.end - tensor.range.start;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        checkpoint.read(tensor, 0, &mut bytes)?;
        // The converter to f32 is exact for the three floating types, and refuses what is not finite.
        let widened = Selected {
            target: Dtype::F32,
            ..self.selected.clone()
        };
        let wide = convert::RowConverter::new(&widened)?.convert(&bytes)?;
        Ok(wide
            .as_chunks::<4>()
            .0
            .iter()
            .map(|chunk| f32::from_le_bytes(*chunk))
            .collect())
    }

    fn report(&self) -> SpectralReport {
        SpectralReport {
            tensor: self.selected.name.clone(),
            shape: [self.rows, self.cols],
            rank: None,
            error: None,
            dense_bytes: self.dense_bytes,
            spectral_bytes: None,
        }
    }
}
