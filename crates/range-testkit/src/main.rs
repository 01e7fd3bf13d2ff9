//! The command line of the test kit: `range-testkit link`. Prints the bound address as one line on
//! stdout, then runs until it is interrupted.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use range_testkit::{Link, LinkOptions};

/// Network conditions for tests.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A TCP proxy with a round trip time and a rate.
    Link(LinkArgs),
}

#[derive(Debug, Args)]
struct LinkArgs {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address connections lead to.
    #[arg(long, value_name = "ADDR")]
    upstream: SocketAddr,
    /// Round trip time in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rtt_ms: u64,
    /// Bytes per second in each direction, all connections together; no limit if absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rate_bytes_per_s: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Link(args) = Cli::parse().command;
    match run_link(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nowhere is left to report a closed stderr to.
            let _ = writeln!(std::io::stderr(), "range-testkit link: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_link(args: &LinkArgs) -> std::io::Result<()> {
    let link = Link::start(LinkOptions {
        listen: args.listen,
        upstream: args.upstream,
        rtt: Duration::from_millis(args.rtt_ms),
        rate_bytes_per_s: args.rate_bytes_per_s,
    })
    .await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", link.address())?;
    stdout.flush()?;
    tokio::signal::ctrl_c().await
}
