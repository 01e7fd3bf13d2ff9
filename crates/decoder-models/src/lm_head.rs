//! [`LmHead`]: logits from normed hidden states, with the head (tied or not) resident in its stored
//! form. Sampling is the caller's; so is the choice between this and a sparse head.

use std::ops::Range;

use candle_core::Tensor;

use crate::buffers::sized;
use crate::linear::Linear;
use crate::slices::{check_rows, count_rows, for_rows, with_f32};
use crate::weights::Weight;
use crate::{DecoderConfig, Error};

/// A head of `[vocab_size, hidden_size]`.
#[derive(Debug)]
pub struct LmHead {
    weight: Linear,
    soft_cap: Option<f32>,
}

impl LmHead {
    /// A head from `lm_head.weight`, or from the tied `model.embed_tokens.weight`.
    ///
    /// # Errors
    /// [`Error::TensorShape`], [`Error::TensorBytes`] or [`Error::Kernel`] for a weight that is not
    /// `[vocab_size, hidden_size]`.
    pub fn new(weight: Weight, config: &DecoderConfig) -> Result<Self, Error> {
        Self::of_rows(config.vocab_size, weight, config)
    }

    /// A head of `rows` rows only, which are consecutive ones of the model's: a logit has the same
    /// bits as from the whole head. So a head can be used while its rows are still arriving.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), for a weight that is not `[rows, hidden_size]`.
    pub fn of_rows(rows: usize, weight: Weight, config: &DecoderConfig) -> Result<Self, Error> {
        let weight = Linear::new("lm_head.weight", weight, rows, config.hidden_size)?;
        Ok(Self {
            weight,
            soft_cap: config.final_logit_softcapping,
        })
    }

    /// Rows of the head, the vocabulary's size unless it is a part.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.weight.out_features()
    }

    /// Logits of `[seq, hidden_size]` normed hidden states, `[seq, vocab_size]` row-major. For a
    /// long `seq` that is large (4 bytes each): measure a text in chunks.
    ///
    /// # Errors
    /// [`Error::Argument`] for another shape or type.
    pub fn logits(&self, hidden: &Tensor) -> Result<Vec<f32>, Error> {
        self.logits_of(0..self.vocab_size(), hidden)
    }

    /// Logits of the token ids `ids` alone, `[seq, ids.len()]` row-major; the same bits as in
    /// [`logits`](Self::logits).
    ///
    /// # Errors
    /// [`Error::Argument`] for another shape or type, [`Error::Kernel`] for ids outside the head.
    pub fn logits_of(&self, ids: Range<usize>, hidden: &Tensor) -> Result<Vec<f32>, Error> {
        let (hidden, rows) = check_rows(hidden, self.weight.in_features(), "hidden")?;
        let mut logits = vec![0.0; rows * ids.len()];
        with_f32(&hidden, |values| self.fill(ids, values, rows, &mut logits))?;
        Ok(logits)
    }

    /// [`logits`](Self::logits) of a slice, `[seq, hidden_size]`, into a buffer that is kept from
    /// token to token: afterwards `[seq, vocab_size]`, whatever it held.
    ///
    /// # Errors
    /// [`Error::Argument`] for no rows or a part of one.
    pub fn logits_into(&self, hidden: &[f32], logits: &mut Vec<f32>) -> Result<(), Error> {
        let rows = count_rows(hidden, self.weight.in_features(), "hidden")?;
        let logits = sized(logits, rows * self.vocab_size());
        self.fill(0..self.vocab_size(), hidden, rows, logits)
    }

    /// [`logits_of`](Self::logits_of) of a slice, `[seq, hidden_size]`, into `logits`, `[seq,
    /// ids.len()]`.
    ///
    /// # Errors
    /// [`Error::Argument`] for no rows or a part of one, [`Error::Kernel`] for ids outside the head or
    /// logits of another length.
    pub fn logits_of_into(
        &self,
        ids: Range<usize>,
        hidden: &[f32],
        logits: &mut [f32],
    ) -> Result<(), Error> {
        let rows = count_rows(hidden, self.weight.in_features(), "hidden")?;
        self.fill(ids, hidden, rows, logits)
    }

    fn fill(
        &self,
        ids: Range<usize>,
        hidden: &[f32],
        rows: usize,
        logits: &mut [f32],
    ) -> Result<(), Error> {
        let width = ids.len();
        self.weight
            .apply_rows(ids, hidden, rows, logits)
            .map_err(|source| Error::operation("lm_head", source))?;
        if let Some(cap) = self.soft_cap {
            for_rows(logits, width.max(1), |_, row| {
                row.iter_mut()
                    .for_each(|logit| *logit = cap * (*logit / cap).tanh());
            });
        }
        Ok(())
    }
}
