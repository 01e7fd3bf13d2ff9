//! What each command does, from parsed flags to an exit code. One file a command; here is what
//! they share.

mod perplexity;
mod prefetch;
mod run;
mod serve;
mod tokenize;

use crate::cli::{Cli, Command};
use crate::config::{Config, check_listen};
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::model::Model;
use crate::summary::{EmbeddingKind, RunFacts, Summary};
use crate::telemetry;
use crate::traffic::Traffic;
use crate::user_file;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Most text that is read from stdin: no context takes more.
const STDIN_BYTES: u64 = 16 << 20;

/// What every command has.
#[derive(Debug)]
pub struct Station {
    config: Config,
    traffic: Arc<Traffic>,
    interrupt: Interrupt,
    started: Instant,
    summary_file: Option<PathBuf>,
}

/// Carries out what `cli` asks; `started` is when the process began.
pub async fn execute(cli: Cli, started: Instant) -> ExitCode {
    // Before anything is fetched: a download must be interruptible.
    let outcome = match Interrupt::install() {
        Ok(interrupt) => {
            let outcome = dispatch(cli, interrupt.clone(), started).await;
            if let Some(code) = interrupt.exit_code() {
                return ExitCode::from(code);
            }
            outcome
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            telemetry::say(&format!("fat-station: {}", error.line()));
            error.exit_code()
        }
    }
}

async fn dispatch(cli: Cli, interrupt: Interrupt, started: Instant) -> Result<(), Error> {
    telemetry::install(cli.station.log_format, &cli.station.log)?;
    let config = Config::resolve(&cli.station, |name| std::env::var_os(name))?;
    let station = Station {
        config,
        traffic: Arc::new(Traffic::default()),
        interrupt,
        started,
        summary_file: cli.station.summary_file.clone(),
    };
    match cli.command {
        Some(Command::Run(args)) => run::run(&station, &args).await,
        Some(Command::Perplexity(args)) => perplexity::perplexity(&station, &args).await,
        Some(Command::Tokenize(args)) => tokenize::tokenize(&station, &args).await,
        Some(Command::Prefetch(args)) => prefetch::prefetch(&station, &args).await,
        None => serve::serve(&station, check_listen(&cli.server)?, cli.server.queue).await,
    }
}

/// Tokens of a run, for its summary.
#[derive(Debug, Clone, Copy, Default)]
struct RunTokens {
    prompt: u64,
    generated: u64,
    first: Option<Instant>,
}

impl Station {
    /// `work`, unless a signal comes first.
    async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.interrupt.token().cancelled() => Err(Error::Cancelled),
            outcome = work => outcome,
        }
    }

    /// Ends a run: the summary on stderr, and in the file that was asked for. `model` is absent
    /// where the run ended before there was one.
    fn summarise(&self, model: Option<&Model>, tokens: RunTokens) -> Result<(), Error> {
        let mut facts = RunFacts {
            model: self
                .config
                .knot
                .as_ref()
                .map(crate::locator::Locator::stem)
                .unwrap_or_default(),
            prompt_tokens: tokens.prompt,
            generated_tokens: tokens.generated,
            first_token: tokens.first.map(|first| first.duration_since(self.started)),
            total: self.started.elapsed(),
            start: self.traffic.milestones.since(self.started),
            ..RunFacts::default()
        };
        if self.config.rows.is_some() || self.config.hub.rows.is_some() {
            facts.source = EmbeddingKind::Columnar;
        }
        if let Some(model) = model {
            facts.model.clone_from(&model.name);
            facts.cached_rows = model.embedding.cached_rows();
            facts.full_table_bytes = model.full_table_bytes;
            facts.resolutions.clone_from(&model.resolutions);
            let way = model.resolutions.first().map(|resolution| resolution.way);
            facts.source = way.map(EmbeddingKind::from).unwrap_or_default();
        }
        let summary = Summary::new(facts, &self.traffic);
        // A run that failed before anything moved has its error to say, and no table of zeros.
        if model.is_some() || summary.total_received_bytes > 0 {
            telemetry::say(&summary.to_string());
        }
        match &self.summary_file {
            Some(path) => write_json(path, &summary),
            None => Ok(()),
        }
    }
}

/// Writes `value` and a line end to `path`.
fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(std::io::Error::other);
    text.and_then(|text| std::fs::write(path, text + "\n"))
        .map_err(Error::file(path))
}

/// The text itself, or stdin for `-`. Called before anything is fetched, off the runtime: whoever
/// writes may take their time, and a signal ends the wait.
async fn text_or_stdin(station: &Station, text: &str) -> Result<String, Error> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let read = async {
        let read = tokio::task::spawn_blocking(|| bounded_text(std::io::stdin().lock())).await;
        read.map_err(|_panicked| Error::Lost { what: "stdin" })?
    };
    station.unless_interrupted(read).await
}

/// UTF-8 text of at most [`STDIN_BYTES`].
fn bounded_text(source: impl std::io::Read) -> Result<String, Error> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = source.take(STDIN_BYTES + 1).read_to_string(&mut text);
    if text.len() as u64 > STDIN_BYTES {
        return Err(Error::config(format!(
            "the text on stdin has more than {STDIN_BYTES} bytes"
        )));
    }
    read.map_err(Error::file(Path::new("stdin")))?;
    Ok(text)
}

/// Writes a JSON value and a line end to stdout.
fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string(value).map_err(|error| Error::Output(error.into()))?;
    print_line(&text)
}

/// Writes a text and a line end to stdout.
fn print_line(text: &str) -> Result<(), Error> {
    use std::io::Write as _;
    writeln!(std::io::stdout().lock(), "{text}").map_err(Error::Output)
}

/// Token ids from a JSON array in the file that `flag` names, at least one.
fn token_ids(flag: &str, path: &Path) -> Result<Vec<u32>, Error> {
    let text = user_file::read_text(flag, path, user_file::MAX_BYTES)?;
    let ids: Vec<u32> = serde_json::from_str(&text).map_err(|error| {
        Error::config(format!(
            "{}: expected a JSON array of token ids: {error}",
            path.display()
        ))
    })?;
    if ids.is_empty() {
        return Err(Error::config(format!(
            "{}: the array of token ids is empty",
            path.display()
        )));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_on_stdin_is_bounded() {
        assert_eq!(bounded_text("é".as_bytes()).unwrap(), "é");
        assert_eq!(
            bounded_text(std::io::repeat(b'a')).unwrap_err().to_string(),
            "the text on stdin has more than 16777216 bytes"
        );
        assert!(matches!(bounded_text(&[0xFF][..]), Err(Error::File { .. })));
    }
}
