//! The command line of the test kit: `range-testkit link` and `range-testkit faults`. Prints the bound
//! address as one line on stdout, then runs until it is interrupted.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use range_testkit::{FaultServer, Link, LinkOptions, Object, Script, Several, mix};

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
    /// A range server that serves one file and misbehaves by seed.
    Faults(FaultArgs),
}

#[derive(Debug, Args)]
struct FaultArgs {
    /// The file to serve, at `/rows`; it is held in memory.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Bytes of one row: where faults cut.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    row_bytes: u64,
    /// Answers a request for several ranges with the first of them, as some object stores do; without it with all.
    #[arg(long)]
    single_ranges: bool,
    /// Seed of the script.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Requests of a million that meet a fault, of every kind there is.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    per_million: u32,
    /// A line of JSON for each fault: `arrived_us`, `fault`, `range`, `status`.
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
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
    let outcome = match Cli::parse().command {
        Command::Link(args) => run_link(&args).await,
        Command::Faults(args) => run_faults(&args).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nowhere is left to report a closed stderr to.
            let _ = writeln!(std::io::stderr(), "range-testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How often the log is written out.
const LOG_PAUSE: Duration = Duration::from_millis(200);

async fn run_faults(args: &FaultArgs) -> std::io::Result<()> {
    let object = Object::bytes(std::fs::read(&args.file)?);
    let script = Script::weighted(
        args.seed,
        args.per_million,
        mix::every_kind("/rows", args.row_bytes),
    );
    let server = FaultServer::start("/rows", object.clone(), script).await?;
    server.put("/moved/rows", object);
    server.answer_several(if args.single_ranges {
        Several::FirstOnly
    } else {
        Several::honest()
    });
    let mut log = BufWriter::new(File::create(&args.log)?);
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", server.address())?;
    stdout.flush()?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let over = tokio::select! {
            _ = &mut interrupted => true,
            () = tokio::time::sleep(LOG_PAUSE) => false,
        };
        for entry in server.log().take_finished() {
            if entry.fault == "none" {
                continue;
            }
            let range = entry.range.unwrap_or_default();
            if entry.fault == "several" && !range.contains(',') {
                // Nothing: it concerns several ranges, and one was asked.
                continue;
            }
            let status = entry.status.unwrap_or(0);
            writeln!(
                log,
                "{{\"arrived_us\":{},\"fault\":\"{}\",\"range\":\"{range}\",\"status\":{status}}}",
                entry.arrived_us, entry.fault
            )?;
        }
        log.flush()?;
        if over {
            return Ok(());
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
