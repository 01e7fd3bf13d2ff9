//! What each command does, from parsed flags to an exit code: results to stdout, everything else to
//! stderr. The work itself is in the modules of the library.

mod publish;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::cli::{Cli, Command, InspectArgs, PackArgs, ServeArgs, VerifyArgs};
use crate::inspect::inspect;
use crate::pack::{Matrix, MixReport, PackOptions, PackReport, Stop, pack};
use crate::publish::StoreFault;
use crate::serve::{ServeOptions, Server, TlsFiles};
use crate::tokenize::{self, TokenizeArgs};
use crate::verify::{VerifyReport, verify};

/// A checkpoint, knot or option that cannot work.
const CONFIG: u8 = 64;
/// A destination that was not reached, or has no such bucket or object.
const UNREACHABLE: u8 = 65;
/// Bytes that are not what the knot says.
const INTEGRITY: u8 = 66;
/// Credentials that are missing or refused.
const AUTHORISATION: u8 = 67;

/// Runs a command to its end. Handlers of SIGINT and SIGTERM are in place before the work begins.
///
/// # Errors
/// What ended the command; [`exit_code`] gives its code.
pub async fn execute(cli: Cli) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::install().context("cannot install signal handlers")?;
    match cli.command {
        Command::Serve(args) => serve_command(args, &mut signals).await,
        Command::Pack(args) => {
            let stop = Stop::default();
            let asked = stop.clone();
            // The first signal asks the packer to clean up, the second ends the process at once.
            let work = blocking(move || pack_command(&args, stop));
            signals.around(work, move || asked.set()).await
        }
        Command::Inspect(args) => {
            signals
                .around(blocking(move || inspect_command(&args)), || {})
                .await
        }
        Command::Verify(args) => {
            signals
                .around(blocking(move || verify_command(&args)), || {})
                .await
        }
        Command::Publish(args) => {
            let stop = Stop::default();
            let cancelled = CancellationToken::new();
            let (asked, cancel) = (stop.clone(), cancelled.clone());
            let work = publish::run(args, stop, cancelled);
            let asked = move || {
                asked.set();
                cancel.cancel();
            };
            signals.around(work, asked).await
        }
        Command::Tokenize(args) => {
            signals
                .around(blocking(move || tokenize_command(&args)), || {})
                .await
        }
    }
}

/// Whether whoever read our output has gone, as `| head` does: nothing is wrong, and nobody is told.
#[must_use]
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(closed)
        || error
            .downcast_ref::<serde_json::Error>()
            .is_some_and(|error| error.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
}

/// The exit code of a failure.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    let code = match error.downcast_ref::<Error>() {
        Some(Error::Io { .. } | Error::Listen { .. } | Error::Interrupted | Error::Busy { .. })
        | None => return ExitCode::FAILURE,
        Some(Error::Store { fault, .. }) => match fault {
            StoreFault::Unreachable | StoreFault::Missing => UNREACHABLE,
            StoreFault::Credentials => AUTHORISATION,
            StoreFault::Settings => CONFIG,
            _ => return ExitCode::FAILURE,
        },
        Some(Error::ReadBackFailed { source }) => return transport_code(source.kind()),
        Some(Error::RowsBack { source, .. }) => return transport_code(source.kind()),
        Some(Error::ReadBack { .. } | Error::Difference { .. }) => INTEGRITY,
        Some(Error::Knot { source, .. }) if source.kind() == gkq_v2::ErrorKind::Corrupt => {
            INTEGRITY
        }
        Some(_) => CONFIG,
    };
    ExitCode::from(code)
}

fn transport_code(kind: helix_transport::ErrorKind) -> ExitCode {
    use helix_transport::ErrorKind;
    ExitCode::from(match kind {
        ErrorKind::Transient | ErrorKind::NotFound => UNREACHABLE,
        ErrorKind::Changed | ErrorKind::Corrupt => INTEGRITY,
        ErrorKind::Auth => AUTHORISATION,
        ErrorKind::Unsupported | ErrorKind::Config => CONFIG,
        _ => return ExitCode::FAILURE,
    })
}

fn tokenize_command(args: &TokenizeArgs) -> anyhow::Result<ExitCode> {
    let line = tokenize::run(args)?;
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs work that blocks on a thread of its own.
async fn blocking(
    work: impl FnOnce() -> anyhow::Result<ExitCode> + Send + 'static,
) -> anyhow::Result<ExitCode> {
    tokio::task::spawn_blocking(work)
        .await
        .context("the work ended badly")?
}

/// The two signals that end a process politely.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one; returns the exit code that stands for it.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }

    /// Waits for the work. After a first signal `on_signal` is called and the work may still end; a
    /// second one does not wait.
    async fn around(
        &mut self,
        work: impl Future<Output = anyhow::Result<ExitCode>>,
        on_signal: impl FnOnce(),
    ) -> anyhow::Result<ExitCode> {
        tokio::pin!(work);
        let code = tokio::select! {
            done = &mut work => return done,
            code = self.next() => code,
        };
        on_signal();
        tokio::select! {
            done = work => {
                if let Err(error) = done {
                    tracing::info!("{error:#}");
                }
            }
            _ = self.next() => std::process::exit(i32::from(code)),
        }
        Ok(ExitCode::from(code))
    }
}

fn pack_command(args: &PackArgs, stop: Stop) -> anyhow::Result<ExitCode> {
    let options = PackOptions {
        out: args.out.clone(),
        name: args.name.clone(),
        embed_dtype: args.embed_dtype,
        embed_mix: args.embed_mix.clone(),
        block_dtype: args.block_dtype,
        spectral_tolerance: args.spectral_tolerance,
        matrix: if args.without_matrix {
            Matrix::External
        } else {
            Matrix::Inside
        },
        hot_ids: args.hot_ids.clone(),
        embed_sketch: args.embed_sketch,
        stop,
    };
    let report = pack(&args.source, &options)?;
    if args.json {
        print_json(&report)?;
    } else {
        print_pack(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_pack(report: &PackReport) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if !report.spectral.is_empty() {
        writeln!(
            out,
            "{:<52} {:>14} {:>6} {:>10} {:>12} {:>12}",
            "tensor", "shape", "rank", "error", "dense", "spectral"
        )?;
    }
    for line in &report.spectral {
        let [rows, cols] = line.shape;
        let rank = line.rank.map_or("-".to_owned(), |rank| rank.to_string());
        let error = line
            .error
            .map_or("-".to_owned(), |error| format!("{error:.3e}"));
        let bytes = line
            .spectral_bytes
            .map_or("kept dense".to_owned(), |bytes| bytes.to_string());
        let shape = format!("{rows} x {cols}");
        writeln!(
            out,
            "{:<52} {shape:>14} {rank:>6} {error:>10} {:>12} {bytes:>12}",
            line.tensor, line.dense_bytes
        )?;
    }
    writeln!(
        out,
        "{}: {} bytes, {} blocks, {}",
        report.knot.display(),
        report.knot_bytes,
        report.blocks,
        tied(report)
    )?;
    writeln!(
        out,
        "{}: {} bytes, {} rows of {}{} bytes ({})",
        report.rows.display(),
        report.rows_bytes,
        report.row_count,
        match report.mix {
            Some(_) => "several kinds, widened to ",
            None => "",
        },
        report.row_bytes,
        report.row_dtype
    )?;
    if let Some(mix) = &report.mix {
        print_mix(&mut out, mix)?;
    }
    writeln!(
        out,
        "tokenizer {} bytes, rows blake3 {}",
        report.tokenizer_bytes, report.rows_blake3
    )?;
    if report.embed_error > 0.0 {
        writeln!(
            out,
            "largest error of the converted rows {:.3e}",
            report.embed_error
        )?;
    }
    if let Some(sketch) = &report.sketch {
        writeln!(out, "{sketch}")?;
    }
    Ok(())
}

fn print_mix(out: &mut impl Write, mix: &MixReport) -> io::Result<()> {
    writeln!(
        out,
        "{}: {} bytes, {} rows converted, largest error {:.3e}, relative error {:.3e}",
        mix.sidecar.display(),
        mix.sidecar_bytes,
        mix.converted_rows,
        mix.largest_error,
        mix.relative_error
    )?;
    for kind in &mix.kinds {
        writeln!(out, "  {kind}")?;
    }
    Ok(())
}

fn tied(report: &PackReport) -> &'static str {
    if report.tied {
        "tied head"
    } else {
        "head of its own"
    }
}

fn inspect_command(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let summary = inspect(&args.knot)?;
    if args.json {
        print_json(&summary)?;
    } else {
        write!(io::stdout().lock(), "{summary}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn verify_command(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let report = verify(&args.knot, args.rows.as_deref())?;
    if args.json {
        print_json(&report)?;
    } else {
        print_verify(&report)?;
    }
    Ok(if report.differences.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(INTEGRITY)
    })
}

fn print_verify(report: &VerifyReport) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for difference in &report.differences {
        writeln!(
            out,
            "{}: {} differs at offset {}: expected {}, found {}",
            difference.file.display(),
            difference.part,
            difference.offset,
            difference.expected,
            difference.found
        )?;
    }
    for part in &report.unchecked {
        writeln!(
            out,
            "{}: {part} unchecked: they are not in the knot, and no --rows was given",
            report.knot.display()
        )?;
    }
    let verdict = match report.differences.len() {
        0 if report.unchecked.is_empty() => "intact".to_owned(),
        0 => "no difference in what was checked".to_owned(),
        1 => "1 difference".to_owned(),
        many => format!("{many} differences"),
    };
    let (payloads, bytes, trees) = (report.payloads, report.bytes, report.trees);
    writeln!(
        out,
        "{verdict}: {bytes} bytes in payloads: {payloads}, row trees: {trees}"
    )?;
    Ok(())
}

async fn serve_command(args: ServeArgs, signals: &mut Signals) -> anyhow::Result<ExitCode> {
    if !args.listen.ip().is_loopback() && !args.public {
        let reason = format!(
            "{} is not a loopback address; --public allows it",
            args.listen
        );
        return Err(Error::Option {
            option: "--listen",
            reason,
        }
        .into());
    }
    let options = ServeOptions {
        listen: args.listen,
        access_log: args.access_log,
        tls: args
            .tls_cert
            .zip(args.tls_key)
            .map(|(cert, key)| TlsFiles { cert, key }),
        ..ServeOptions::new(args.dir)
    };
    let server = Server::start(options).await?;
    let mut out = io::stdout();
    writeln!(out, "listening on {}", server.base_url())?;
    out.flush()?;
    let code = signals.next().await;
    tokio::select! {
        () = server.shutdown() => {}
        _ = signals.next() => {}
    }
    Ok(ExitCode::from(code))
}

fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}
