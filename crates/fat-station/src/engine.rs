//! From a prompt whose rows are at hand to tokens and text. Runs on a blocking thread; only rows
//! and the head are waited for. It knows neither flags nor JSON.

pub mod perplexity;
pub mod sampler;
pub mod session;
pub mod stop;

use crate::embedding::HeldRow;
use crate::error::Error;
use crate::model::Model;
use candle_core::Tensor;
use decoder_models::KvCache;
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

/// Hidden states `[rows.len(), hidden_size]` after the final norm, for the next positions of `cache`.
fn forward(model: &Model, rows: &[HeldRow], cache: &mut KvCache) -> Result<Tensor, Error> {
    let config = model.decoder.config();
    let hidden = decoder_models::embed_rows(model.row_dtype, rows, config)?;
    Ok(model.decoder.forward(&hidden, cache)?)
}

/// Rows `at .. at + count` of `hidden` (`[seq, hidden_size]`) as `[count, hidden_size]`.
fn positions(hidden: &Tensor, at: usize, count: usize) -> Result<Tensor, Error> {
    Ok(hidden
        .narrow(0, at, count)
        .map_err(decoder_models::Error::from)?)
}
