//! `run`: one prompt, its answer on stdout as it comes.

use super::{RunTokens, Station, text_or_stdin, token_ids, write_json};
use crate::cli::{RunArgs, SamplingArgs};
use crate::engine::Waiting;
use crate::engine::sampler::SamplingOptions;
use crate::engine::session::{
    EndOfSequence, FinishReason, GenerateOptions, Generation, TokenSink, generate,
};
use crate::error::Error;
use crate::language::PromptForm;
use crate::model::Model;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Length of an answer that nobody limited.
const DEFAULT_MAX_TOKENS: usize = 256;

pub(super) async fn run(station: &Station, args: &RunArgs) -> Result<(), Error> {
    let options = options(args)?;
    let mut output = Output::open(args.logits_file.clone())?;
    let form = if args.raw {
        PromptForm::Raw
    } else {
        PromptForm::Chat
    };
    let text = text_or_stdin(station, &args.prompt).await?;
    // The layers are on their way meanwhile.
    let prompt = move |language: &crate::language::Language| {
        tokio::task::block_in_place(|| language.prompt(&text, form))
    };
    let loaded = Model::load(&station.config, Arc::clone(&station.traffic), prompt);
    let (model, prompt) = match station.unless_interrupted(Box::pin(loaded)).await {
        Ok(loaded) => loaded,
        Err(error) => {
            station.summarise(None, RunTokens::default())?;
            return Err(error);
        }
    };
    let prompt_tokens = prompt.tokens.len() as u64;
    let waiting = Waiting {
        runtime: Handle::current(),
        cancel: station.interrupt.token().clone(),
    };
    let model_of_thread = Arc::clone(&model);
    let work = move || {
        let outcome = generate(&model_of_thread, prompt, &options, &waiting, &mut output);
        output.close().and(outcome)
    };
    let outcome = tokio::task::spawn_blocking(work)
        .await
        .map_err(|_panicked| Error::Lost {
            what: "the computation",
        })?;
    let tokens = match &outcome {
        Ok(generation) => RunTokens {
            prompt: prompt_tokens,
            generated: generation.tokens.len() as u64,
            first: generation.first_token,
        },
        Err(_) => RunTokens {
            prompt: prompt_tokens,
            ..RunTokens::default()
        },
    };
    model.embedding.settle().await;
    station.summarise(Some(&model), tokens)?;
    report(&outcome?, args)
}

fn report(generation: &Generation, args: &RunArgs) -> Result<(), Error> {
    if let Some(path) = &args.tokens_file {
        write_json(path, &generation.tokens)?;
    }
    if generation.finish == FinishReason::Cancelled {
        Err(Error::Cancelled)
    } else {
        Ok(())
    }
}

fn options(args: &RunArgs) -> Result<GenerateOptions, Error> {
    let forced = match &args.force_continuation {
        None => None,
        Some(path) => Some(token_ids("--force-continuation", path)?),
    };
    let length = forced.as_ref().map_or(DEFAULT_MAX_TOKENS, Vec::len);
    let options = GenerateOptions {
        max_tokens: args.max_tokens.unwrap_or(length),
        sampling: sampling(&args.sampling),
        stop: args.stop.clone(),
        end_of_sequence: if args.ignore_eos {
            EndOfSequence::Ignored
        } else {
            EndOfSequence::Stops
        },
        forced,
    };
    if options.max_tokens == 0 {
        return Err(Error::config("--max-tokens must be at least 1, found 0"));
    }
    options.sampling.validate()?;
    Ok(options)
}

fn sampling(args: &SamplingArgs) -> SamplingOptions {
    SamplingOptions {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
    }
}

/// Text to stdout, logits to a file. Stdout is flushed at every piece: somebody is reading along.
struct Output {
    logits: Option<(PathBuf, BufWriter<File>)>,
    written: bool,
}

impl Output {
    fn open(logits_file: Option<PathBuf>) -> Result<Self, Error> {
        let logits = match logits_file {
            None => None,
            Some(path) => {
                let file = File::create(&path).map_err(Error::file(&path))?;
                Some((path, BufWriter::new(file)))
            }
        };
        Ok(Self {
            logits,
            written: false,
        })
    }

    /// Ends the text's last line and flushes the logits.
    fn close(mut self) -> Result<(), Error> {
        if self.written {
            let mut stdout = std::io::stdout().lock();
            stdout
                .write_all(b"\n")
                .and_then(|()| stdout.flush())
                .map_err(Error::Output)?;
        }
        match &mut self.logits {
            Some((path, file)) => file.flush().map_err(Error::file(path)),
            None => Ok(()),
        }
    }
}

impl TokenSink for Output {
    fn text(&mut self, piece: &str) -> Result<(), Error> {
        self.written = true;
        let mut stdout = std::io::stdout().lock();
        stdout
            .write_all(piece.as_bytes())
            .and_then(|()| stdout.flush())
            .map_err(Error::Output)
    }

    fn logits(&mut self, logits: &[f32]) -> Result<(), Error> {
        let Some((path, file)) = &mut self.logits else {
            return Ok(());
        };
        let bytes: Vec<u8> = logits
            .iter()
            .flat_map(|logit| logit.to_le_bytes())
            .collect();
        file.write_all(&bytes).map_err(Error::file(path))
    }
}
