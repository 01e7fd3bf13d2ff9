//! Reads batches of verified rows from a URL, several readers at once, and checks every row against the
//! file it was made from. Half of the readers ask for more rows than there are connections, half fetch the paths of
//! the row tree too. `cargo xtask soak` runs it against a server that misbehaves; one line of JSON
//! a batch says what became of it. Not a benchmark.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use columnar_embed::{
    ColumnarEmbedBackend, Error, PathSource, RowId, RowLayout, RowStoreConfig, RowTree,
    RowTreeBuilder, RowTreeVerifier, StoreMeters, Verification,
};
use helix_transport::{HttpBackend, HttpConfig, MeterSnapshot};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Rows of one batch: a run of neighbours, which merge, and others all over the table. Those of every second reader
/// are more spans than the 16 connections of a client, so that several are asked for in one request.
const RUN: u64 = 4;
const SCATTERED: [u64; 2] = [12, 48];
/// Batches after which readers begin anew with a client that knows nothing of the server: what it learned from a
/// fault would otherwise hold for the rest of the run.
const GENERATION: u64 = 200;
/// Far below the rows of the table, so that nearly all are fetched.
const CACHE_ROWS: u64 = 256;

struct Arguments {
    file: String,
    url: String,
    paths_url: String,
    log: String,
    row_bytes: u32,
    batches: u64,
    readers: u64,
    seed: u64,
}

impl Arguments {
    /// `FILE URL PATHS_URL LOG ROW_BYTES BATCHES READERS SEED`; this is a part of `cargo xtask soak`, not a tool.
    fn parse() -> Result<Self, Failure> {
        let mut words = std::env::args().skip(1);
        let mut word = |name: &str| words.next().ok_or_else(|| format!("{name} is missing"));
        Ok(Self {
            file: word("FILE")?,
            url: word("URL")?,
            paths_url: word("PATHS_URL")?,
            log: word("LOG")?,
            row_bytes: word("ROW_BYTES")?.parse()?,
            batches: word("BATCHES")?.parse()?,
            readers: word("READERS")?.parse()?,
            seed: word("SEED")?.parse()?,
        })
    }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, file, row_bytes, out] = &words[..]
        && word == "paths"
    {
        return write_paths(Path::new(file), row_bytes.parse()?, out);
    }
    let arguments = Arc::new(Arguments::parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(run(arguments))
}

/// `paths FILE ROW_BYTES OUT`: writes the path table of a file of rows; prints the bytes of one row's path.
fn write_paths(file: &Path, row_bytes: u32, out: &str) -> Result<(), Failure> {
    let tree = Tree::of(&Table::open(file, row_bytes)?)?;
    std::fs::write(out, &tree.paths)?;
    let path_bytes = tree.tree.check()?.path_bytes();
    writeln!(std::io::stdout(), "{path_bytes}")?;
    Ok(())
}

async fn run(arguments: Arc<Arguments>) -> Result<(), Failure> {
    let table = Arc::new(Table::open(
        Path::new(&arguments.file),
        arguments.row_bytes,
    )?);
    let tree = Tree::of(&table)?;
    let stores = [false, true].map(|has_remote_paths| {
        Arc::new(Stores {
            tree: tree.clone(),
            has_remote_paths,
            meters: StoreMeters::default(),
            current: Mutex::new(None),
        })
    });
    let log = Arc::new(Mutex::new(BufWriter::new(File::create(&arguments.log)?)));
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..arguments.readers {
        let (arguments, table) = (Arc::clone(&arguments), Arc::clone(&table));
        let store = &stores[usize::from(reader & 2 != 0)];
        let (stores, log) = (Arc::clone(store), Arc::clone(&log));
        let scattered = SCATTERED[usize::from(reader & 1 != 0)];
        readers.spawn(async move {
            // States that differ by a small number have unrelated futures; multiples of the
            // generator's own step would not.
            let mut random = Random(arguments.seed << 32 | reader);
            let mut number = reader;
            while number < arguments.batches {
                let ids = random.batch(table.rows, scattered);
                let store = stores.at(&arguments, &table, number)?;
                let line = read(&store, &table, number, &ids, stores.has_remote_paths).await?;
                let mut log = log.lock().map_err(|_poisoned| "a reader panicked")?;
                writeln!(log, "{line}")?;
                number += arguments.readers;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(reader) = readers.join_next().await {
        reader??;
    }
    log.lock()
        .map_err(|_poisoned| "a reader panicked")?
        .flush()?;
    let meters: Vec<_> = stores
        .iter()
        .flat_map(|stores| [&stores.meters.rows, &stores.meters.paths])
        .map(|meter| meter.snapshot())
        .collect();
    let sum = |count: fn(&MeterSnapshot) -> u64| meters.iter().map(count).sum::<u64>();
    let line = format!(
        "{{\"requests\":{},\"waves\":{},\"retries\":{},\"received_bytes\":{},\"framing_bytes\":{},\"useful_bytes\":{},\"integrity_failures\":{}}}",
        sum(|meter| meter.requests),
        sum(|meter| meter.waves),
        sum(|meter| meter.retries),
        sum(|meter| meter.received_bytes),
        sum(|meter| meter.framing_bytes),
        sum(|meter| meter.useful_bytes),
        sum(|meter| meter.integrity_failures),
    );
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// What a publisher makes of the rows.
#[derive(Clone)]
struct Tree {
    tree: RowTree,
    paths: Bytes,
    digest: [u8; 32],
}

impl Tree {
    fn of(table: &Table) -> Result<Self, Failure> {
        let mut builder = RowTreeBuilder::new(table.rows, Vec::new())?;
        let mut digest = blake3::Hasher::new();
        for row in 0..table.rows {
            let row = table.row(row)?;
            digest.update(&row);
            builder.push(&row)?;
        }
        let (tree, paths) = builder.finish()?;
        Ok(Self {
            tree,
            paths: Bytes::from(paths),
            digest: *digest.finalize().as_bytes(),
        })
    }
}

/// The store of the readers that fetch paths, or of those that have them.
struct Stores {
    tree: Tree,
    has_remote_paths: bool,
    meters: StoreMeters,
    current: Mutex<Option<(u64, Arc<ColumnarEmbedBackend>)>>,
}

impl Stores {
    /// The store for a batch; the first batch of a generation makes it.
    fn at(
        &self,
        arguments: &Arguments,
        table: &Table,
        number: u64,
    ) -> Result<Arc<ColumnarEmbedBackend>, Failure> {
        let generation = number / GENERATION;
        let mut current = self
            .current
            .lock()
            .map_err(|_poisoned| "a reader panicked")?;
        match &*current {
            // A reader that lags behind takes the newer one.
            Some((made, store)) if *made >= generation => Ok(Arc::clone(store)),
            _ => {
                let store = Arc::new(self.store(arguments, table)?);
                *current = Some((generation, Arc::clone(&store)));
                Ok(store)
            }
        }
    }

    fn store(&self, arguments: &Arguments, table: &Table) -> Result<ColumnarEmbedBackend, Failure> {
        let paths = if self.has_remote_paths {
            PathSource::Remote {
                source: Arc::new(HttpBackend::new(
                    &arguments.paths_url,
                    HttpConfig::default(),
                )?),
                base_bytes: 0,
            }
        } else {
            PathSource::Local(self.tree.paths.clone())
        };
        let verifier = RowTreeVerifier::new(self.tree.tree.clone(), paths)?;
        store(arguments, table, verifier, self)
    }
}

fn store(
    arguments: &Arguments,
    table: &Table,
    verifier: RowTreeVerifier,
    stores: &Stores,
) -> Result<ColumnarEmbedBackend, Failure> {
    let source = HttpBackend::new(&arguments.url, HttpConfig::default())?;
    let config = RowStoreConfig {
        cache_rows: CACHE_ROWS,
        ..RowStoreConfig::default()
    };
    Ok(ColumnarEmbedBackend::new(
        Arc::new(source),
        RowLayout::new(0, table.rows, table.row_bytes)?,
        stores.tree.digest,
        Verification::Tree(verifier),
        config,
        stores.meters.clone(),
    )?)
}

/// One batch, and the line that tells what became of it.
async fn read(
    store: &ColumnarEmbedBackend,
    table: &Table,
    number: u64,
    ids: &[RowId],
    has_remote_paths: bool,
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
        "{{\"batch\":{number},\"began_us\":{began_us},\"took_us\":{},\"outcome\":\"{outcome}\",\"error\":{text:?},\"fetches_paths\":{has_remote_paths},\"rows\":[{}]}}",
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

    fn batch(&mut self, rows: u64, scattered: u64) -> Vec<RowId> {
        let first = self.next() % (rows - RUN);
        let run = first..first + RUN;
        let scattered: Vec<u64> = (0..scattered).map(|_| self.next() % rows).collect();
        run.chain(scattered).map(RowId).collect()
    }
}
