//! `fat-origin publish`: flags to options, the report to stdout.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use super::print_json;
use crate::Error;
use crate::cli::PublishArgs;
use crate::pack::Stop;
use crate::publish::{Destination, ObjectReport, Outcome, PublishOptions, PublishReport, publish};

/// Publishes until it is done or `cancelled`; what was sent by then stays and is not sent again.
pub(super) async fn run(
    args: PublishArgs,
    stop: Stop,
    cancelled: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let destination = Destination::open(&args.destination, |name| std::env::var(name).ok())?;
    let options = PublishOptions {
        knot: args.knot,
        rows: args.rows,
        sidecar: args.sidecar,
        name: args.name,
        manifest: args.manifest,
        public_url: args.public_url,
        part_bytes: args.part_bytes,
        read_back: args.read_back,
        seed: args.seed.unwrap_or_else(fresh_seed),
        stop,
    };
    let done = tokio::select! {
        done = publish(&options, &destination) => done,
        () = cancelled.cancelled() => Err(Error::Interrupted),
    };
    if matches!(done, Err(Error::Interrupted)) {
        tracing::info!("what was published before is whole; the same command goes on from here");
    }
    let report = done?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Other rows each time: a fault that one run's rows miss is found by another's.
fn fresh_seed() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| {
        u64::from(elapsed.subsec_nanos()) ^ elapsed.as_secs()
    })
}

fn print(report: &PublishReport) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for object in &report.objects {
        writeln!(out, "{}", line(object))?;
    }
    let back = &report.read_back;
    writeln!(
        out,
        "read back through the {}: the knot's front ({} bytes), {} ranges of its blocks and {} rows, \
         all as sent (seed {})",
        back.through, back.front_bytes, back.block_ranges, back.rows, back.seed
    )?;
    if back.whole_objects > 0 {
        writeln!(
            out,
            "read back every byte of {} objects, all as sent",
            back.whole_objects
        )?;
    }
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    if report.abandoned_uploads > 0 {
        writeln!(
            out,
            "abandoned {} uploads that nobody needs any more",
            report.abandoned_uploads
        )?;
    }
    let manifest = report
        .manifest_url
        .clone()
        .unwrap_or_else(|| format!("{}/{}", report.destination, report.manifest));
    let state = if report.manifest_written {
        "written"
    } else {
        "unchanged"
    };
    writeln!(
        out,
        "{manifest}: {state}, {} bytes sent in all",
        report.sent_bytes
    )?;
    Ok(())
}

fn line(object: &ObjectReport) -> String {
    let ObjectReport {
        object: name,
        bytes,
        sent_bytes,
        sent_parts,
        skipped_parts,
        ..
    } = object;
    let what = match object.outcome {
        Outcome::Present => "is there, nothing sent".to_owned(),
        Outcome::Resumed => format!(
            "resumed, {skipped_parts} parts were there, {sent_parts} sent ({sent_bytes} bytes)"
        ),
        Outcome::Replaced => format!("replaced, sent in {sent_parts}"),
        _ => format!("sent in {sent_parts}"),
    };
    format!("{name}: {bytes} bytes, {what}")
}
