//! `prefetch`: rows into the directory that keeps them, from the knot's front and the row store alone.
//! No layer, no head, and no tokenizer unless a text is to be tokenised.

use super::{RunTokens, Station, print_json, text_or_stdin};
use crate::cli::PrefetchArgs;
use crate::embedding::Embedding;
use crate::error::Error;
use crate::hot_ids::hot_ids;
use crate::language::{Language, PromptForm};
use crate::matrix::Matrix;
use crate::model;
use crate::user_file::{MAX_BYTES, read_text};
use columnar_embed::{ColumnarEmbedBackend, Completeness, DiskTier, RowId};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of rows that are asked for, and written, together.
const BATCH_BYTES: u64 = 8 << 20;

/// What was asked of the row store and what is on disk now.
#[derive(Debug, Clone, Default, Serialize)]
struct Report {
    /// Distinct rows that were asked for.
    rows_asked: u64,
    /// Rows among them that were on disk already.
    rows_present: u64,
    /// Rows among them that were fetched.
    rows_fetched: u64,
    /// Body bytes of the replies for rows.
    received_bytes: u64,
    /// Body bytes of the replies for their paths.
    path_received_bytes: u64,
    /// Requests for both.
    requests: u64,
    /// The directory that keeps them.
    directory: PathBuf,
    /// Rows that are there now, of this table.
    rows_on_disk: u64,
    /// Rows of the table.
    rows: u64,
    /// The row file, where every row is there.
    row_file: Option<PathBuf>,
}

/// Rows of one table that are wanted, each once, in the order they were asked for.
#[derive(Debug)]
struct Wanted {
    rows: u64,
    ids: Vec<RowId>,
    seen: HashSet<u64>,
}

pub(super) async fn prefetch(station: &Station, args: &PrefetchArgs) -> Result<(), Error> {
    let Some(directory) = &station.config.embed_cache_dir else {
        return Err(Error::config(
            "prefetch puts rows on disk; give --embed-cache-dir DIR",
        ));
    };
    if station.config.rows.is_none() && station.config.hub.rows.is_none() {
        return Err(Error::config(
            "prefetch fetches rows of a row store; give --columnar-embed URL",
        ));
    }
    // What a station would fetch ahead may be asked for in its own words.
    let warm = args.warm.unwrap_or(station.config.embed_warm_rows);
    if args.ids_file.is_none() && args.text.is_none() && warm == 0 && !args.all {
        return Err(Error::config(
            "no rows named; give --ids-file, --text, --warm or --all",
        ));
    }
    let text = match &args.text {
        None => None,
        Some(path) if path == Path::new("-") => Some(text_or_stdin(station, "-").await?),
        Some(path) => Some(read_text("--text", path, MAX_BYTES)?),
    };
    let work = fill(station, args, text, directory);
    let outcome = station.unless_interrupted(Box::pin(work)).await;
    station.summarise(None, RunTokens::default())?;
    let report = outcome?;
    if args.json {
        print_json(&report)
    } else {
        super::print_line(&report.to_string())
    }
}

async fn fill(
    station: &Station,
    args: &PrefetchArgs,
    text: Option<String>,
    directory: &Path,
) -> Result<Report, Error> {
    let (config, traffic) = (&station.config, &station.traffic);
    let (knot, decoder_config) = model::open(config, traffic).await?;
    let matrix = Matrix::open(Arc::clone(&knot), config)?;
    let rows = matrix.block()?.shape.first().copied().unwrap_or(0);
    let mut wanted = Wanted::new(rows);
    if let Some(path) = &args.ids_file {
        wanted.extend(super::token_ids("--ids-file", path)?)?;
    }
    if let Some(text) = text {
        let limit = config.max_context;
        let language = Language::load(&knot, &decoder_config, limit, traffic).await?;
        let tokens = tokio::task::block_in_place(|| language.tokens(&text, PromptForm::Raw))?;
        wanted.extend(tokens)?;
    }
    let warm = args.warm.unwrap_or(config.embed_warm_rows);
    if warm > 0 {
        wanted.extend(hot_ids(&knot, warm, traffic).await?)?;
    }
    if args.all {
        (0..wanted.rows).for_each(|id| wanted.push(id));
    }
    let wanted = &wanted;
    let read = |embedding: Arc<Embedding>| async move {
        match &*embedding {
            Embedding::Columnar(columnar) => fetch(columnar.store(), wanted, directory).await,
            Embedding::Dense(_) => Err(Error::Lost {
                what: "the row store",
            }),
        }
    };
    let report = matrix.with_rows(traffic, None, read).await?;
    report.ok_or_else(|| not_columnar(&matrix))
}

/// Fetches all that is wanted and not there, and looks how much is there then.
async fn fetch(
    store: &ColumnarEmbedBackend,
    wanted: &Wanted,
    directory: &Path,
) -> Result<Report, Error> {
    let tier = store.tier().ok_or(Error::Lost {
        what: "the rows on disk",
    })?;
    let mut report = Report {
        rows_asked: wanted.ids.len() as u64,
        directory: directory.to_owned(),
        rows: wanted.rows,
        ..Report::default()
    };
    let batch_rows = BATCH_BYTES / u64::from(store.map().row_bytes()).max(1);
    let batch_rows = usize::try_from(batch_rows.max(1)).unwrap_or(usize::MAX);
    for batch in wanted.ids.chunks(batch_rows) {
        one_batch(store, tier, batch, &mut report).await?;
    }
    let complete = tier.complete().await;
    match complete.map_err(|source| Error::rows(store.object(), source))? {
        Completeness::Partial { present_rows, .. } => report.rows_on_disk = present_rows,
        Completeness::Complete { path } => {
            report.rows_on_disk = wanted.rows;
            report.row_file = Some(path);
        }
    }
    Ok(report)
}

/// Fetches and writes one batch. Rows that cannot be written are an error: they are all this is for.
async fn one_batch(
    store: &ColumnarEmbedBackend,
    tier: &DiskTier,
    ids: &[RowId],
    report: &mut Report,
) -> Result<(), Error> {
    let failed = |source| Error::rows(store.object(), source);
    let batch = store.rows(ids).await.map_err(failed)?;
    report.rows_present += batch.report.disk + batch.report.hit;
    report.rows_fetched += batch.report.missed + batch.report.coalesced;
    report.received_bytes += batch.report.received_bytes;
    report.path_received_bytes += batch.report.path_received_bytes;
    report.requests += batch.report.requests;
    tier.flush().await.map_err(failed)
}

/// Why nothing could be fetched from the table that was named: it is not the one the knot declares.
fn not_columnar(matrix: &Matrix) -> Error {
    match matrix.resolutions().map(|all| all.into_iter().next()) {
        Ok(Some(resolution)) => Error::config(format!(
            "the rows of {} cannot be fetched: {}",
            resolution.tensor, resolution.reason
        )),
        Ok(None) => Error::Lost {
            what: "the choice of the rows",
        },
        Err(error) => error,
    }
}

impl Wanted {
    fn new(rows: u64) -> Self {
        Self {
            rows,
            ids: Vec::new(),
            seen: HashSet::new(),
        }
    }

    fn extend(&mut self, ids: impl IntoIterator<Item = u32>) -> Result<(), Error> {
        for id in ids {
            if u64::from(id) >= self.rows {
                let vocabulary = self.rows;
                return Err(Error::TokenId { id, vocabulary });
            }
            self.push(u64::from(id));
        }
        Ok(())
    }

    fn push(&mut self, id: u64) {
        if self.seen.insert(id) {
            self.ids.push(RowId(id));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} rows asked: {} already present, {} fetched ({} bytes of rows, {} of paths, {} requests)",
            self.rows_asked,
            self.rows_present,
            self.rows_fetched,
            self.received_bytes,
            self.path_received_bytes,
            self.requests
        )?;
        match &self.row_file {
            Some(path) => write!(f, "all {} rows are there: {}", self.rows, path.display()),
            None => write!(
                f,
                "{} of {} rows are in {}",
                self.rows_on_disk,
                self.rows,
                self.directory.display()
            ),
        }
    }
}
