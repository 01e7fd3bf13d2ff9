//! One prompt's answer: prefill, then a token a step until something ends it.

use super::first_logits::first_logits;
use super::sampler::{Sampler, SamplingOptions};
use super::stop::{StopMatcher, StopOutcome};
use super::{Waiting, forward};
use crate::embedding::{EmbeddedPrompt, HeldRow};
use crate::error::Error;
use crate::model::Model;
use crate::telemetry;
use crate::traffic::Phase;
use compact_tokenizer::DecodeStream;
use decoder_models::KvCache;
use std::time::Instant;

/// What an answer is made by.
#[derive(Debug, Clone, Default)]
pub struct GenerateOptions {
    /// Most tokens to generate, at least 1.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampling: SamplingOptions,
    /// Texts that end the answer before they appear.
    pub stop: Vec<String>,
    /// What an end-of-sequence token does.
    pub end_of_sequence: EndOfSequence,
    /// Tokens to feed instead of the chosen ones, for comparisons; the answer is as long at most.
    pub forced: Option<Vec<u32>>,
}

/// What an end-of-sequence token does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndOfSequence {
    /// It ends the answer.
    #[default]
    Stops,
    /// It is a token like any other.
    Ignored,
}

/// Where an answer goes.
pub trait TokenSink {
    /// Takes the next piece of text, whole characters.
    ///
    /// # Errors
    /// What keeps it from being written; it ends the session.
    fn text(&mut self, piece: &str) -> Result<(), Error>;

    /// Takes the logits (`[vocabulary]`) that the next token is chosen by.
    ///
    /// # Errors
    /// What keeps them from being written; it ends the session.
    fn logits(&mut self, _logits: &[f32]) -> Result<(), Error> {
        Ok(())
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-sequence token or a stop text.
    Stop,
    /// As many tokens as were allowed, or the context is full.
    Length,
    /// The session was cancelled.
    Cancelled,
}

impl FinishReason {
    /// The reason's name in spans and in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An answer's account.
#[derive(Debug, Clone)]
pub struct Generation {
    /// The tokens chosen, one a step, the ending one included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: FinishReason,
    /// When the first token was chosen.
    pub first_token: Option<Instant>,
    /// Positions, of the prompt and of tokens fed back, whose row was an approximation: the answer
    /// is not the model's unless this is 0.
    pub approximated_rows: u64,
}

/// Answers `prompt`, giving text to `sink` as it comes. A cancelled session is no error: what was
/// generated until then is its answer.
///
/// # Errors
/// [`Error::Request`] for options out of range, and whatever fails on the way.
pub fn generate(
    model: &Model,
    prompt: EmbeddedPrompt,
    options: &GenerateOptions,
    waiting: &Waiting,
    sink: &mut dyn TokenSink,
) -> Result<Generation, Error> {
    let mut session = Session::new(model, &prompt, options)?;
    let finish = match session.answer(prompt, waiting, sink) {
        Err(Error::Cancelled) => Ok(FinishReason::Cancelled),
        other => other,
    };
    let finish = finish?;
    session.flush(sink)?;
    Ok(Generation {
        tokens: session.tokens,
        finish,
        first_token: session.first_token,
        approximated_rows: session.approximated_rows,
    })
}

struct Session<'a> {
    model: &'a Model,
    options: &'a GenerateOptions,
    cache: KvCache,
    /// What a pass begins and ends with; after the prompt `[1, hidden_size]`.
    hidden: Vec<f32>,
    sampler: Sampler,
    characters: DecodeStream,
    stop: StopMatcher,
    /// Steps that the answer may take.
    steps: usize,
    tokens: Vec<u32>,
    first_token: Option<Instant>,
    approximated_rows: u64,
}

impl<'a> Session<'a> {
    fn new(
        model: &'a Model,
        prompt: &EmbeddedPrompt,
        options: &'a GenerateOptions,
    ) -> Result<Self, Error> {
        let (length, context) = (prompt.tokens.len(), model.language.context);
        if options.max_tokens == 0 {
            let message = "max_tokens must be at least 1, found 0".to_owned();
            return Err(Error::Request {
                parameter: "max_tokens",
                message,
            });
        }
        if length >= context {
            return Err(Error::ContextOverflow {
                prompt_tokens: length,
                context,
            });
        }
        let forced = options.forced.as_ref().map_or(usize::MAX, Vec::len);
        let steps = options.max_tokens.min(forced).min(context - length);
        Ok(Self {
            model,
            options,
            // As long as the answer can get, and no longer: the rotary frequencies of some models
            // depend on it.
            cache: model
                .layers
                .decoder()
                .new_cache(length + steps, model.kv_precision),
            hidden: Vec::new(),
            sampler: Sampler::new(options.sampling)?,
            characters: DecodeStream::new(&model.language.tokenizer),
            stop: StopMatcher::new(&options.stop),
            steps,
            tokens: Vec::with_capacity(steps),
            first_token: None,
            approximated_rows: prompt.approximated_rows(),
        })
    }

    fn answer(
        &mut self,
        prompt: EmbeddedPrompt,
        waiting: &Waiting,
        sink: &mut dyn TokenSink,
    ) -> Result<FinishReason, Error> {
        self.prefill(prompt, waiting)?;
        let span = telemetry::decode();
        let _entered = span.enter();
        let begun = Instant::now();
        let finish = self.decode(waiting, sink);
        span.record("generated_tokens", self.tokens.len());
        span.record("seconds", begun.elapsed().as_secs_f64());
        let name = match &finish {
            Ok(finish) => finish.name(),
            Err(Error::Cancelled) => FinishReason::Cancelled.name(),
            Err(_) => "error",
        };
        span.record("finish_reason", name);
        finish
    }

    /// Leaves the hidden state of the prompt's last token, the only one whose logits are asked for.
    fn prefill(&mut self, prompt: EmbeddedPrompt, waiting: &Waiting) -> Result<(), Error> {
        let span = telemetry::prefill(prompt.tokens.len());
        let _entered = span.enter();
        let begun = Instant::now();
        span.record("chunks", prompt.chunks.len());
        for chunk in prompt.chunks {
            if waiting.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            forward(
                self.model,
                &chunk,
                &mut self.cache,
                &mut self.hidden,
                waiting,
            )?;
        }
        span.record("seconds", begun.elapsed().as_secs_f64());
        let width = self.model.layers.decoder().config().hidden_size;
        let Some(last) = self.hidden.rchunks_exact(width).next() else {
            return Err(Error::Request {
                parameter: "prompt",
                message: "prompt must have at least one token, found none".to_owned(),
            });
        };
        // A copy, so that the prompt's buffer is let go.
        self.hidden = last.to_vec();
        Ok(())
    }

    fn decode(
        &mut self,
        waiting: &Waiting,
        sink: &mut dyn TokenSink,
    ) -> Result<FinishReason, Error> {
        let model = self.model;
        let mut logits = first_logits(model, &self.hidden, waiting)?;
        let head = waiting.wait(model.head.get())?;
        loop {
            if waiting.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            sink.logits(&logits)?;
            let chosen = self.sampler.choose(&logits)?;
            self.first_token.get_or_insert_with(Instant::now);
            model.traffic.milestones.first_token();
            let forced = self
                .options
                .forced
                .as_ref()
                .and_then(|forced| forced.get(self.tokens.len()));
            let fed = forced.copied().unwrap_or(chosen);
            self.tokens.push(chosen);
            if self.ends(fed, sink)? {
                return Ok(FinishReason::Stop);
            }
            if self.tokens.len() == self.steps {
                return Ok(FinishReason::Length);
            }
            let row = next_row(model, fed, waiting)?;
            self.approximated_rows += u64::from(row.is_approximated());
            let rows = std::slice::from_ref(&row);
            forward(model, rows, &mut self.cache, &mut self.hidden, waiting)?;
            head.logits_into(&self.hidden, &mut logits)?;
        }
    }

    /// Shows what `token` adds; whether the answer ends with it.
    fn ends(&mut self, token: u32, sink: &mut dyn TokenSink) -> Result<bool, Error> {
        let stops = self.options.end_of_sequence == EndOfSequence::Stops;
        if stops && self.model.language.eos.contains(&token) {
            return Ok(true);
        }
        let Some(piece) = self.characters.push(token) else {
            return Ok(false);
        };
        match self.stop.push(piece) {
            StopOutcome::Continue(text) => show(&text, sink).map(|()| false),
            StopOutcome::Stop(text) => show(&text, sink).map(|()| true),
        }
    }

    /// Gives out the text that waited for the rest of a character or of a stop text. After a stop
    /// text there is none: the answer was cut off there.
    fn flush(&mut self, sink: &mut dyn TokenSink) -> Result<(), Error> {
        if self.stop.stopped() {
            return Ok(());
        }
        if let Some(rest) = self.characters.finish()
            && let StopOutcome::Stop(text) = self.stop.push(rest)
        {
            return show(&text, sink);
        }
        show(&self.stop.finish(), sink)
    }
}

/// The row of a token that is fed back. Most come from a matrix that is at hand, and then nothing is
/// waited for.
fn next_row(model: &Model, id: u32, waiting: &Waiting) -> Result<HeldRow, Error> {
    let (embedding, traffic) = (&model.embedding, &model.traffic);
    if let Some(row) = embedding.row_at_hand(id, Phase::Decode, traffic)? {
        return Ok(row);
    }
    let rows = waiting.wait(embedding.rows(&[id], Phase::Decode, traffic))?;
    rows.into_iter().next().ok_or(Error::Lost {
        what: "the row of a token",
    })
}

fn show(text: &str, sink: &mut dyn TokenSink) -> Result<(), Error> {
    if text.is_empty() {
        Ok(())
    } else {
        sink.text(text)
    }
}
