//! An opened knot: its front, and its payloads wherever they are, as `Bytes` without a copy.
//! A local knot is mapped; a remote one is fetched by range into the block cache. What the payloads
//! mean is the model's matter. Specification of the file: docs/format/gkq-v2.md.

mod block_cache;
mod fetch;
mod groups;

pub use block_cache::BlockCache;
pub use fetch::{PayloadFetcher, WantedPayload};

use crate::config::Config;
use crate::error::Error;
use crate::locator::Locator;
use crate::origin;
use crate::telemetry;
use crate::traffic::{Kind, Traffic};
use bytes::Bytes;
use gkq_v2::{Block, Knot, Section};
use helix_transport::{ByteRange, ErrorKind, RangeSource};
use std::ops::Range;
use std::sync::Arc;

/// First read of a remote knot. Table and texts of a 24-layer model take about 70 KB and its pinned
/// nodes 128 KiB, so that one request opens it; a longer front takes a second one.
const FIRST_READ_BYTES: u64 = 256 * 1024;

/// A knot, ready to hand out payloads.
#[derive(Debug)]
pub struct OpenKnot {
    locator: Locator,
    front: Knot,
    payloads: Payloads,
}

#[derive(Debug)]
enum Payloads {
    Mapped(Bytes),
    Remote(PayloadFetcher),
}

impl OpenKnot {
    /// Opens the first of `config.knots` that exists.
    ///
    /// # Errors
    /// [`Error::NoKnot`] with all that was tried, where several places or a default place had
    /// none; otherwise what went wrong with the knot that was found.
    pub async fn open(config: &Config, traffic: &Traffic) -> Result<Self, Error> {
        let mut tried = Vec::new();
        for locator in &config.knots {
            match Self::open_at(locator, config, traffic).await {
                Err(Error::Origin { object, source }) if source.kind() == ErrorKind::NotFound => {
                    tried.push(format!("{object}: {source}"));
                }
                other => return other,
            }
        }
        Err(Error::NoKnot { tried })
    }

    async fn open_at(locator: &Locator, config: &Config, traffic: &Traffic) -> Result<Self, Error> {
        let (front, payloads) = match locator {
            Locator::File(path) => {
                let bytes = crate::mmap::map(path).map_err(|error| missing(locator, error))?;
                let front = Knot::parse(&bytes, bytes.len() as u64);
                (front, Payloads::Mapped(bytes))
            }
            Locator::Http(_) => {
                let source = origin::open(locator, config.cleartext)?;
                let front = read_front(locator, source.as_ref(), traffic).await?;
                let cache = BlockCache::open(&config.cache_dir)?;
                (front, Payloads::Remote(PayloadFetcher::new(source, cache)))
            }
        };
        let front = front.map_err(|source| Error::knot(locator, source))?;
        Ok(Self {
            locator: locator.clone(),
            front,
            payloads,
        })
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

    /// A payload without reading it, where the knot is mapped.
    #[must_use]
    pub fn mapped(&self, range: &Range<u64>) -> Option<Bytes> {
        match &self.payloads {
            Payloads::Mapped(bytes) => slice(bytes, range),
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

    /// Payloads in the order asked: views of the map, or fetched, checked and cached.
    ///
    /// # Errors
    /// [`Error::Origin`], [`Error::Digest`] or [`Error::File`] of the first that could not be had.
    pub async fn payloads(
        &self,
        wanted: &[WantedPayload],
        kind: Kind,
        traffic: &Traffic,
    ) -> Result<Vec<Bytes>, Error> {
        match &self.payloads {
            Payloads::Remote(fetcher) => fetcher.fetch(wanted, kind, traffic).await,
            Payloads::Mapped(bytes) => wanted
                .iter()
                .map(|payload| {
                    let bytes_of = payload.range.end - payload.range.start;
                    telemetry::knot_block(&payload.name, bytes_of).record("from", "map");
                    // The front was checked against the length of the map: only a bug leads here.
                    slice(bytes, &payload.range).ok_or(Error::Lost {
                        what: "a mapped payload",
                    })
                })
                .collect(),
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

async fn read_front(
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

fn slice(bytes: &Bytes, range: &Range<u64>) -> Option<Bytes> {
    let start = usize::try_from(range.start).ok()?;
    let end = usize::try_from(range.end).ok()?;
    (start <= end && end <= bytes.len()).then(|| bytes.slice(start..end))
}
