//! An opened knot: its front, and its payloads wherever they are, as `Bytes` without a copy.
//! A local knot is mapped; a remote one is fetched by range into the block cache. Either way a payload
//! is hashed before it is handed out. What the payloads mean is the model's matter. Specification of the file: docs/format/gkq-v2.md.

mod arrivals;
mod block_cache;
mod fetch;
mod groups;
mod incoming;
mod mapped;
mod streams;

pub use arrivals::{Arrivals, Purpose};
pub use block_cache::BlockCache;
pub use fetch::{PayloadFetcher, WantedPayload};
pub use streams::{Rank, Streams};

use crate::cli::Verify;
use crate::config::Config;
use crate::error::Error;
use crate::locator::Locator;
use crate::origin::Origins;
use crate::places::{Candidate, KnotPlace, Places};
use crate::traffic::{Kind, Traffic};
use bytes::Bytes;
use gkq_v2::{Block, Knot, Section};
use helix_transport::{ByteRange, ErrorKind, RangeSource};
use mapped::Mapped;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// First read of a remote knot. Table and texts of a 24-layer model take about 70 KB and its pinned
/// nodes 128 KiB, so that one request opens it; a longer front takes a second one.
const FIRST_READ_BYTES: u64 = 256 * 1024;

/// A knot, ready to hand out payloads.
#[derive(Debug)]
pub struct OpenKnot {
    locator: Locator,
    rows: Option<Locator>,
    front: Knot,
    payloads: Payloads,
    origins: Origins,
    cache: BlockCache,
    streams: Streams,
}

#[derive(Debug)]
enum Payloads {
    Mapped(Mapped),
    Remote(PayloadFetcher),
}

impl OpenKnot {
    /// Opens the first knot that exists of the places that `config` stands for. Of a local one the
    /// front alone is read.
    ///
    /// # Errors
    /// [`Error::NoKnot`] with all that was tried, where several places or a default place had
    /// none; otherwise what went wrong with the knot that was found.
    pub async fn open(config: &Config, traffic: &Traffic) -> Result<Self, Error> {
        let places = Places::find(config, traffic).await?;
        let origins = &places.origins;
        let cache = BlockCache::with_limit(config.cache_dir.as_deref(), config.cache_limit_bytes);
        let streams = Streams::default();
        let (mut tried, mut forbidden) = (Vec::new(), None);
        for candidate in &places.knots {
            let opened = match places.knot(candidate, traffic).await {
                Ok(None) => {
                    let place = candidate.locator();
                    tried.push(format!("{place}: no manifest that names these rows"));
                    continue;
                }
                Ok(Some(place)) => {
                    open_at(place, config, origins, (&cache, &streams, traffic)).await
                }
                Err(error) => Err(error),
            };
            match opened {
                Err(Error::Origin { object, source }) if source.kind() == ErrorKind::NotFound => {
                    tried.push(format!("{object}: {source}"));
                }
                Err(error) if matches!(candidate, Candidate::Named(_)) => return Err(error),
                // A store that may not be listed says so where an object is missing.
                Err(Error::Origin { object, source }) if source.kind() == ErrorKind::Auth => {
                    tried.push(format!("{object}: {source}"));
                    forbidden.get_or_insert(Error::Origin { object, source });
                }
                Err(Error::Knot { object, source })
                    if matches!(*source, gkq_v2::Error::NotAKnot { .. }) =>
                {
                    tried.push(format!("{object}: {source}"));
                }
                Err(error) => return Err(error),
                Ok((place, front, payloads)) => {
                    return Ok(Self {
                        locator: place.locator,
                        rows: place.rows,
                        front,
                        payloads,
                        origins: origins.clone(),
                        cache,
                        streams,
                    });
                }
            }
        }
        Err(forbidden.unwrap_or(Error::NoKnot { tried }))
    }

    /// The row table's place, if one was named.
    #[must_use]
    pub fn rows(&self) -> Option<&Locator> {
        self.rows.as_ref()
    }

    /// The knot's place.
    #[must_use]
    pub fn locator(&self) -> &Locator {
        &self.locator
    }

    /// Table, sections and small texts.
    #[must_use]
    pub fn front(&self) -> &Knot {
        &self.front
    }

    /// Opens other objects of the station, over the same connections.
    #[must_use]
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    /// The station's block cache.
    #[must_use]
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// The station's streams.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// A payload without reading or checking it, where the knot is mapped.
    #[must_use]
    pub fn mapped(&self, range: &Range<u64>) -> Option<Bytes> {
        match &self.payloads {
            Payloads::Mapped(mapped) => mapped.view(range),
            Payloads::Remote(_) => None,
        }
    }

    /// The source of a remote knot.
    #[must_use]
    pub fn source(&self) -> Option<Arc<dyn RangeSource>> {
        match &self.payloads {
            Payloads::Mapped(_) => None,
            Payloads::Remote(fetcher) => Some(fetcher.source()),
        }
    }

    /// Payloads in the order asked, checked: views of the map, or fetched and cached. Each is told as
    /// soon as it is here.
    ///
    /// # Errors
    /// [`Error::Origin`], [`Error::Digest`] or [`Error::File`] of the first that could not be had.
    pub async fn payloads(
        &self,
        wanted: &[WantedPayload],
        purpose: impl Into<Purpose>,
        traffic: &Traffic,
    ) -> Result<Vec<Bytes>, Error> {
        let purpose = purpose.into();
        match &self.payloads {
            Payloads::Remote(fetcher) => fetcher.fetch(wanted, purpose, traffic).await,
            Payloads::Mapped(mapped) => {
                let meter = traffic.streaming(purpose.kind).meter;
                mapped.read(wanted, meter, purpose.arrivals).await
            }
        }
    }
}

impl WantedPayload {
    /// The payload of `block`.
    #[must_use]
    pub fn block(block: &Block) -> Self {
        Self {
            name: block.name.clone(),
            range: block.payload.clone(),
            blake3: block.blake3,
        }
    }

    /// The body of `section`, under a `name` for people.
    #[must_use]
    pub fn section(section: &Section, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            range: section.range.clone(),
            blake3: section.blake3,
        }
    }
}

/// Opens the knot at `place`, and holds it against the manifest that named it.
async fn open_at(
    place: KnotPlace,
    config: &Config,
    origins: &Origins,
    (cache, streams, traffic): (&BlockCache, &Streams, &Traffic),
) -> Result<(KnotPlace, Knot, Payloads), Error> {
    let locator = &place.locator;
    let (front, payloads) = match locator {
        Locator::File(path) => open_file(path, locator, config.verify)?,
        Locator::Http(_) => {
            let (source, front) = open_remote(locator, origins, traffic).await?;
            let fetcher = PayloadFetcher::new(source, cache.clone(), streams.clone());
            (front, Payloads::Remote(fetcher))
        }
    };
    if let Some(manifest) = &place.manifest {
        manifest.check_knot(&front)?;
    }
    Ok((place, front, payloads))
}

fn open_file(path: &Path, locator: &Locator, verify: Verify) -> Result<(Knot, Payloads), Error> {
    let bytes = crate::mmap::map(path).map_err(|error| missing(locator, error))?;
    let front = Knot::parse(&bytes, bytes.len() as u64);
    let front = front.map_err(|source| Error::knot(locator, source))?;
    let mapped = Mapped::new(locator.to_string(), bytes, verify);
    Ok((front, Payloads::Mapped(mapped)))
}

async fn open_remote(
    locator: &Locator,
    origins: &Origins,
    traffic: &Traffic,
) -> Result<(Arc<dyn RangeSource>, Knot), Error> {
    let source = origins.open(locator)?;
    let front = read_front(locator, source.as_ref(), traffic).await?;
    let front = front.map_err(|source| Error::knot(locator, source))?;
    Ok((source, front))
}

pub(crate) async fn read_front(
    locator: &Locator,
    source: &dyn RangeSource,
    traffic: &Traffic,
) -> Result<Result<Knot, gkq_v2::Error>, Error> {
    let options = traffic.streaming(Kind::Probe);
    let failed = |source| Error::origin(locator, source);
    let mut front = source
        .read_prefix(FIRST_READ_BYTES, &options)
        .await
        .map_err(failed)?;
    traffic.probe.add_waves(1);
    let object_bytes = source
        .version()
        .map_or(front.len() as u64, |version| version.len_bytes);
    let front_bytes = match Knot::front_len(&front) {
        Ok(bytes) => bytes,
        Err(error) => return Ok(Err(error)),
    };
    let have = front.len() as u64;
    if front_bytes > have && front_bytes <= object_bytes {
        let rest = ByteRange::new(have, front_bytes).map_err(failed)?;
        let rest = source.read(rest, &options).await.map_err(failed)?;
        traffic.probe.add_waves(1);
        front = [front, rest].concat().into();
    }
    traffic
        .probe
        .add_useful(front_bytes.min(front.len() as u64));
    Ok(Knot::parse(&front, object_bytes))
}

/// A file that is not there is reported as a missing object, like a remote one.
fn missing(locator: &Locator, error: Error) -> Error {
    match error {
        Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            let object = locator.to_string();
            Error::origin(locator, helix_transport::Error::Io { object, source })
        }
        other => other,
    }
}
