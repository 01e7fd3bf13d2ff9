//! The `fat-origin` program: flags in, exit code out. Everything else is in the library.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use fat_origin::cli::Cli;
use fat_origin::command;
use tracing_subscriber::EnvFilter;

/// The client of object stores tells every retry; what they come to is in our own error.
const FILTER: &str = "info,object_store=warn";

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
            let _ = writeln!(std::io::stderr(), "fat-origin: {error:#}");
            command::exit_code(&error)
        }
    }
}
