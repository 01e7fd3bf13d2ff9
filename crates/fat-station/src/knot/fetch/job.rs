//! One fetch under way: who fetches what, streams of neighbours, and the wait for what another
//! station is fetching. Blocks begin in the order of the object. No lock is waited for while another
//! is held, so stations that share a cache cannot wait for each other.

use super::arriving::{Arriving, Begun};
use super::landing::Landing;
use super::{PayloadFetcher, WantedPayload};
use crate::error::Error;
use crate::knot::block_cache::{Claim, Room};
use crate::knot::groups::{Group, run};
use crate::knot::incoming::blocking;
use crate::knot::streams::{Place, Rank};
use crate::progress::Progress;
use bytes::Bytes;
use futures::TryStreamExt as _;
use helix_transport::{ByteRange, Connection, ReadOptions};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Reads of a payload whose bytes do not match its digest.
const DIGEST_ATTEMPTS: u32 = 2;

/// Between two looks at a block that another station is fetching.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time without any change in the cache until a block that another station holds is fetched
/// all the same: three stall limits of the transport. A station that loads writes every second.
const OTHERS_PATIENCE: Duration = Duration::from_secs(15);

/// What all payloads of one fetch share.
pub(super) struct Job<'a> {
    pub(super) fetcher: &'a PayloadFetcher,
    pub(super) landing: &'a Landing<'a>,
    pub(super) rank: Rank,
    pub(super) options: &'a ReadOptions,
    pub(super) progress: &'a Progress,
    pub(super) room: Arc<Room>,
    /// Streams that were begun.
    pub(super) streams: AtomicU64,
    /// Held from a group's claim to its first request: claims are work of other threads, and would
    /// else begin in any order. It is fair, so groups begin in the order of the object.
    pub(super) turn: Mutex<()>,
}

/// A claim whose file is hashed as far as it goes.
#[expect(
    clippy::large_enum_variant,
    reason = "one a payload of a group, moved once: a box would cost more than the bytes it saves"
)]
enum Ready {
    Found(Bytes),
    Ours(Option<Begun>),
    Theirs,
}

/// How a payload is claimed.
#[derive(Clone, Copy)]
enum Name {
    /// Under its digest, where one station at most fetches it.
    Shared,
    /// Under a name of its own, whoever else may be at it.
    Private,
}

impl<'a> Job<'a> {
    /// Fetches `group` when its turn comes, but for the payloads that another station fetches: their
    /// places.
    pub(super) async fn group(&self, group: Group, place: Place) -> Result<Vec<usize>, Error> {
        let _stream = place.turn().await?;
        let mut elsewhere = Vec::new();
        let mut queue = VecDeque::new();
        let turn = self.turn.lock().await;
        for (&at, ready) in group
            .members
            .iter()
            .zip(self.claim(&group.members, Name::Shared).await?)
        {
            match ready {
                Ready::Found(bytes) => self.landing.land(at, &bytes),
                Ready::Theirs => elsewhere.push(at),
                Ready::Ours(begun) => {
                    queue.push_back(self.begin(at, begun));
                    continue;
                }
            }
            self.progress.spare(self.wanted(at).bytes());
        }
        // The stream is begun before the next group's task is woken.
        drop(turn);
        self.fetch(queue).await?;
        Ok(elsewhere)
    }

    fn wanted(&self, at: usize) -> &'a WantedPayload {
        &self.landing.wanted()[at]
    }

    /// A payload that another station was fetching: as soon as that has it, or instead of it where it
    /// ended or does nothing any more.
    pub(super) async fn elsewhere(&self, at: usize) -> Result<(), Error> {
        let (mut pulse, mut since) = (None, Instant::now());
        let mut name = Name::Shared;
        loop {
            let ready = self.claim(&[at], name).await?.pop();
            match ready {
                Some(Ready::Found(bytes)) => {
                    self.landing.land(at, &bytes);
                    return Ok(());
                }
                Some(Ready::Ours(begun)) => {
                    let _stream = self.fetcher.streams.stand(self.rank).turn().await?;
                    self.progress.more(self.wanted(at).bytes());
                    return self.fetch(VecDeque::from([self.begin(at, begun)])).await;
                }
                Some(Ready::Theirs) | None => {}
            }
            let cache = self.fetcher.cache.clone();
            let found = Some(blocking(move || Ok(cache.pulse())).await?);
            if found != pulse {
                (pulse, since) = (found, Instant::now());
            } else if since.elapsed() >= OTHERS_PATIENCE {
                tracing::warn!(
                    block = self.wanted(at).name,
                    "another station holds this block and has written nothing for {} s: it is \
                     fetched here as well",
                    OTHERS_PATIENCE.as_secs()
                );
                name = Name::Private;
                continue;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Claims payloads, and hashes what is there of those that are ours: work for a thread that may
    /// wait for the disk.
    async fn claim(&self, members: &[usize], name: Name) -> Result<Vec<Ready>, Error> {
        let (cache, room) = (self.fetcher.cache.clone(), Arc::clone(&self.room));
        let wanted = members
            .iter()
            .map(|&at| (self.wanted(at).blake3, self.wanted(at).bytes()));
        let wanted: Vec<([u8; 32], u64)> = wanted.collect();
        let claim = move || {
            let ready = wanted.into_iter().map(|(digest, len_bytes)| {
                let claim = match name {
                    Name::Shared => cache.claim(&digest, len_bytes, &room),
                    Name::Private => cache.claim_private(len_bytes, &room),
                };
                match claim {
                    Claim::Found(bytes) => Ready::Found(bytes),
                    Claim::Theirs => Ready::Theirs,
                    Claim::Nowhere => Ready::Ours(None),
                    // A file that can be neither read nor emptied is not written to either.
                    Claim::Ours(partial) => Ready::Ours(Begun::read(partial).ok()),
                }
            });
            Ok(ready.collect())
        };
        blocking(claim).await
    }

    fn begin(&self, at: usize, begun: Option<Begun>) -> Arriving<'a> {
        let arriving = Arriving::begin(at, self.wanted(at), begun, &self.fetcher.cache);
        self.progress.spare(arriving.resumed_bytes);
        arriving
    }

    /// Streams the payloads of `queue`, neighbours with one request.
    async fn fetch(&self, mut queue: VecDeque<Arriving<'a>>) -> Result<(), Error> {
        while let Some(next) = queue.front() {
            let refused = if next.rest().is_empty() {
                // Only its name was missing.
                self.accept(&mut queue).await?
            } else {
                self.stream(&mut queue).await?
            };
            if let Some(arriving) = refused {
                queue.push_front(self.again(arriving)?);
            }
        }
        Ok(())
    }

    /// One stream, as far as neighbours reach. Gives back a payload whose bytes are not those of the
    /// table; what follows it in the stream is not read.
    async fn stream(
        &self,
        queue: &mut VecDeque<Arriving<'a>>,
    ) -> Result<Option<Arriving<'a>>, Error> {
        let source = &self.fetcher.source;
        let failed = |error| Error::origin(source.name(), error);
        let range = run(queue.iter().map(Arriving::rest));
        let range = ByteRange::new(range.start, range.end).map_err(failed)?;
        self.streams.fetch_add(1, Ordering::Relaxed);
        // Wrong bytes are asked again over another connection: whatever sits on the old one is not
        // asked twice.
        let options = match queue.front() {
            Some(next) if next.refused > 0 => self.options.clone().over(Connection::Fresh),
            _ => self.options.clone(),
        };
        let mut pieces = source.stream(range, &options);
        let mut offset = range.start;
        loop {
            let mut piece = match pieces.try_next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => {
                    if let Some(open) = queue.front_mut() {
                        open.flush().await?;
                    }
                    return Err(failed(error));
                }
            };
            self.progress.add(piece.len() as u64);
            while !piece.is_empty() {
                let Some(arriving) = queue.front_mut() else {
                    break;
                };
                offset += arriving.take(&mut piece, offset, self.landing).await?;
                if arriving.rest().is_empty()
                    && let refused @ Some(_) = self.accept(queue).await?
                {
                    return Ok(refused);
                }
            }
        }
        if offset == range.end {
            return Ok(None);
        }
        if let Some(open) = queue.front_mut() {
            open.flush().await?;
        }
        // Sources promise the whole range or an error: this one has broken its promise.
        Err(failed(helix_transport::Error::Interrupted {
            object: source.name().to_owned(),
            range,
            received_bytes: offset - range.start,
            source: None,
        }))
    }

    /// Lands the first payload of `queue`, which is whole, or gives it back where its digest is wrong.
    async fn accept(
        &self,
        queue: &mut VecDeque<Arriving<'a>>,
    ) -> Result<Option<Arriving<'a>>, Error> {
        let Some(arriving) = queue.pop_front() else {
            return Ok(None);
        };
        if arriving.check(self.fetcher.source.name()).is_err() {
            return Ok(Some(arriving));
        }
        let received = arriving.wanted.bytes() - arriving.resumed_bytes;
        self.options.meter.add_useful(received);
        let (at, bytes) = arriving.keep().await?;
        self.landing.land(at, &bytes);
        Ok(None)
    }

    /// A payload whose bytes were wrong, to be read once more from its start; the error where it was.
    fn again(&self, mut arriving: Arriving<'a>) -> Result<Arriving<'a>, Error> {
        if arriving.resumed_bytes > 0 {
            // Whether the file or the wire was wrong cannot be told: the wire is not blamed.
            tracing::warn!(
                block = arriving.wanted.name,
                "what an earlier start left of this block is not its beginning; it is read from its start"
            );
        } else if let Err(error) = arriving.check(self.fetcher.source.name()) {
            self.options.meter.add_integrity_failure();
            arriving.refused += 1;
            if arriving.refused >= DIGEST_ATTEMPTS {
                arriving.reset();
                return Err(error);
            }
            tracing::warn!(attempt = arriving.refused, "{error}; reading it again");
        }
        arriving.reset();
        self.progress.more(arriving.wanted.bytes());
        Ok(arriving)
    }
}
