//! From a prompt whose rows are at hand to tokens and text. Runs on a blocking thread; only rows
//! and the head are waited for. It knows neither flags nor JSON.

mod first_logits;
pub mod perplexity;
pub mod sampler;
pub mod session;
pub mod stop;

use crate::embedding::HeldRow;
use crate::error::Error;
use crate::model::Model;
use decoder_models::{KvCache, Pass};
use gkq_v2::Dtype;
use std::future::Future;
use std::time::Instant;
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
/// into `hidden`, whatever it held: rows are widened where the pass works. It goes as far as layers are
/// loaded, and waits for those that are not.
fn forward(
    model: &Model,
    rows: &[HeldRow],
    cache: &mut KvCache,
    hidden: &mut Vec<f32>,
    waiting: &Waiting,
) -> Result<(), Error> {
    let decoder = model.layers.decoder();
    let config = decoder.config();
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
    let mut pass = Pass::begin(decoder, hidden, cache)?;
    while pass.next_stage() < decoder.stages() {
        let mut loaded = model.layers.loaded();
        if loaded <= pass.next_stage() {
            loaded = waiting.wait(model.layers.wait_for(pass.next_stage() + 1))?;
        }
        let begun = Instant::now();
        pass.run(loaded)?;
        model.traffic.milestones.add_compute(begun);
        if loaded < decoder.stages() {
            tracing::debug!(
                stages = loaded,
                of = decoder.stages(),
                "computed as far as loaded"
            );
        }
    }
    Ok(pass.finish()?)
}
