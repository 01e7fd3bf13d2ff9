//! The `fat-origin` program: flags in, exit code out. Everything else is in the library.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use fat_origin::cli::Cli;
use fat_origin::command;
use tracing_subscriber::EnvFilter;

/// The client of object stores tells every retry; what they come to is in our own error.
const FILTER: &str = "info,object_store=warn";

/// Characters of an error's line; what is longer was not written for people.
const SHOWN_CHARS: usize = 2000;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(FILTER));
    let colours = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .init();
    match command::execute(cli).await {
        Ok(code) => code,
        Err(error) if command::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr leaves nobody to tell.
            let _ = writeln!(
                std::io::stderr(),
                "fat-origin: {}",
                shown(&format!("{error:#}"))
            );
            command::exit_code(&error)
        }
    }
}

/// `text` with its control characters escaped, so that what a server says cannot steer a terminal, and
/// cut where it is too long to be read.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(SHOWN_CHARS));
    for (at, character) in text.chars().enumerate() {
        if at == SHOWN_CHARS {
            shown.push('\u{2026}');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_a_server_says_does_not_steer_a_terminal() {
        assert_eq!(shown("\u{1b}[2J\né"), r"\u{1b}[2J\né");
        assert_eq!(shown(&"é".repeat(2001)), "é".repeat(2000) + "…");
    }
}
