//! Answers: what do the same rows cost over one thin link with our transport, with `object_store` and
//! with curl? `clients --upstream ADDR --path /x.rows --row-bytes N --ids FILE` asks them in turns and
//! prints one JSON object. Bytes are counted by the link, both directions, heads included, and every
//! client's rows are compared with the first one's.
#![allow(clippy::print_stdout, reason = "an example's result goes to stdout")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use columnar_embed::{
    ColumnarEmbedBackend, RowId, RowLayout, RowStoreConfig, StoreMeters, Verification,
};
use helix_transport::{HttpBackend, HttpConfig};
use object_store::http::{HttpBuilder, HttpStore};
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, coalesce_ranges};
use range_testkit::{Link, LinkOptions};
use serde_json::json;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Ranges that `object_store` keeps in flight, a constant of it.
const OBJECT_STORE_PARALLEL: u64 = 10;
/// Transfers that curl runs at once, as many as we open connections.
const CURL_PARALLEL: u64 = 16;

#[derive(Parser)]
struct Arguments {
    /// Address of the origin.
    #[arg(long)]
    upstream: SocketAddr,
    /// Path of the row file there.
    #[arg(long)]
    path: String,
    /// Bytes of a row.
    #[arg(long)]
    row_bytes: u32,
    /// Rows of the file.
    #[arg(long)]
    table_rows: u64,
    /// A JSON list of row ids.
    #[arg(long)]
    ids: PathBuf,
    /// Round trip of the link in milliseconds.
    #[arg(long, default_value_t = 40)]
    rtt_ms: u64,
    /// Rounds, each with every client once.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
}

/// What every client is asked for.
struct Work {
    url: String,
    path: String,
    ids: Vec<u64>,
    row_bytes: u32,
    table_rows: u64,
    scratch: PathBuf,
}

/// What a client is in the comparison.
#[derive(Clone, Copy)]
enum Role {
    /// Ours, as a station reads.
    Usual,
    /// Ours, held back to show what a part of it is worth.
    HeldBack,
    /// Somebody else's.
    Peer,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::HeldBack => "held back",
            Self::Peer => "peer",
        }
    }
}

/// One client: what it is called, and how it reads.
struct Client {
    name: &'static str,
    role: Role,
    protocol: &'static str,
    reader: Reader,
    took_s: Vec<f64>,
    wire_bytes: Vec<u64>,
    body_bytes: u64,
    requests: u64,
    waves: u64,
}

enum Reader {
    Ours(Arc<HttpBackend>),
    ObjectStore { store: HttpStore, gap_bytes: u64 },
    CurlLoop,
    CurlParallel,
}

/// The rows of one batch and what the client says it took.
struct Read {
    rows: Vec<Bytes>,
    /// From the call to the rows: nothing of the comparison's own work is in it.
    took: Duration,
    requests: u64,
    waves: u64,
    body_bytes: u64,
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let scratch = tempfile::tempdir()?;
    let link = Link::start(LinkOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        upstream: arguments.upstream,
        rtt: Duration::from_millis(arguments.rtt_ms),
        rate_bytes_per_s: None,
    })
    .await?;
    let mut ids: Vec<u64> = serde_json::from_slice(&std::fs::read(&arguments.ids)?)?;
    ids.sort_unstable();
    ids.dedup();
    let work = Work {
        url: format!("http://{}{}", link.address(), arguments.path),
        path: arguments.path.trim_start_matches('/').to_owned(),
        ids,
        row_bytes: arguments.row_bytes,
        table_rows: arguments.table_rows,
        scratch: scratch.path().to_owned(),
    };
    let mut clients = clients(&work, &format!("http://{}", link.address()))?;
    let mut expected: Option<Vec<Bytes>> = None;
    // Warm connections, and an origin whose ways are known: two rounds are not counted.
    for round in 0..arguments.rounds + 2 {
        for client in &mut clients {
            let before = link.up_bytes() + link.down_bytes();
            let read = client.read(&work).await?;
            let wire_bytes = link.up_bytes() + link.down_bytes() - before;
            match &expected {
                None => expected = Some(read.rows),
                Some(expected) if *expected == read.rows => {}
                Some(_) => return Err(format!("{}: other rows", client.name).into()),
            }
            if round >= 2 {
                client.took_s.push(read.took.as_secs_f64());
                client.wire_bytes.push(wire_bytes);
            }
            client.requests = read.requests;
            client.waves = read.waves;
            client.body_bytes = read.body_bytes;
        }
    }
    let useful_bytes = work.ids.len() as u64 * u64::from(work.row_bytes);
    let results: Vec<_> = clients
        .iter()
        .map(|client| {
            json!({
                "name": client.name,
                "role": client.role.name(),
                "protocol": client.protocol,
                "took_s": client.took_s,
                "wire_bytes": client.wire_bytes,
                "body_bytes": client.body_bytes,
                "requests": client.requests,
                "waves": client.waves,
            })
        })
        .collect();
    println!(
        "{}",
        json!({ "rows": work.ids.len(), "useful_bytes": useful_bytes, "clients": results })
    );
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "a table: one client a line")]
fn clients(work: &Work, base: &str) -> Outcome<Vec<Client>> {
    // An origin known to take single ranges only: what we cost without several.
    let single = work.scratch.join("single.json");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let known = json!({
        "format": "helix-transport origins",
        "version": 1,
        "origins": { base: { "learned_unix_s": now.as_secs(), "multi_range": "single" } },
    });
    std::fs::write(&single, known.to_string())?;
    let ours = |config| -> Outcome<Reader> {
        Ok(Reader::Ours(Arc::new(HttpBackend::new(&work.url, config)?)))
    };
    let http2 = HttpConfig {
        http2_prior_knowledge: true,
        ..HttpConfig::default()
    };
    let one_range_each = HttpConfig {
        capability_file: Some(single),
        ..HttpConfig::default()
    };
    let object_store = |gap_bytes, http2: bool| -> Outcome<Reader> {
        let options = ClientOptions::new().with_allow_http(true);
        let options = if http2 {
            options.with_http2_only()
        } else {
            options
        };
        let store = HttpBuilder::new()
            .with_url(base)
            .with_client_options(options)
            .build()?;
        Ok(Reader::ObjectStore { store, gap_bytes })
    };
    let named = |name, role, protocol, reader: Outcome<Reader>| -> Outcome<Client> {
        Ok(Client {
            name,
            role,
            protocol,
            reader: reader?,
            took_s: Vec::new(),
            wire_bytes: Vec::new(),
            body_bytes: 0,
            requests: 0,
            waves: 0,
        })
    };
    let default_gap = object_store::OBJECT_STORE_COALESCE_DEFAULT;
    let (http1, http2_name) = ("HTTP/1.1", "HTTP/2");
    let several = ours(HttpConfig::default());
    let one_each = ours(one_range_each);
    let default = object_store(default_gap, false);
    Ok(vec![
        named("ours, several ranges", Role::Usual, http1, several)?,
        named("ours, single ranges", Role::HeldBack, http1, one_each)?,
        named("ours", Role::Usual, http2_name, ours(http2))?,
        named("object_store, default", Role::Peer, http1, default)?,
        named(
            "object_store, gap 0",
            Role::Peer,
            http1,
            object_store(0, false),
        )?,
        named(
            "object_store, gap 0",
            Role::Peer,
            http2_name,
            object_store(0, true),
        )?,
        named(
            "curl --parallel",
            Role::Peer,
            http1,
            Ok(Reader::CurlParallel),
        )?,
        named("curl loop", Role::Peer, http1, Ok(Reader::CurlLoop))?,
    ])
}

impl Client {
    async fn read(&self, work: &Work) -> Outcome<Read> {
        match &self.reader {
            Reader::Ours(source) => ours(Arc::clone(source), work).await,
            Reader::ObjectStore { store, gap_bytes } => object_store(store, *gap_bytes, work).await,
            Reader::CurlLoop => curl(work, None).await,
            Reader::CurlParallel => curl(work, Some(CURL_PARALLEL)).await,
        }
    }
}

impl Work {
    fn ranges(&self) -> Vec<Range<u64>> {
        let row_bytes = u64::from(self.row_bytes);
        let range = |id: &u64| id * row_bytes..(id + 1) * row_bytes;
        self.ids.iter().map(range).collect()
    }
}

/// A row store with an empty cache, as a station has it.
async fn ours(source: Arc<HttpBackend>, work: &Work) -> Outcome<Read> {
    let layout = RowLayout::new(0, work.table_rows, work.row_bytes)?;
    let meters = StoreMeters::default();
    let store = ColumnarEmbedBackend::new(
        source,
        layout,
        [0; 32],
        Verification::Off,
        RowStoreConfig::default(),
        meters.clone(),
    )?;
    let ids: Vec<RowId> = work.ids.iter().copied().map(RowId).collect();
    let started = Instant::now();
    let batch = store.rows(&ids).await?;
    let took = started.elapsed();
    let snapshot = meters.rows.snapshot();
    Ok(Read {
        rows: batch
            .rows
            .iter()
            .map(|row| Bytes::copy_from_slice(row))
            .collect(),
        took,
        requests: snapshot.requests,
        waves: snapshot.waves,
        body_bytes: snapshot.body_bytes(),
    })
}

/// `get_ranges`, or what it does with another gap.
async fn object_store(store: &HttpStore, gap_bytes: u64, work: &Work) -> Outcome<Read> {
    let (path, ranges) = (
        object_store::path::Path::from(work.path.as_str()),
        work.ranges(),
    );
    let (requests, body_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let count = |range: &Range<u64>| {
        requests.fetch_add(1, Relaxed);
        body_bytes.fetch_add(range.end - range.start, Relaxed);
    };
    let (rows, took) = if gap_bytes == object_store::OBJECT_STORE_COALESCE_DEFAULT {
        let planned = coalesce_ranges(
            &ranges,
            |range| {
                count(&range);
                let len_bytes = usize::try_from(range.end - range.start).unwrap_or(0);
                std::future::ready(Ok::<_, object_store::Error>(vec![0; len_bytes].into()))
            },
            gap_bytes,
        );
        planned.await?;
        let started = Instant::now();
        let rows = store.get_ranges(&path, &ranges).await?;
        (rows, started.elapsed())
    } else {
        let fetch = |range: Range<u64>| {
            count(&range);
            store.get_range(&path, range)
        };
        let started = Instant::now();
        let rows = coalesce_ranges(&ranges, fetch, gap_bytes).await?;
        (rows, started.elapsed())
    };
    let requests = requests.load(Relaxed);
    Ok(Read {
        rows,
        took,
        requests,
        waves: requests.div_ceil(OBJECT_STORE_PARALLEL),
        body_bytes: body_bytes.load(Relaxed),
    })
}

/// One curl for all rows that keeps its connection, or that runs several transfers at once.
async fn curl(work: &Work, parallel: Option<u64>) -> Outcome<Read> {
    let ranges = work.ranges();
    let mut config = String::new();
    for (index, range) in ranges.iter().enumerate() {
        let file = work.scratch.join(format!("row-{index}"));
        config.push_str(&format!(
            "{}url = \"{}\"\nrange = \"{}-{}\"\noutput = \"{}\"\n",
            if index == 0 { "" } else { "next\n" },
            work.url,
            range.start,
            range.end - 1,
            file.display()
        ));
    }
    let list = work.scratch.join("curl.config");
    tokio::fs::write(&list, config).await?;
    let mut command = std::process::Command::new("curl");
    command.args([
        "--silent",
        "--no-progress-meter",
        "--show-error",
        "--fail",
        "--noproxy",
        "*",
    ]);
    if let Some(parallel) = parallel {
        let parallel = parallel.to_string();
        command.args([
            "--parallel",
            "--parallel-immediate",
            "--parallel-max",
            &parallel,
        ]);
    }
    command.arg("--config").arg(&list);
    let started = Instant::now();
    let status = tokio::task::spawn_blocking(move || command.status()).await??;
    let took = started.elapsed();
    if !status.success() {
        return Err(format!("curl ended with {status}").into());
    }
    let mut rows = Vec::new();
    for index in 0..ranges.len() {
        rows.push(
            tokio::fs::read(work.scratch.join(format!("row-{index}")))
                .await?
                .into(),
        );
    }
    let requests = ranges.len() as u64;
    Ok(Read {
        rows,
        took,
        requests,
        waves: requests.div_ceil(parallel.unwrap_or(1)),
        body_bytes: requests * u64::from(work.row_bytes),
    })
}
