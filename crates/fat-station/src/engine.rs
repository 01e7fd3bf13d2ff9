//! From a prompt whose rows are at hand to tokens and text. Runs on a blocking thread; only rows
//! and the head are waited for. It knows neither flags nor JSON.

pub mod perplexity;
pub mod sampler;
pub mod session;
pub mod stop;

use crate::embedding::HeldRow;
use crate::error::Error;
use crate::model::Model;
use decoder_models::KvCache;
use gkq_v2::Dtype;
use std::future::Future;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// What a computing thread needs to wait for the rest of the station.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The runtime that rows and the head arrive on.
    pub runtime: Handle,
    /// Ends the work between two steps.
    pub cancel: CancellationToken,
}

impl Waiting {
    /// Waits for `work` unless the session is cancelled first.
    ///
    /// # Errors
    /// [`Error::Cancelled`], or the work's own.
    pub fn wait<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(Error::Cancelled),
                outcome = work => outcome,
            }
        })
    }
}

/// Hidden states `[rows.len(), hidden_size]` after the final norm, for the next positions of `cache`,
/// into `hidden`, whatever it held: rows are widened where the pass works.
fn forward(
    model: &Model,
    rows: &[HeldRow],
    cache: &mut KvCache,
    hidden: &mut Vec<f32>,
) -> Result<(), Error> {
    let config = model.decoder.config();
    hidden.resize(rows.len() * config.hidden_size, 0.0);
    // Rows of the matrix are in its dtype, approximations in f32.
    let same_kind = |a: &HeldRow, b: &HeldRow| a.is_approximated() == b.is_approximated();
    let mut rest = hidden.as_mut_slice();
    for run in rows.chunk_by(same_kind) {
        let approximated = run.first().is_some_and(HeldRow::is_approximated);
        let dtype = if approximated {
            Dtype::F32
        } else {
            model.row_dtype
        };
        let (states, after) = rest.split_at_mut(run.len() * config.hidden_size);
        decoder_models::embed_rows_into(dtype, run, config, states)?;
        rest = after;
    }
    Ok(model.decoder.forward_in_place(hidden, cache)?)
}
