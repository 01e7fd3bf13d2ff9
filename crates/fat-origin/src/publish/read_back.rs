//! What was published, read as a station would: the knot's front, and rows against the row tree whose
//! root the front holds; and ranges of the knot's blocks, or every byte, against the files. Through the public URL where there is one, since that is where caches,
//! compression and wrong paths are; else through the store itself.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use columnar_embed::{
    ColumnarEmbedBackend, PathSource, RowId, RowLayout, RowMap, RowStoreConfig, RowTree,
    RowTreeVerifier, Sidecar, StoreMeters, Verification,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use gkq_v2::Knot;
use helix_transport::http::{HttpBackend, HttpClient, HttpConfig};
use helix_transport::{ByteRange, FileSource, Meter, Patience, RangeSource, ReadOptions};
use serde::Serialize;

use super::destination::Destination;
use super::objects::{Kind, LocalObject, Plan, table};
use super::{DEFAULT_READ_BACK_ROWS, PublishOptions, sample};
use crate::Error;
use crate::checkpoint::EMBEDDING;

/// Ranges of the knot's blocks that are compared with the file.
const RANGES: u64 = 32;
/// Length of such a range.
const RANGE_BYTES: u64 = 4096;
/// Bytes that are read at once where all are.
const CHUNK_BYTES: u64 = 8 << 20;
/// Chunks on their way at once; each is held in memory.
const CHUNKS_IN_FLIGHT: usize = 4;
/// Rows that are held in memory.
const BATCH_ROWS: usize = 256;

/// How much is read back before the manifest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBack {
    /// The knot's front, ranges of its blocks, and so many rows, at most all.
    Rows(u64),
    /// Every byte of every object.
    All,
}

impl Default for ReadBack {
    fn default() -> Self {
        Self::Rows(DEFAULT_READ_BACK_ROWS)
    }
}

impl fmt::Display for ReadBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => rows.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

impl std::str::FromStr for ReadBack {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            rows => rows
                .parse()
                .map(Self::Rows)
                .map_err(|_not_a_number| "expected a number of rows, or `all`"),
        }
    }
}

/// What was read back before the manifest was written.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ReadBackReport {
    /// `public URL`, `directory` or `store`.
    pub through: &'static str,
    /// Rows that were asked and proved.
    pub rows: u64,
    /// Bytes of the knot's front.
    pub front_bytes: u64,
    /// Ranges of the knot's blocks that were compared with the file.
    pub block_ranges: u64,
    /// Objects of which every byte was read and digested.
    pub whole_objects: u64,
    /// Body bytes that came.
    pub received_bytes: u64,
    /// The seed of the rows.
    pub seed: u64,
}

/// A way to the published objects.
pub(super) enum Way<'a> {
    Public { url: String, client: HttpClient },
    Store(&'a Destination),
}

impl<'a> Way<'a> {
    pub(super) fn new(
        options: &PublishOptions,
        destination: &'a Destination,
    ) -> Result<Self, Error> {
        let Some(url) = &options.public_url else {
            return Ok(Self::Store(destination));
        };
        let refused = |reason: String| Error::Option {
            option: "--public-url",
            reason,
        };
        let lower = url.to_ascii_lowercase();
        if !(lower.starts_with("http://") || lower.starts_with("https://")) {
            return Err(refused(
                "expected the http:// or https:// URL of the folder that the objects appear in"
                    .to_owned(),
            ));
        }
        if url.contains(['?', '#']) {
            return Err(refused(
                "a query or fragment cannot be reused for every object; give the folder alone"
                    .to_owned(),
            ));
        }
        let client =
            HttpClient::new(HttpConfig::default()).map_err(|error| refused(error.to_string()))?;
        Ok(Self::Public {
            url: url.trim_end_matches('/').to_owned(),
            client,
        })
    }

    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Public { .. } => "public URL",
            Self::Store(destination) if destination.directory.is_some() => "directory",
            Self::Store(_) => "store",
        }
    }

    /// The URL of an object, where the way has one.
    pub(super) fn url(&self, object: &str) -> Option<String> {
        match self {
            Self::Public { url, .. } => Some(format!("{url}/{object}")),
            Self::Store(_) => None,
        }
    }

    pub(super) fn open(&self, object: &str, len_bytes: u64) -> Result<Arc<dyn RangeSource>, Error> {
        Ok(match self {
            Self::Public { url, client } => {
                let url = format!("{url}/{object}");
                Arc::new(HttpBackend::with_client(&url, client).map_err(Error::read_back)?)
            }
            Self::Store(destination) => match &destination.directory {
                Some(directory) => {
                    Arc::new(FileSource::open(directory.join(object)).map_err(Error::read_back)?)
                }
                None => Arc::new(super::store_source::StoreSource {
                    store: Arc::clone(&destination.store),
                    key: destination.key(object),
                    name: format!("{}/{object}", destination.name()),
                    len_bytes,
                }),
            },
        })
    }
}

/// Reads the front, ranges of the blocks, and what `options.read_back` asks for.
///
/// # Errors
/// [`Error::ReadBack`] for bytes that are not what was sent, [`Error::ReadBackFailed`] or
/// [`Error::RowsBack`] for what could not be read.
pub(super) async fn read_back(
    plan: &Plan,
    way: &Way<'_>,
    options: &PublishOptions,
) -> Result<ReadBackReport, Error> {
    let meter = Arc::new(Meter::default());
    let reading = ReadOptions::new(Arc::clone(&meter), Patience::Stream);
    let knot = plan.object(Kind::Knot).ok_or(Error::Interrupted)?;
    let source = way.open(&knot.name, knot.len_bytes())?;
    let front_bytes = plan.knot.knot.front_bytes();
    let front = source.read_prefix(front_bytes, &reading).await;
    let front = front.map_err(Error::read_back)?;
    check_length(source.as_ref(), knot)?;
    let (expected, found) = (
        blake3::Hash::from_bytes(plan.knot.knot.front_blake3()),
        blake3::hash(&front),
    );
    // The digest is of the front's own choosing of bytes; comparing with the file covers all of them.
    let mut local = vec![0; usize::try_from(front_bytes).unwrap_or(0)];
    knot.file.read_at(&mut local, 0)?;
    if *front != *local {
        return Err(Error::ReadBack {
            object: source.name().to_owned(),
            part: "front of the knot".to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
        });
    }
    let block_ranges = blocks_back(knot, front_bytes, &*source, (options, &reading)).await?;
    let parsed = Knot::parse(&front, knot.len_bytes()).map_err(Error::knot(&knot.file.path))?;
    let rows = rows_back(
        plan,
        way,
        options,
        Read {
            knot: &parsed,
            front: &front,
            source,
        },
    )
    .await?;
    let mut whole_objects = 0;
    if options.read_back == ReadBack::All {
        for object in &plan.objects {
            whole_back(
                object,
                &*way.open(&object.name, object.len_bytes())?,
                &reading,
            )
            .await?;
            whole_objects += 1;
        }
    }
    let received =
        rows.meters.rows.snapshot().received_bytes + rows.meters.paths.snapshot().received_bytes;
    Ok(ReadBackReport {
        through: way.word(),
        rows: rows.count,
        front_bytes,
        block_ranges,
        whole_objects,
        received_bytes: meter.snapshot().received_bytes + received,
        seed: options.seed,
    })
}

/// Compares ranges of the knot behind its front with the file; gives their number.
async fn blocks_back(
    knot: &LocalObject,
    front_bytes: u64,
    source: &dyn RangeSource,
    (options, reading): (&PublishOptions, &ReadOptions),
) -> Result<u64, Error> {
    let len_bytes = knot.len_bytes();
    let pieces = len_bytes.saturating_sub(front_bytes).div_ceil(RANGE_BYTES);
    let mut pieces: Vec<_> = sample::numbers(options.seed, RANGES, pieces).collect();
    pieces.sort_unstable();
    pieces.dedup();
    let ranges: Vec<_> = pieces
        .into_iter()
        .map(|piece| {
            let start = front_bytes.saturating_add(piece.saturating_mul(RANGE_BYTES));
            let end = start.saturating_add(RANGE_BYTES).min(len_bytes);
            ByteRange { start, end }
        })
        .collect();
    let mut read = read_in_order(source, &ranges, reading);
    for range in &ranges {
        let found = read.try_next().await?.unwrap_or_default();
        let mut expected = vec![0; usize::try_from(range.len()).unwrap_or(0)];
        knot.file.read_at(&mut expected, range.start)?;
        if *found != *expected {
            return Err(Error::ReadBack {
                object: source.name().to_owned(),
                part: format!("bytes {}..{}", range.start, range.end),
                expected: format!("BLAKE3 {}", blake3::hash(&expected)),
                found: blake3::hash(&found).to_string(),
            });
        }
    }
    Ok(ranges.len() as u64)
}

/// Reads every byte of an object and compares the digest.
async fn whole_back(
    object: &LocalObject,
    source: &dyn RangeSource,
    reading: &ReadOptions,
) -> Result<(), Error> {
    let len_bytes = object.len_bytes();
    let ranges: Vec<_> = (0..len_bytes.div_ceil(CHUNK_BYTES))
        .map(|chunk| ByteRange {
            start: chunk * CHUNK_BYTES,
            end: len_bytes.min((chunk + 1) * CHUNK_BYTES),
        })
        .collect();
    let mut whole = blake3::Hasher::new();
    let mut read = read_in_order(source, &ranges, reading);
    while let Some(bytes) = read.try_next().await? {
        whole.update(&bytes);
    }
    let found = whole.finalize();
    if found == object.blake3() {
        return Ok(());
    }
    Err(Error::ReadBack {
        object: source.name().to_owned(),
        part: "the whole object".to_owned(),
        expected: format!("BLAKE3 {}", object.blake3()),
        found: found.to_string(),
    })
}

fn read_in_order<'a>(
    source: &'a dyn RangeSource,
    ranges: &[ByteRange],
    reading: &'a ReadOptions,
) -> stream::BoxStream<'a, Result<Bytes, Error>> {
    let reads: Vec<_> = ranges
        .iter()
        .map(|range| source.read(*range, reading))
        .collect();
    stream::iter(reads)
        .buffered(CHUNKS_IN_FLIGHT)
        .map_err(Error::read_back)
        .boxed()
}

/// The knot as it was read back.
struct Read<'a> {
    knot: &'a Knot,
    front: &'a Bytes,
    source: Arc<dyn RangeSource>,
}

struct Rows {
    count: u64,
    meters: StoreMeters,
}

async fn rows_back(
    plan: &Plan,
    way: &Way<'_>,
    options: &PublishOptions,
    read: Read<'_>,
) -> Result<Rows, Error> {
    let meters = StoreMeters::default();
    let (Some(table), Some(block)) = (table(&plan.knot), read.knot.block(EMBEDDING)) else {
        return Ok(Rows { count: 0, meters });
    };
    let (source, base_bytes, name) = match plan.object(Kind::Rows) {
        Some(rows) => {
            let source = way.open(&rows.name, rows.len_bytes())?;
            (source, 0, rows.name.clone())
        }
        // The rows of a knot that is published alone are those of its block.
        None => (
            Arc::clone(&read.source),
            block.payload.start,
            read.source.name().to_owned(),
        ),
    };
    let failed = |source| Error::RowsBack {
        object: name.clone(),
        source: Box::new(source),
    };
    let sidecar = table
        .row_sidecar
        .as_ref()
        .filter(|_| plan.object(Kind::Rows).is_some());
    let map = match sidecar {
        Some(section) => {
            let bytes = read.front.get(range(section)).unwrap_or_default();
            RowMap::from(Arc::new(Sidecar::parse(bytes).map_err(failed)?))
        }
        None => RowLayout::new(base_bytes, table.rows, table.row_bytes)
            .map_err(failed)?
            .into(),
    };
    let pinned = read
        .front
        .get(range(&table.pinned_nodes))
        .unwrap_or_default();
    let tree = RowTree {
        rows: table.rows,
        root: table.tree_root,
        pinned_level: table.pinned_level,
        pinned_nodes: Bytes::copy_from_slice(pinned),
    };
    let paths = PathSource::Remote {
        source: Arc::clone(&read.source),
        base_bytes: table.path_table.start,
    };
    let verifier = RowTreeVerifier::new(tree, paths).map_err(failed)?;
    let store = ColumnarEmbedBackend::new(
        Arc::clone(&source),
        map,
        table.rows_blake3,
        Verification::Tree(verifier),
        RowStoreConfig::default(),
        meters.clone(),
    )
    .map_err(failed)?;
    let count = prove(&store, options, table.rows).await.map_err(failed)?;
    if let Some(rows) = plan.object(Kind::Rows).filter(|_| count > 0) {
        check_length(source.as_ref(), rows)?;
    }
    Ok(Rows { count, meters })
}

/// Reads as many of `rows` rows as are asked for, each against its path; gives their number.
async fn prove(
    store: &ColumnarEmbedBackend,
    options: &PublishOptions,
    rows: u64,
) -> Result<u64, columnar_embed::Error> {
    let asked = match options.read_back {
        ReadBack::Rows(asked) => asked,
        // The digests tell of all of them; these tell that paths and rows fit.
        ReadBack::All => DEFAULT_READ_BACK_ROWS,
    };
    let some = (asked < rows).then(|| sample::numbers(options.seed, asked, rows));
    let every = (asked >= rows).then_some(0..rows);
    let mut ids = some
        .into_iter()
        .flatten()
        .chain(every.into_iter().flatten())
        .map(RowId);
    let mut count = 0;
    loop {
        let batch: Vec<_> = ids.by_ref().take(BATCH_ROWS).collect();
        if batch.is_empty() {
            return Ok(count);
        }
        count += store.rows(&batch).await?.rows.len() as u64;
    }
}

fn range(range: &std::ops::Range<u64>) -> std::ops::Range<usize> {
    let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
    at(range.start)..at(range.end)
}

/// The length that the read has told must be the file's.
fn check_length(source: &dyn RangeSource, object: &LocalObject) -> Result<(), Error> {
    let found = source.version().map(|version| version.len_bytes);
    if found == Some(object.len_bytes()) {
        return Ok(());
    }
    Err(Error::ReadBack {
        object: source.name().to_owned(),
        part: "length".to_owned(),
        expected: object.len_bytes().to_string(),
        found: found.map_or("unknown".to_owned(), |bytes| bytes.to_string()),
    })
}
