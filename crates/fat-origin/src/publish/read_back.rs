//! What was published, read as a station would: the knot's front, and rows against the row tree whose
//! root the front holds. Through the public URL where there is one, since that is where caches,
//! compression and wrong paths are; else through the store itself.

use std::sync::Arc;

use bytes::Bytes;
use columnar_embed::{
    ColumnarEmbedBackend, PathSource, RowId, RowLayout, RowMap, RowStoreConfig, RowTree,
    RowTreeVerifier, Sidecar, StoreMeters, Verification,
};
use gkq_v2::Knot;
use helix_transport::http::{HttpBackend, HttpClient, HttpConfig};
use helix_transport::{FileSource, Meter, Patience, RangeSource, ReadOptions};
use serde::Serialize;

use super::destination::Destination;
use super::objects::{Kind, LocalObject, Plan, table};
use super::{PublishOptions, sample};
use crate::Error;
use crate::checkpoint::EMBEDDING;

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

/// Reads the front and `options.read_back_rows` rows.
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
    let received =
        rows.meters.rows.snapshot().received_bytes + rows.meters.paths.snapshot().received_bytes;
    Ok(ReadBackReport {
        through: way.word(),
        rows: rows.count,
        front_bytes,
        received_bytes: meter.snapshot().received_bytes + received,
        seed: options.seed,
    })
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
    let asked = u64::try_from(options.read_back_rows).unwrap_or(u64::MAX);
    let ids: Vec<_> = sample::numbers(options.seed, asked, table.rows)
        .map(RowId)
        .collect();
    let batch = store.rows(&ids).await.map_err(failed)?;
    if let Some(rows) = plan.object(Kind::Rows).filter(|_| !ids.is_empty()) {
        check_length(source.as_ref(), rows)?;
    }
    Ok(Rows {
        count: batch.rows.len() as u64,
        meters,
    })
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
