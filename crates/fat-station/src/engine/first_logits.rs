//! The logits of a first token, computed while the head arrives. Rows are used before the whole head
//! is checked, but nothing is given out before it is: of bytes that turned out wrong nothing stays.

use super::Waiting;
use crate::error::Error;
use crate::head::Chunk;
use crate::model::Model;
use decoder_models::{DecoderConfig, LmHead, Weight};
use gkq_v2::Dtype;
use std::ops::Range;
use std::time::Instant;

/// Logits `[vocabulary]` of one hidden state, `[hidden_size]`.
///
/// # Errors
/// [`Error::Head`] where the head cannot be loaded, [`Error::Cancelled`].
pub(super) fn first_logits(
    model: &Model,
    hidden: &[f32],
    waiting: &Waiting,
) -> Result<Vec<f32>, Error> {
    let config = model.layers.decoder().config();
    let mut early = Early::default();
    let mut attempt = 0;
    if let Some(mut rows) = model.head.early_rows() {
        while let Some(chunk) = waiting.wait(async { Ok(rows.next().await) })? {
            let begun = Instant::now();
            early.add(&chunk, rows.dtype(), config, hidden)?;
            model.traffic.milestones.add_compute(begun);
            tracing::debug!(rows = chunk.rows.end, "logits of early rows");
        }
        attempt = rows.attempt();
    }
    let head = waiting.wait(model.head.get())?;
    let begun = Instant::now();
    early.complete(attempt, &head, hidden)?;
    model.traffic.milestones.add_compute(begun);
    Ok(early.logits)
}

/// Logits of the rows that were used so far.
#[derive(Debug, Default)]
struct Early {
    attempt: u32,
    /// `[vocabulary]`, as far as known.
    logits: Vec<f32>,
    /// Rows whose logits are there, ascending.
    done: Vec<Range<usize>>,
}

impl Early {
    fn add(
        &mut self,
        chunk: &Chunk,
        dtype: Dtype,
        config: &DecoderConfig,
        hidden: &[f32],
    ) -> Result<(), Error> {
        if chunk.attempt != self.attempt {
            self.attempt = chunk.attempt;
            self.done.clear();
        }
        let rows = chunk.rows.clone();
        let weight = Weight::Dense {
            dtype,
            shape: vec![rows.len(), config.hidden_size],
            bytes: chunk.bytes.clone(),
        };
        let part = LmHead::of_rows(rows.len(), weight, config)?;
        part.logits_of_into(0..rows.len(), hidden, self.logits_of(&rows))?;
        self.done.push(rows);
        Ok(())
    }

    /// What is missing, from the whole head, whose bytes are those of `attempt`.
    fn complete(&mut self, attempt: u32, head: &LmHead, hidden: &[f32]) -> Result<(), Error> {
        if self.attempt != attempt {
            self.done.clear();
        }
        let vocabulary = head.vocab_size();
        let mut known = 0;
        for done in std::mem::take(&mut self.done) {
            self.fill(known..done.start, head, hidden)?;
            known = done.end;
        }
        self.fill(known..vocabulary, head, hidden)?;
        self.logits.truncate(vocabulary);
        Ok(())
    }

    fn fill(&mut self, rows: Range<usize>, head: &LmHead, hidden: &[f32]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let logits = self.logits_of(&rows);
        Ok(head.logits_of_into(rows, hidden, logits)?)
    }

    /// The place of these rows' logits.
    fn logits_of(&mut self, rows: &Range<usize>) -> &mut [f32] {
        if self.logits.len() < rows.end {
            self.logits.resize(rows.end, 0.0);
        }
        &mut self.logits[rows.clone()]
    }
}
