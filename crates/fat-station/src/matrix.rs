//! The vocabulary matrix: what the knot declares about it, which way its rows are read, and how the
//! whole of it is had when a head needs it. Decisions are the resolver's; this file carries them out.

use crate::cli::{OnFailure, Verify};
use crate::config::{Config, Residency};
use crate::embedding::{Columnar, DenseTable, Embedding};
use crate::error::Error;
use crate::knot::{OpenKnot, PayloadFetcher, Purpose, WantedPayload};
use crate::mmap;
use crate::resolver::{Declared, DeclaredTable, Dense, Resolution, RowKinds, Table, Way, resolve};
use crate::row_table::{RowTable, WholeTable, may_be_misplaced};
use crate::stand_in::{Exact, StandIn};
use crate::traffic::Traffic;
use bytes::Bytes;
use columnar_embed::{
    ColumnarEmbedBackend, DiskTier, PathSource, RowId, RowStoreConfig, RowTree, RowTreeVerifier,
    Sidecar, Verification,
};
use gkq_v2::{Block, Columnar as ColumnarSection, Dtype};
use std::sync::Arc;

/// Name of the vocabulary matrix.
pub const EMBED_TOKENS: &str = "model.embed_tokens.weight";

/// The vocabulary matrix of an opened knot.
#[derive(Debug)]
pub struct Matrix {
    knot: Arc<OpenKnot>,
    rows: Option<RowTable>,
    config: Config,
    /// Element type of a row.
    pub dtype: Dtype,
    /// Bytes of one row.
    pub row_bytes: usize,
    /// Bytes of the whole matrix.
    pub table_bytes: u64,
}

impl Matrix {
    /// Finds the matrix in `knot` and opens the row table, if one was named; nothing remote is read.
    ///
    /// # Errors
    /// [`Error::Config`] where the knot has no dense vocabulary matrix, [`Error::Origin`] for a
    /// table that cannot be opened.
    pub fn open(knot: Arc<OpenKnot>, config: &Config) -> Result<Self, Error> {
        let block = find(&knot)?;
        let (dtype, shape) = (block.dtype(), block.shape.as_slice());
        let geometry = match shape {
            &[_, cols] => dtype.row_bytes(cols).zip(block.stored_bytes()),
            _ => None,
        };
        let Some((row_bytes, table_bytes)) = geometry else {
            return Err(Error::config(format!(
                "{EMBED_TOKENS} of knot {} has shape {shape:?} in {dtype}, expected [vocab_size, hidden_size]",
                knot.locator()
            )));
        };
        let row_bytes = usize::try_from(row_bytes).map_err(|_overflow| {
            Error::config(format!("{EMBED_TOKENS}: a row has {row_bytes} bytes"))
        })?;
        let rows = match knot.rows() {
            None => None,
            Some(locator) => Some(RowTable::open(locator, &knot, config.verify)?),
        };
        Ok(Self {
            knot,
            rows,
            config: config.clone(),
            dtype,
            row_bytes,
            table_bytes,
        })
    }

    /// Which way every eligible tensor goes, as far as is known now: after the first reply of the
    /// row table its length is.
    ///
    /// # Errors
    /// [`Error::NoWay`] for a tensor that can be had from neither place.
    pub fn resolutions(&self) -> Result<Vec<Resolution>, Error> {
        let table = self.table();
        let mut resolutions = vec![resolve(&declared(find(&self.knot)?), &table)?];
        let other = match &table {
            Table::NotAsked => Table::NotAsked,
            _ => Table::OfAnother {
                tensor: EMBED_TOKENS.to_owned(),
            },
        };
        let eligible = |block: &&Block| block.is_columnar_eligible() && block.name != EMBED_TOKENS;
        for block in self.knot.front().blocks().iter().filter(eligible) {
            resolutions.push(resolve(&declared(block), &other)?);
        }
        Ok(resolutions)
    }

    fn table(&self) -> Table {
        let Some(rows) = &self.rows else {
            return Table::NotAsked;
        };
        match find(&self.knot)
            .ok()
            .and_then(|block| block.columnar.as_ref())
        {
            Some(section) => rows.table(section),
            None => Table::Unread {
                object: rows.locator().to_string(),
            },
        }
    }

    /// Finds the rows in the object that was named, if one was and the knot flags the matrix.
    ///
    /// # Errors
    /// [`Error::Rows`] where the object had to be read and could not be.
    pub async fn locate(&self, traffic: &Traffic) -> Result<(), Error> {
        match (&self.rows, &find(&self.knot)?.columnar) {
            (Some(rows), Some(section)) => rows.locate(&self.knot, section, traffic).await,
            _ => Ok(()),
        }
    }

    /// After rows could not be read for `error`: whether that was the fault of a place that was only
    /// assumed, and looking into the object has found another, or that there is none.
    async fn look_again(&self, error: &Error, traffic: &Traffic) -> Result<bool, Error> {
        match (&self.rows, &find(&self.knot)?.columnar) {
            (Some(rows), Some(section)) if may_be_misplaced(error) => {
                rows.look_again(&self.knot, section, traffic).await
            }
            _ => Ok(false),
        }
    }

    /// What `read` gives with an embedding over the row table; `None` where the rows go another way.
    /// Where the rows of a remote object lie is often only assumed until its first reply: when `read`
    /// fails for a wrong assumption, the object is looked into and `read` begins again.
    ///
    /// # Errors
    /// Those of `read` and [`Matrix::locate`], [`Matrix::columnar`].
    pub async fn with_rows<T, R>(
        &self,
        traffic: &Traffic,
        stand_in: Option<Arc<StandIn>>,
        read: impl Fn(Arc<Embedding>) -> R,
    ) -> Result<Option<T>, Error>
    where
        // Not `AsyncFn`: its futures cannot be said to be `Send`.
        R: Future<Output = Result<T, Error>>,
    {
        self.locate(traffic).await?;
        while self.way()? == Way::Columnar {
            let embedding = self.columnar(traffic)?.with_stand_in(stand_in.clone());
            match read(Arc::new(embedding)).await {
                Err(error) if self.look_again(&error, traffic).await? => {
                    tracing::warn!("{}", error.chain());
                }
                outcome => return outcome.map(Some),
            }
        }
        self.may_be_dense()?;
        Ok(None)
    }

    /// That the knot's block may be used although a row table was named: not where its rows are to
    /// come from there always.
    fn may_be_dense(&self) -> Result<(), Error> {
        if self.rows.is_none() || self.config.residency == Residency::ReadResident {
            return Ok(());
        }
        let resolution = resolve(&declared(find(&self.knot)?), &self.table())?;
        Err(Error::config(format!(
            "--embed-always-remote: the rows of {EMBED_TOKENS} cannot come from --columnar-embed: {}",
            resolution.reason
        )))
    }

    /// Whether a row table was named.
    #[must_use]
    pub fn rows_asked(&self) -> bool {
        self.rows.is_some()
    }

    /// The way the matrix's rows go.
    ///
    /// # Errors
    /// [`Error::NoWay`] where there is none.
    pub fn way(&self) -> Result<Way, Error> {
        Ok(resolve(&declared(find(&self.knot)?), &self.table())?.way)
    }

    /// A store over the row table, which [`Matrix::locate`] has found.
    ///
    /// # Errors
    /// [`Error::Config`] for `--verify require` without a row tree, [`Error::Rows`] for a tree that
    /// contradicts itself.
    pub fn columnar(&self, traffic: &Traffic) -> Result<Embedding, Error> {
        let block = find(&self.knot)?;
        let found = self.rows.as_ref().and_then(RowTable::rows);
        let (Some(section), Some(rows), Some((source, map))) = (&block.columnar, &self.rows, found)
        else {
            return Err(Error::Lost {
                what: "the place of the rows",
            });
        };
        let failed = |source| Error::rows(rows.locator(), source);
        // Widened rows are named by what they are widened from and to.
        let names_rows = match rows.sidecar() {
            Some(sidecar) => sidecar.blake3(),
            None => section.rows_blake3,
        };
        let store = ColumnarEmbedBackend::new(
            source,
            map,
            names_rows,
            self.verification(section).map_err(failed)?,
            RowStoreConfig {
                cache_rows: self.config.embed_cache_rows,
                ..RowStoreConfig::default()
            },
            traffic.store_meters(),
        )
        .map_err(failed)?;
        let store = match &self.config.embed_cache_dir {
            Some(directory) => {
                let (table, map) = (store.cached_table(), store.map().clone());
                store.with_tier(DiskTier::start(directory, table, map))
            }
            None => store,
        };
        Ok(Embedding::Columnar(Columnar::new(
            store,
            self.config.residency,
        )))
    }

    /// What stands in for rows whose origin cannot be reached, where the operator allows it.
    ///
    /// # Errors
    /// Those of [`StandIn::load`].
    pub async fn stand_in(&self, traffic: &Traffic) -> Result<Option<Arc<StandIn>>, Error> {
        if self.config.on_failure == OnFailure::Error {
            return Ok(None);
        }
        let exact = match self.config.residency {
            Residency::ReadResident => Exact::Allowed,
            Residency::AlwaysRemote => Exact::Refused,
        };
        let loaded = StandIn::load(&self.knot, find(&self.knot)?, exact, traffic).await?;
        Ok(Some(Arc::new(loaded)))
    }

    /// Every knot of version 2 carries a tree for an eligible tensor, so `require` and `auto` differ
    /// only where a later version leaves it out.
    fn verification(
        &self,
        section: &ColumnarSection,
    ) -> Result<Verification, columnar_embed::Error> {
        if self.config.verify == Verify::Off {
            return Ok(Verification::Off);
        }
        let pinned = self
            .knot
            .front()
            .front_slice(&section.pinned_nodes)
            .unwrap_or_default();
        let tree = RowTree {
            rows: section.rows,
            root: section.tree_root,
            pinned_level: section.pinned_level,
            pinned_nodes: Bytes::copy_from_slice(pinned),
        };
        let paths = match (self.knot.source(), self.knot.mapped(&section.path_table)) {
            (Some(source), _) => PathSource::Remote {
                source,
                base_bytes: section.path_table.start,
            },
            (None, table) => PathSource::Local(table.unwrap_or_default()),
        };
        RowTreeVerifier::new(tree, paths).map(Verification::Tree)
    }

    /// The whole matrix in its stored form: the knot's block, or the row table where the knot was
    /// packed without it.
    ///
    /// # Errors
    /// [`Error::Origin`], [`Error::Digest`] or [`Error::File`] where it cannot be had.
    pub async fn whole(&self, purpose: Purpose, traffic: &Traffic) -> Result<Bytes, Error> {
        let block = find(&self.knot)?;
        if !block.is_external() {
            let payloads = self
                .knot
                .payloads(&[WantedPayload::block(block)], purpose, traffic)
                .await?;
            return payloads.into_iter().next().ok_or(Error::Lost {
                what: "the matrix's payload",
            });
        }
        let sidecar = self.rows.as_ref().and_then(RowTable::sidecar);
        let (table_bytes, blake3) = match sidecar {
            Some(sidecar) => (sidecar.table_bytes(), sidecar.table_blake3()),
            None => (self.table_bytes, block.blake3),
        };
        let wanted = WantedPayload {
            name: EMBED_TOKENS.to_owned(),
            range: 0..table_bytes,
            blake3,
        };
        self.locate(traffic).await?;
        let purpose = match sidecar {
            None => purpose,
            // What arrives is not yet the matrix.
            Some(_) => purpose.telling(Arc::new(())),
        };
        let stored = self.stored_table(wanted, purpose, traffic).await?;
        match sidecar {
            None => Ok(stored),
            Some(sidecar) => widened(Arc::clone(sidecar), stored, block.blake3).await,
        }
    }

    /// All rows as the row table has them, checked against their digest.
    async fn stored_table(
        &self,
        wanted: WantedPayload,
        purpose: Purpose,
        traffic: &Traffic,
    ) -> Result<Bytes, Error> {
        match self.rows.as_ref().and_then(RowTable::whole) {
            Some(WholeTable::File(path, range)) => {
                let object = path.display().to_string();
                tokio::task::spawn_blocking(move || checked_file(&path, &object, range, &wanted))
                    .await
                    .map_err(|_panicked| Error::Lost {
                        what: "the row table",
                    })?
            }
            Some(WholeTable::Object(source, range)) => {
                let (cache, streams) = (self.knot.cache().clone(), self.knot.streams().clone());
                let fetcher = PayloadFetcher::new(source, cache, streams);
                let wanted = WantedPayload { range, ..wanted };
                let payloads = fetcher.fetch(&[wanted], purpose, traffic).await?;
                payloads.into_iter().next().ok_or(Error::Lost {
                    what: "the row table",
                })
            }
            None => {
                resolve(&declared(find(&self.knot)?), &self.table())?;
                Err(Error::Lost {
                    what: "the row table",
                })
            }
        }
    }

    /// The matrix's block, for its shape and dtype.
    ///
    /// # Errors
    /// [`Error::Config`] where the knot has none, which [`Matrix::open`] has ruled out.
    pub fn block(&self) -> Result<&Block, Error> {
        find(&self.knot)
    }

    /// `bytes`, the whole matrix, as a table of rows.
    #[must_use]
    pub fn dense_table(&self, bytes: Bytes) -> DenseTable {
        DenseTable::new(bytes, self.row_bytes)
    }
}

fn find(knot: &OpenKnot) -> Result<&Block, Error> {
    knot.front().block(EMBED_TOKENS).ok_or_else(|| {
        Error::config(format!(
            "knot {} has no tensor {EMBED_TOKENS}",
            knot.locator()
        ))
    })
}

fn declared(block: &Block) -> Declared {
    let table = block
        .columnar
        .as_ref()
        .filter(|_| block.is_columnar_eligible());
    Declared {
        tensor: block.name.clone(),
        table: table.map(|section| DeclaredTable {
            rows: section.rows,
            row_bytes: u64::from(section.row_bytes),
            dtype: section.dtype.name(),
            kinds: match &section.row_sidecar {
                Some(_) => RowKinds::Several,
                None => RowKinds::One,
            },
        }),
        dense: if block.is_external() {
            Dense::External
        } else {
            Dense::Present
        },
    }
}

/// The whole matrix from its rows as they are stored.
async fn widened(sidecar: Arc<Sidecar>, stored: Bytes, blake3: [u8; 32]) -> Result<Bytes, Error> {
    let widen = move || {
        let failed = |error| Error::rows(EMBED_TOKENS, error);
        // A few times the stored rows, which are in memory.
        let rows = usize::try_from(sidecar.rows()).unwrap_or_default();
        let row_bytes = sidecar.matrix_row_bytes() as usize;
        let mut wide = Vec::with_capacity(rows.saturating_mul(row_bytes));
        for id in (0..sidecar.rows()).map(RowId) {
            let range = sidecar.range(id).map_err(failed)?;
            let row = usize::try_from(range.start)
                .ok()
                .zip(usize::try_from(range.end).ok())
                .and_then(|(start, end)| stored.get(start..end));
            wide.extend(sidecar.widen(id, row.unwrap_or_default()).map_err(failed)?);
        }
        let wanted = WantedPayload {
            name: EMBED_TOKENS.to_owned(),
            range: 0..wide.len() as u64,
            blake3,
        };
        wanted.check(blake3::hash(&wide), "the widened rows")?;
        Ok(Bytes::from(wide))
    };
    tokio::task::spawn_blocking(widen)
        .await
        .map_err(|_panicked| Error::Lost {
            what: "the widened rows",
        })?
}

/// Maps a local file and hashes the rows in it: they stand in for a block of the knot.
fn checked_file(
    path: &std::path::Path,
    object: &str,
    range: std::ops::Range<u64>,
    wanted: &WantedPayload,
) -> Result<Bytes, Error> {
    let bytes = mmap::map(path)?;
    let at = |offset: u64| {
        usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len())
    };
    // A file that was cut meanwhile gives fewer bytes, whose digest is another.
    let rows = bytes.slice(at(range.start)..at(range.end));
    wanted.check(blake3::hash(&rows), object)?;
    Ok(rows)
}
