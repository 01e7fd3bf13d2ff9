//! Reads batches of verified rows from a URL, several readers at once, and checks every row against the
//! file it was made from. `cargo xtask soak` runs it against a server that misbehaves; one line of JSON
//! a batch says what became of it. Not a benchmark.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use columnar_embed::{
    ColumnarEmbedBackend, Error, PathSource, RowId, RowLayout, RowStoreConfig, RowTreeBuilder,
    RowTreeVerifier, StoreMeters, Verification,
};
use helix_transport::{HttpBackend, HttpConfig};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Rows of one batch: a run of neighbours, which merge, and others all over the table.
const RUN: u64 = 4;
const SCATTERED: u64 = 12;
/// Far below the rows of the table, so that nearly all are fetched.
const CACHE_ROWS: u64 = 256;

struct Arguments {
    file: String,
    url: String,
    log: String,
    row_bytes: u32,
    batches: u64,
    readers: u64,
    seed: u64,
}

impl Arguments {
    /// `FILE URL LOG ROW_BYTES BATCHES READERS SEED`; this is a part of `cargo xtask soak`, not a tool.
    fn parse() -> Result<Self, Failure> {
        let mut words = std::env::args().skip(1);
        let mut word = |name: &str| words.next().ok_or_else(|| format!("{name} is missing"));
        Ok(Self {
            file: word("FILE")?,
            url: word("URL")?,
            log: word("LOG")?,
            row_bytes: word("ROW_BYTES")?.parse()?,
            batches: word("BATCHES")?.parse()?,
            readers: word("READERS")?.parse()?,
            seed: word("SEED")?.parse()?,
        })
    }
}

fn main() -> Result<(), Failure> {
    let arguments = Arc::new(Arguments::parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: Arc<Arguments>) -> Result<(), Failure> {
    let table = Arc::new(Table::open(
        Path::new(&arguments.file),
        arguments.row_bytes,
    )?);
    let store = Arc::new(store(&arguments, &table)?);
    let log = Arc::new(Mutex::new(BufWriter::new(File::create(&arguments.log)?)));
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..arguments.readers {
        let (arguments, table) = (Arc::clone(&arguments), Arc::clone(&table));
        let (store, log) = (Arc::clone(&store), Arc::clone(&log));
        readers.spawn(async move {
            // States that differ by a small number have unrelated futures; multiples of the
            // generator's own step would not.
            let mut random = Random(arguments.seed << 32 | reader);
            let mut number = reader;
            while number < arguments.batches {
                let ids = random.batch(table.rows);
                let line = read(&store, &table, number, &ids).await?;
                let mut log = log.lock().map_err(|_| "a reader panicked")?;
                writeln!(log, "{line}")?;
                number += arguments.readers;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(reader) = readers.join_next().await {
        reader??;
    }
    log.lock().map_err(|_| "a reader panicked")?.flush()?;
    let meter = store.meters().rows.snapshot();
    let line = format!(
        "{{\"requests\":{},\"retries\":{},\"received_bytes\":{},\"useful_bytes\":{},\"integrity_failures\":{}}}",
        meter.requests,
        meter.retries,
        meter.received_bytes,
        meter.useful_bytes,
        meter.integrity_failures,
    );
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

fn store(arguments: &Arguments, table: &Table) -> Result<ColumnarEmbedBackend, Failure> {
    let mut builder = RowTreeBuilder::new(table.rows, Vec::new())?;
    let mut digest = blake3::Hasher::new();
    for row in 0..table.rows {
        let row = table.row(row)?;
        digest.update(&row);
        builder.push(&row)?;
    }
    let (tree, paths) = builder.finish()?;
    let verifier = RowTreeVerifier::new(tree, PathSource::Local(Bytes::from(paths)))?;
    let source = HttpBackend::new(&arguments.url, HttpConfig::default())?;
    let config = RowStoreConfig {
        cache_rows: CACHE_ROWS,
        ..RowStoreConfig::default()
    };
    Ok(ColumnarEmbedBackend::new(
        Arc::new(source),
        RowLayout::new(0, table.rows, table.row_bytes)?,
        *digest.finalize().as_bytes(),
        Verification::Tree(verifier),
        config,
        StoreMeters::default(),
    )?)
}

/// One batch, and the line that tells what became of it.
async fn read(
    store: &ColumnarEmbedBackend,
    table: &Table,
    number: u64,
    ids: &[RowId],
) -> Result<String, Failure> {
    let (began_us, began) = (unix_us(), Instant::now());
    let outcome = store.rows(ids).await;
    let took = began.elapsed();
    let (outcome, text) = match &outcome {
        Ok(batch) => {
            let mut right = batch.rows.len() == ids.len();
            for (id, row) in ids.iter().zip(&batch.rows) {
                right &= row[..] == table.row(id.0)?[..];
            }
            (if right { "right" } else { "wrong" }, String::new())
        }
        Err(error) => (kind(error), chain(error)),
    };
    let rows: Vec<_> = ids.iter().map(|id| id.0.to_string()).collect();
    Ok(format!(
        "{{\"batch\":{number},\"began_us\":{began_us},\"took_us\":{},\"outcome\":\"{outcome}\",\"error\":{text:?},\"rows\":[{}]}}",
        took.as_micros(),
        rows.join(",")
    ))
}

fn kind(error: &Error) -> &'static str {
    use helix_transport::ErrorKind as Kind;
    match error.kind() {
        Kind::Transient => "transient",
        Kind::Changed => "changed",
        Kind::Corrupt => "corrupt",
        Kind::Unsupported => "unsupported",
        Kind::NotFound => "not found",
        Kind::Auth => "refused",
        _ => "other",
    }
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source;
    }
    // Quoted with Rust's escapes below, which for ASCII are JSON's.
    text.replace(|letter: char| !(' '..='~').contains(&letter), "?")
}

fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_micros()).unwrap_or(u64::MAX)
}

/// The rows as they are on disk: never in memory as a whole, which would hide what the reader holds.
struct Table {
    file: File,
    row_bytes: u32,
    rows: u64,
}

impl Table {
    fn open(path: &Path, row_bytes: u32) -> Result<Self, Failure> {
        let file = File::open(path)?;
        let rows = file.metadata()?.len() / u64::from(row_bytes);
        Ok(Self {
            file,
            row_bytes,
            rows,
        })
    }

    fn row(&self, row: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; usize::try_from(self.row_bytes)?];
        self.file
            .read_exact_at(&mut bytes, row * u64::from(self.row_bytes))?;
        Ok(bytes)
    }
}

/// SplitMix64: a seed is a run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn batch(&mut self, rows: u64) -> Vec<RowId> {
        let first = self.next() % (rows - RUN);
        let run = first..first + RUN;
        let scattered: Vec<u64> = (0..SCATTERED).map(|_| self.next() % rows).collect();
        run.chain(scattered).map(RowId).collect()
    }
}
