//! [`ColumnarEmbedBackend`]: a batch of row ids in, rows out in request order. Joins cache, single
//! flight and fetcher, and tells what each batch took. Not a tensor, and no model: bytes only.

use std::sync::Arc;

use helix_transport::RangeSource;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tracing::{Instrument, Span, field::Empty};

use crate::{
    Error, PartialBatch, Row, RowBatch, RowStoreConfig,
    batch::Batch,
    cache::{RowCache, RowKey},
    disk::{self, CachedTable, DiskTier, Trust},
    fetch::{RowFetcher, RowLoad},
    gather::{MergeLimits, check_object},
    layout::RowId,
    meters::{FetchReport, RowOutcomes, StoreMeters},
    row_map::RowMap,
    single_flight::{Claim, Stopped},
    verify::Verification,
};

/// Bytes in flight are admitted in units of this size, so that a `u32` of them is enough.
const PERMIT_BYTES: u64 = 1024;

/// Most units of a store, 256 GiB; a limit beyond is as good as none.
const MAX_PERMITS: u32 = 1 << 28;

/// Rows of one table, by id, through a cache.
///
/// A model may have any number of these: one for its vocabulary matrix, others for n-gram or
/// per-layer tables. What an id means is the caller's business.
#[derive(Debug)]
pub struct ColumnarEmbedBackend {
    fetcher: Arc<RowFetcher>,
    object_digest: [u8; 32],
    cache: RowCache,
    tier: Option<DiskTier>,
    admission: Arc<Semaphore>,
    admission_permits: u32,
}

impl ColumnarEmbedBackend {
    /// A store over the rows that `map` finds in `source`. `object_digest` names the rows in the
    /// cache: the BLAKE3 of the whole table. Nothing is read yet.
    ///
    /// # Errors
    /// [`Error::TreeShape`] where the tree is over another number of rows than the map,
    /// [`Error::ObjectTooShort`] where the source's length is known and too small.
    #[expect(
        clippy::too_many_arguments,
        reason = "six things make a store, each of its own kind"
    )]
    pub fn new(
        source: Arc<dyn RangeSource>,
        map: impl Into<RowMap>,
        object_digest: [u8; 32],
        verification: Verification,
        config: RowStoreConfig,
        meters: StoreMeters,
    ) -> Result<Self, Error> {
        let map = map.into();
        check_object(source.as_ref(), &map)?;
        if let Verification::Tree(verifier) = &verification {
            let (expected, found) = (map.rows(), verifier.shape().rows());
            if expected != found {
                let part = "number of rows";
                return Err(Error::TreeShape {
                    rows: found,
                    part,
                    expected,
                    found,
                });
            }
        }
        let units = config.max_in_flight_bytes.div_ceil(PERMIT_BYTES);
        let admission_permits = u32::try_from(units)
            .unwrap_or(MAX_PERMITS)
            .clamp(1, MAX_PERMITS);
        let cache = RowCache::new(config.cache_rows, Arc::clone(&meters.outcomes));
        let limits = MergeLimits {
            overfetch_ratio: config.overfetch_ratio,
            max_span_bytes: config.max_span_bytes,
        };
        Ok(Self {
            fetcher: Arc::new(RowFetcher {
                source,
                map,
                verification,
                limits,
                meters,
            }),
            object_digest,
            cache,
            tier: None,
            admission: Arc::new(Semaphore::new(admission_permits as usize)),
            admission_permits,
        })
    }

    /// The same store on a cache that other stores use too, instead of one of its own. Rows that
    /// leave it are counted where the cache was told to count them.
    #[must_use]
    pub fn with_cache(self, cache: RowCache) -> Self {
        Self { cache, ..self }
    }

    /// The same store with rows kept on disk too. Rows that are on disk are not fetched, and rows that
    /// are fetched are written there, behind the batch that asked for them.
    ///
    /// The tier must be one of [`ColumnarEmbedBackend::cached_table`]; a store with a tier needs a
    /// runtime with a timer.
    #[must_use]
    pub fn with_tier(self, tier: DiskTier) -> Self {
        Self {
            tier: Some(tier),
            ..self
        }
    }

    /// What a [`DiskTier`] of this store's rows is started with.
    #[must_use]
    pub fn cached_table(&self) -> CachedTable {
        let map = self.map();
        let (row_bytes, digest) = match map {
            RowMap::Fixed(layout) => (layout.row_bytes(), self.object_digest),
            RowMap::Indexed(sidecar) => (0, sidecar.table_blake3()),
        };
        CachedTable {
            digest,
            rows: map.rows(),
            row_bytes,
            table_bytes: map.table_bytes(),
            trust: match self.fetcher.verification {
                Verification::Tree(_) => Trust::Verified,
                Verification::Off => Trust::Unchecked,
            },
        }
    }

    /// The rows kept on disk, if they are.
    #[must_use]
    pub fn tier(&self) -> Option<&DiskTier> {
        self.tier.as_ref()
    }

    /// Where the rows lie.
    #[must_use]
    pub fn map(&self) -> &RowMap {
        &self.fetcher.map
    }

    /// The object's name for people: no query, no user information.
    #[must_use]
    pub fn object(&self) -> &str {
        self.fetcher.source.name()
    }

    /// Where the store counts.
    #[must_use]
    pub fn meters(&self) -> &StoreMeters {
        &self.fetcher.meters
    }

    /// The cache: how full it is, and a handle to share it.
    #[must_use]
    pub fn cache(&self) -> &RowCache {
        &self.cache
    }

    /// Rows in the cache now.
    #[must_use]
    pub fn cached_rows(&self) -> u64 {
        self.cache.len_rows()
    }

    /// One row, `row_bytes` bytes. For several rows ask [`ColumnarEmbedBackend::rows`] once: a row
    /// at a time costs a round trip each.
    ///
    /// # Errors
    /// As [`ColumnarEmbedBackend::rows`].
    pub async fn row(&self, id: RowId) -> Result<Row, Error> {
        let batch = self.rows(&[id]).await?;
        batch.rows.into_iter().next().ok_or_else(|| self.stopped(1))
    }

    /// Rows in request order, repetitions included, and what it took to have them.
    ///
    /// What is not cached and not already on its way is fetched with one plan, in parallel. The
    /// load goes on when the caller goes away, for others may wait for it.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] before any request where an id is too large; otherwise the error
    /// of the first row that could not be had ([`Error::Read`], [`Error::RowIntegrity`],
    /// [`Error::LoadStopped`]), or [`Error::NoRuntime`]. Rows that did arrive are cached.
    pub async fn rows(&self, ids: &[RowId]) -> Result<RowBatch, Error> {
        let PartialBatch { rows, report } = self.rows_each(ids).await?;
        let rows = rows.into_iter().collect::<Result<_, _>>()?;
        Ok(RowBatch { rows, report })
    }

    /// As [`ColumnarEmbedBackend::rows`], but rows that could not be had keep nobody from those that
    /// could: for each id, in request order, its row or why there is none.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] before any request where an id is too large, or
    /// [`Error::NoRuntime`].
    pub async fn rows_each(&self, ids: &[RowId]) -> Result<PartialBatch, Error> {
        for id in ids {
            self.map().check(*id)?;
        }
        let mut report = FetchReport {
            asked: ids.len() as u64,
            ..FetchReport::default()
        };
        let span = tracing::info_span!(
            "embed.fetch",
            rows_asked = report.asked,
            hit = Empty,
            disk = Empty,
            missed = Empty,
            coalesced = Empty,
            bytes_received = Empty,
            bytes_useful = Empty,
            requests = Empty,
            round_trips = Empty,
        );
        let rows = self
            .collect(ids, &mut report)
            .instrument(span.clone())
            .await;
        record(&span, &report);
        Ok(PartialBatch {
            rows: rows?,
            report,
        })
    }

    /// Rows that can be had without asking the source, in request order: those in memory and those
    /// on disk. What waits in the flight of another batch is not waited for.
    ///
    /// # Errors
    /// [`Error::RowOutsideMatrix`] where an id is too large.
    pub async fn rows_at_hand(&self, ids: &[RowId]) -> Result<Vec<Option<Row>>, Error> {
        for id in ids {
            self.map().check(*id)?;
        }
        let mut batch = Batch::new(ids, |id| self.cache.shelf.get(&self.key(*id)));
        let missing = batch.missing();
        self.count_hits(
            batch.distinct() - missing.len(),
            &mut FetchReport::default(),
        );
        let mut load = RowLoad::default();
        if let Some(tier) = self.tier.as_ref().filter(|_| !missing.is_empty()) {
            let on_disk = tier.handle().look_up(&missing).await;
            let sound = on_disk
                .into_iter()
                .filter(|(id, row)| self.fetcher.accepts_at_hand(*id, row));
            load.rows.extend(sound.map(|(id, row)| (id, Ok(row))));
            load.widen(self.map());
        }
        let outcomes = &self.meters().outcomes;
        RowOutcomes::add(&outcomes.disk, load.rows.len());
        let landed: Vec<(RowKey, Row)> = load
            .rows
            .iter()
            .filter_map(|(id, row)| Some((self.key(*id), Arc::clone(row.as_ref().ok()?))))
            .collect();
        self.cache.shelf.insert_all(landed);
        for id in missing {
            batch.answer(id, self.taken(&load, id));
        }
        let answers = batch.into_answers().unwrap_or_default();
        Ok(answers.into_iter().map(Result::ok).collect())
    }

    async fn collect(
        &self,
        ids: &[RowId],
        report: &mut FetchReport,
    ) -> Result<Vec<Result<Row, Error>>, Error> {
        let mut batch = Batch::new(ids, |id| self.cache.shelf.get(&self.key(*id)));
        let missing: Vec<RowKey> = batch.missing().into_iter().map(|id| self.key(id)).collect();
        report.distinct = batch.distinct() as u64;
        self.count_hits(batch.distinct() - missing.len(), report);
        if !missing.is_empty() {
            self.fill(&mut batch, &missing, report).await?;
        }
        batch
            .into_answers()
            .ok_or_else(|| self.stopped(missing.len()))
    }

    /// Has the rows `missing` loaded, by this batch or by those that are already at it.
    async fn fill(
        &self,
        batch: &mut Batch,
        missing: &[RowKey],
        report: &mut FetchReport,
    ) -> Result<(), Error> {
        let claim = self.claim(missing).await?;
        self.count_hits(claim.found.len(), report);
        for (key, row) in claim.found {
            batch.answer(key.row, Ok(row));
        }
        if let Some((led, flight)) = claim.led {
            report.missed += led.len() as u64;
            let load = flight.landed().await;
            if let Ok(load) = &load {
                load.charge(report);
            }
            for key in &led {
                let row = match &load {
                    Ok(load) => self.taken(load, key.row),
                    Err(Stopped) => Err(self.stopped(led.len())),
                };
                batch.answer(key.row, row);
            }
        }
        report.coalesced += claim.followed.len() as u64;
        for (key, flight) in claim.followed {
            let load = flight.landed().await.map_err(|Stopped| self.stopped(1));
            let row = load.and_then(|load| self.taken(&load, key.row));
            let outcomes = &self.meters().outcomes;
            let outcome = match row {
                Ok(_) => &outcomes.coalesced,
                Err(_) => &outcomes.failed,
            };
            RowOutcomes::add(outcome, 1);
            batch.answer(key.row, row);
        }
        Ok(())
    }

    /// Claims `missing` once as many bytes may be in flight; a batch beyond the limit runs alone.
    async fn claim(&self, missing: &[RowKey]) -> Result<Claim<RowKey, Row, RowLoad>, Error> {
        let no_runtime = |_| Error::NoRuntime {
            object: self.object().to_owned(),
        };
        let runtime = Handle::try_current().map_err(no_runtime)?;
        let admission = Arc::clone(&self.admission);
        let mut admitted = admission
            .acquire_many_owned(self.permits(missing.len()))
            .await
            .map_err(|_closed| self.stopped(missing.len()))?;
        let shelf = &self.cache.shelf;
        let load = |led: Vec<RowKey>| {
            // Rows that others already load do not count against this load.
            let surplus = admitted
                .num_permits()
                .saturating_sub(self.permits(led.len()) as usize);
            drop(admitted.split(surplus));
            self.load(led, admitted).in_current_span()
        };
        Ok(self
            .cache
            .flights
            .claim(&runtime, missing, |key| shelf.get(key), load))
    }

    /// The load of `led`. It holds no handle to the cache that owns it, only to the rows there.
    fn load(
        &self,
        led: Vec<RowKey>,
        admitted: OwnedSemaphorePermit,
    ) -> impl Future<Output = RowLoad> + Send + use<> {
        let fetcher = Arc::clone(&self.fetcher);
        let shelf = self.cache.shelf.clone();
        let tier = self.tier.as_ref().map(DiskTier::handle);
        async move {
            let ids: Vec<RowId> = led.iter().map(|key| key.row).collect();
            let mut load = disk::load(&fetcher, tier.as_ref(), &ids).await;
            load.widen(&fetcher.map);
            let mut landed = Vec::with_capacity(led.len());
            for key in led {
                if let Some(Ok(row)) = load.rows.get(&key.row) {
                    landed.push((key, Arc::clone(row)));
                }
            }
            let outcomes = &fetcher.meters.outcomes;
            let from_disk = usize::try_from(load.disk_rows).unwrap_or(usize::MAX);
            RowOutcomes::add(&outcomes.disk, from_disk);
            RowOutcomes::add(&outcomes.miss, landed.len().saturating_sub(from_disk));
            RowOutcomes::add(&outcomes.failed, ids.len() - landed.len());
            shelf.insert_all(landed);
            drop(admitted);
            load
        }
    }

    fn key(&self, row: RowId) -> RowKey {
        let verified = matches!(self.fetcher.verification, Verification::Tree(_));
        RowKey {
            object: self.object_digest,
            row,
            verified,
        }
    }

    fn permits(&self, rows: usize) -> u32 {
        let row_bytes = u64::from(self.map().row_bytes());
        let permits = (rows as u64)
            .saturating_mul(row_bytes)
            .div_ceil(PERMIT_BYTES);
        u32::try_from(permits)
            .unwrap_or(u32::MAX)
            .min(self.admission_permits)
    }

    fn taken(&self, load: &RowLoad, id: RowId) -> Result<Row, Error> {
        load.rows
            .get(&id)
            .cloned()
            .unwrap_or_else(|| Err(self.stopped(1)))
    }

    fn count_hits(&self, rows: usize, report: &mut FetchReport) {
        RowOutcomes::add(&self.meters().outcomes.hit, rows);
        report.hit += rows as u64;
    }

    fn stopped(&self, rows: usize) -> Error {
        Error::LoadStopped {
            object: self.object().to_owned(),
            rows,
        }
    }
}

/// Fills the fields that were declared empty, from the report that the counters gave.
fn record(span: &Span, report: &FetchReport) {
    span.record("hit", report.hit);
    span.record("disk", report.disk);
    span.record("missed", report.missed);
    span.record("coalesced", report.coalesced);
    span.record(
        "bytes_received",
        report.received_bytes + report.path_received_bytes,
    );
    span.record("bytes_useful", report.useful_bytes);
    span.record("requests", report.requests);
    span.record("round_trips", report.round_trips);
}
