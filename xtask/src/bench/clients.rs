//! Our transport beside `object_store` and curl: the same rows over the same link, in turns. `clients`, an example of
//! the origin's crate, reads and counts; the origin is a process of its own.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::median::median;
use crate::models::Package;
use crate::origin::Origin;
use crate::repository;
use crate::tokenizer_ids::ids_of;
use crate::workload::dir;

/// Flags of the question.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Round trip of the link, in milliseconds.
    #[arg(long, default_value_t = 40)]
    rtt_ms: u32,
    /// Distinct rows of a batch.
    #[arg(long, default_value_t = 109)]
    rows: usize,
    /// Rounds that are timed.
    #[arg(long, default_value_t = 11)]
    rounds: u32,
}

#[derive(Deserialize)]
struct Measured {
    rows: u64,
    useful_bytes: u64,
    clients: Vec<Client>,
}

#[derive(Deserialize)]
struct Client {
    name: String,
    role: String,
    protocol: String,
    took_s: Vec<f64>,
    wire_bytes: Vec<f64>,
    body_bytes: u64,
    requests: u64,
    waves: u64,
}

/// Ids a prime apart: hardly two rows lie near enough to be merged.
const STRIDE: u64 = 7919;

/// What is read of `fat-origin inspect --json`.
#[derive(Deserialize)]
struct Inspected {
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    columnar: Option<Columnar>,
}

#[derive(Deserialize)]
struct Columnar {
    rows: u64,
    row_bytes: u32,
}

/// Scattered rows and those of a natural text, of both models.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let models = super::models()?;
    let mut cargo = repository::cargo();
    let build = [
        "build",
        "-p",
        "fat-origin",
        "--example",
        "clients",
        "--quiet",
    ];
    repository::run(cargo.args(build))?;
    println!(
        "| model | ids | rows | client | requests | waves | bytes on the wire | over the rows | median ms |\n|---|---|---|---|---|---|---|---|---|"
    );
    for (model, package) in models.iter().zip(super::MODELS) {
        let origin = Origin::start(&model.packed.dir)?;
        let table = columnar(&model.packed.knot())?;
        let scattered = (1..=arguments.rows as u64).map(|index| index * STRIDE % table.rows);
        for (kind, ids) in [
            ("scattered", scattered.collect()),
            ("natural", natural(package, arguments.rows)?),
        ] {
            let file = repository::models_dir().join("clients-ids.json");
            std::fs::write(&file, serde_json::to_vec::<Vec<u64>>(&ids)?)?;
            let rows_file = model.packed.rows();
            let rows_name = rows_file.file_name().context("the row file has no name")?;
            let mut clients = repository::example("clients");
            clients.args(["--upstream", &origin.address().to_string()]);
            clients.args(["--path", &format!("/{}", rows_name.to_string_lossy())]);
            clients.args(["--row-bytes", &table.row_bytes.to_string()]);
            clients.args(["--table-rows", &table.rows.to_string()]);
            clients.args(["--rtt-ms", &arguments.rtt_ms.to_string()]);
            clients.args(["--rounds", &arguments.rounds.to_string()]);
            clients.arg("--ids").arg(&file);
            let printed = repository::output(&mut clients)?;
            let measured: Measured =
                serde_json::from_slice(&printed).context("clients printed something else")?;
            print(&model.packed.name, kind, &measured)?;
            check(&measured)?;
        }
    }
    Ok(())
}

/// The distinct rows of a text's first tokens.
fn natural(package: Package, rows: usize) -> Result<Vec<u64>> {
    let mut distinct = std::collections::BTreeSet::new();
    for id in ids_of(&package.fetch()?, &dir().join("long_context.txt"))? {
        if distinct.len() == rows {
            break;
        }
        distinct.insert(u64::from(id));
    }
    Ok(distinct.into_iter().collect())
}

fn columnar(knot: &std::path::Path) -> Result<Columnar> {
    let mut inspect = repository::binary("fat-origin");
    let printed = repository::output(inspect.args(["inspect", "--json"]).arg(knot))?;
    let inspected: Inspected =
        serde_json::from_slice(&printed).context("inspect printed something else")?;
    let mut tables = inspected
        .blocks
        .into_iter()
        .filter_map(|block| block.columnar);
    tables.next().context("the knot has no columnar section")
}

fn print(model: &str, kind: &str, measured: &Measured) -> Result<()> {
    for client in &measured.clients {
        let wire_bytes = median(&client.wire_bytes)?;
        println!(
            "| {model} | {kind} | {} | {}, {} | {} | {} | {wire_bytes:.0} | {:.3} | {:.1} |",
            measured.rows,
            client.name,
            client.protocol,
            client.requests,
            client.waves,
            wire_bytes / measured.useful_bytes as f64,
            median(&client.took_s)? * 1e3,
        );
        ensure!(
            client.body_bytes >= measured.useful_bytes,
            "{}: rows are missing",
            client.name
        );
    }
    Ok(())
}

/// What two clients that send the same requests over HTTP/2 may differ by: when a field is sent anew depends on what
/// else the connections' field tables had to hold.
const LEVEL_PER_MILLE: f64 = 10.0;

/// Ours, as a station reads the same URL (HTTP/1.1), must be ahead of every other client on bytes and on time, over
/// whichever protocol that speaks. Ours over HTTP/2, where a batch is as many requests as anybody's, must be ahead
/// of every client on time and level with whoever speaks it on bytes.
fn check(measured: &Measured) -> Result<()> {
    let of = |role: &'static str| {
        measured
            .clients
            .iter()
            .filter(move |client| client.role == role)
    };
    ensure!(
        of("usual").count() == 2 && of("peer").count() >= 5,
        "clients measured others than the two forms of ours and five peers"
    );
    for ours in of("usual") {
        for peer in of("peer") {
            let (our_bytes, their_bytes) = (median(&ours.wire_bytes)?, median(&peer.wire_bytes)?);
            let (our_s, their_s) = (median(&ours.took_s)?, median(&peer.took_s)?);
            let fewer_bytes = match (ours.protocol.as_str(), peer.protocol.as_str()) {
                ("HTTP/2", "HTTP/2") => our_bytes < their_bytes * (1.0 + LEVEL_PER_MILLE / 1e3),
                ("HTTP/2", _) => true,
                _ => our_bytes < their_bytes,
            };
            ensure!(
                fewer_bytes && our_s < their_s,
                "{} over {} ({our_bytes} bytes, {our_s:.3} s) is not ahead of {} over {} ({their_bytes} bytes, \
                 {their_s:.3} s)",
                ours.name,
                ours.protocol,
                peer.name,
                peer.protocol
            );
        }
    }
    Ok(())
}
