//! Perplexity of a text, by the method of llama.cpp's `perplexity`: windows of equal length side by
//! side, each computed afresh, its first token replaced by BOS where the model adds one, the second
//! half of each scored. What is left over at the end of the text is not used.

use super::{Waiting, forward};
use crate::embedding::CHUNK_TOKENS;
use crate::error::Error;
use crate::model::Model;
use crate::traffic::Phase;
use decoder_models::{KvCache, LmHead};
use serde::Serialize;

/// Positions that pass the head together: their logits are at most 16 MB for 262,144 tokens, and
/// the head's bytes are read once for all of them.
const HEAD_POSITIONS: usize = 16;

/// The outcome.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Perplexity {
    /// Tokens scored.
    pub tokens: u64,
    /// Mean negative log likelihood of a scored token, in nats.
    pub nll: f64,
    /// `exp(nll)`.
    pub perplexity: f64,
    /// Windows computed.
    pub chunks: u64,
    /// Positions whose row was an approximation: the figure is not the model's unless this is 0.
    pub approximated_rows: u64,
}

/// How a text is cut.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    /// Tokens of a window, at least 4.
    pub context: usize,
    /// Most windows to compute.
    pub limit: Option<usize>,
}

impl Windows {
    /// Windows of `tokens`, each with the BOS that the model adds.
    fn of(self, tokens: &[u32], bos: Option<u32>) -> Vec<Vec<u32>> {
        tokens
            .chunks_exact(self.context)
            .take(self.limit.unwrap_or(usize::MAX))
            .map(|window| {
                let mut window = window.to_vec();
                if let (Some(first), Some(bos)) = (window.first_mut(), bos) {
                    *first = bos;
                }
                window
            })
            .collect()
    }
}

/// Measures `tokens`. `bos` is the token that the model puts before a text, if it does.
///
/// # Errors
/// [`Error::Request`] for a text shorter than one window, and whatever fails on the way.
pub fn measure(
    model: &Model,
    tokens: &[u32],
    bos: Option<u32>,
    windows: Windows,
    waiting: &Waiting,
) -> Result<Perplexity, Error> {
    let context = windows.context;
    if context < 4 || context > model.language.context {
        let message = format!(
            "context must be between 4 and the model's {}, found {context}",
            model.language.context
        );
        return Err(Error::Request {
            parameter: "context",
            message,
        });
    }
    let windows = windows.of(tokens, bos);
    if windows.is_empty() {
        let message = format!(
            "the text must have at least {context} tokens, found {}",
            tokens.len()
        );
        return Err(Error::Request {
            parameter: "file",
            message,
        });
    }
    let head = waiting.wait(model.head.get())?;
    let (mut nll, mut scored) = (0.0, 0_u64);
    let before = model.traffic.ledger().approximated;
    for (at, window) in windows.iter().enumerate() {
        let losses = score(model, &head, window, waiting)?;
        nll += losses.iter().sum::<f64>();
        scored += losses.len() as u64;
        let (chunk, chunks) = (at + 1, windows.len());
        tracing::info!(
            chunk,
            chunks,
            perplexity = (nll / scored as f64).exp(),
            "perplexity"
        );
    }
    let nll = nll / scored as f64;
    Ok(Perplexity {
        tokens: scored,
        nll,
        perplexity: nll.exp(),
        chunks: windows.len() as u64,
        // One command runs alone: what was counted meanwhile is its own.
        approximated_rows: model.traffic.ledger().approximated - before,
    })
}

/// Losses of the second half of one window: positions `context / 2 .. context - 1` predict the token
/// that follows each.
fn score(
    model: &Model,
    head: &LmHead,
    window: &[u32],
    waiting: &Waiting,
) -> Result<Vec<f64>, Error> {
    let first = window.len() / 2;
    let decoder = model.layers.decoder();
    let mut cache: KvCache = decoder.new_cache(window.len(), model.kv_precision);
    let width = decoder.config().hidden_size;
    let (mut hidden, mut logits) = (Vec::new(), Vec::new());
    let mut losses = Vec::with_capacity(window.len() - first);
    for (chunk_at, chunk) in window.chunks(CHUNK_TOKENS).enumerate() {
        if waiting.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let rows = waiting.wait(model.embedding.rows(chunk, Phase::Prefill, &model.traffic))?;
        forward(model, &rows, &mut cache, &mut hidden, waiting)?;
        // Positions of this chunk that are scored, and that have a next token.
        let begin = chunk_at * CHUNK_TOKENS;
        let end = chunk.len().min(window.len() - 1 - begin);
        let mut at = first.saturating_sub(begin).min(end);
        while at < end {
            let count = HEAD_POSITIONS.min(end - at);
            let positions = &hidden[at * width..(at + count) * width];
            head.logits_into(positions, &mut logits)?;
            let next = &window[begin + at + 1..];
            for (logits, &next) in logits.chunks_exact(head.vocab_size()).zip(next) {
                losses.push(loss(logits, next)?);
            }
            at += count;
        }
    }
    Ok(losses)
}

/// `-ln softmax(logits)[next]`, summed in f64.
fn loss(logits: &[f32], next: u32) -> Result<f64, Error> {
    let outside = || Error::TokenId {
        id: next,
        vocabulary: logits.len() as u64,
    };
    let chosen = usize::try_from(next)
        .ok()
        .and_then(|at| logits.get(at))
        .ok_or_else(outside)?;
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits
        .iter()
        .map(|&logit| f64::from(logit - greatest).exp())
        .sum();
    Ok(sum.ln() - f64::from(chosen - greatest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_model_has_the_vocabularys_size_as_perplexity() {
        let nll = loss(&[3.0; 32], 7).unwrap();
        assert!((nll.exp() - 32.0).abs() < 1e-9, "{nll}");
        assert!(loss(&[0.0; 4], 4).is_err());
        let certain = loss(&[0.0, 200.0], 1).unwrap();
        assert!(certain.abs() < 1e-12, "{certain}");
    }

    #[test]
    fn windows_are_whole_and_begin_with_bos() {
        let tokens: Vec<u32> = (10..23).collect();
        let windows = Windows {
            context: 4,
            limit: None,
        };
        assert_eq!(windows.of(&tokens, Some(1)).len(), 3);
        assert_eq!(windows.of(&tokens, Some(1))[1], [1, 15, 16, 17]);
        assert_eq!(windows.of(&tokens, None)[1], [14, 15, 16, 17]);
        assert_eq!(
            Windows {
                limit: Some(2),
                ..windows
            }
            .of(&tokens, None)
            .len(),
            2
        );
    }
}
