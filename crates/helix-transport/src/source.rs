//! [`RangeSource`], the seam between bytes and everything that wants some. Decorators (limits,
//! disk tiers, hedging) implement it around another source. Not a file system: one source is one
//! object, and there is no listing and no writing.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};

use crate::{ByteRange, Error, Meter, ObjectVersion};

/// How long a read may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// A row batch, with a user waiting: 10 s in total, all attempts together.
    Batch,
    /// A block or a head: no total, but a limit on the silence between two pieces; a broken
    /// transfer is taken up at its next byte.
    Stream,
}

/// Which connection a read may go over, where there are connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// Whichever is free.
    #[default]
    Any,
    /// One made after the read began, and one range a request. For asking again what came with wrong
    /// bytes: whatever sits on the old connection (a middlebox, one backend of many) is not asked
    /// twice, nor is what puts several ranges together.
    Fresh,
}

/// What accompanies a read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Where the traffic is counted.
    pub meter: Arc<Meter>,
    /// How long it may take.
    pub patience: Patience,
    /// Which connection it may go over.
    pub connection: Connection,
}

impl ReadOptions {
    /// Options for a read over any connection.
    #[must_use]
    pub fn new(meter: Arc<Meter>, patience: Patience) -> Self {
        Self {
            meter,
            patience,
            connection: Connection::Any,
        }
    }

    /// The same options with another choice of connection.
    #[must_use]
    pub fn over(self, connection: Connection) -> Self {
        Self { connection, ..self }
    }
}

/// What came of [`RangeSource::read_many`].
#[derive(Clone, Debug, Default)]
pub struct ManyRead {
    /// For each range, in the order they were given, its bytes or why there are none. One failure
    /// may be the failure of several ranges, hence shared.
    pub replies: Vec<Result<Bytes, Arc<Error>>>,
    /// Requests it took, repetitions after transient failures not counted (the meter has them).
    pub requests: u64,
    /// Rounds of requests in flight together; on warm connections one round trip each.
    pub round_trips: u64,
}

/// Reads started at once by the provided [`RangeSource::read_many`]. A source queues what exceeds
/// its own parallelism; this only bounds the futures of a batch of tens of thousands of ranges.
const MAX_STARTED_READS: usize = 1024;

/// Ranges of one object of one version.
///
/// Dropping a future or stream abandons its request. Whatever is returned belongs to the version
/// that the first accepted reply pinned; a reply of another version is [`Error::Changed`].
pub trait RangeSource: Send + Sync + std::fmt::Debug {
    /// Reads `range`: all of it or an error, never less. An empty range costs no request.
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>>;

    /// Reads the first `max_bytes` bytes; fewer only if the object is shorter. The way to open an
    /// object whose length is unknown: afterwards [`version`](Self::version) has it.
    fn read_prefix<'a>(
        &'a self,
        max_bytes: u64,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>>;

    /// Reads every range of `ranges`, which ought to be ascending and disjoint, all in flight
    /// together. Each is read or failed on its own, as by [`read`](Self::read). A source that has a
    /// better way than one request a range implements this itself.
    fn read_many<'a>(
        &'a self,
        ranges: &'a [ByteRange],
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, ManyRead> {
        async move {
            let reads: Vec<_> = ranges
                .iter()
                .map(|range| self.read(*range, options))
                .collect();
            let replies: Vec<_> = stream::iter(reads)
                .buffered(MAX_STARTED_READS)
                .map(|reply| reply.map_err(Arc::new))
                .collect()
                .await;
            let requests = ranges.iter().filter(|range| !range.is_empty()).count() as u64;
            // Asked after the replies: what a source keeps in flight is known once it is connected.
            let parallelism = self.parallelism().max(1) as u64;
            ManyRead {
                replies,
                requests,
                round_trips: requests.div_ceil(parallelism),
            }
        }
        .boxed()
    }

    /// Streams `range` in order, in pieces of no particular size, together exactly the range.
    /// Ends after the first error.
    fn stream<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxStream<'a, Result<Bytes, Error>>;

    /// The pinned version, once a reply was accepted.
    fn version(&self) -> Option<ObjectVersion>;

    /// Requests worth having in flight at once. More may be started: they queue.
    fn parallelism(&self) -> usize;

    /// What one more request costs, in bytes of heads and framing; the planner's input.
    fn request_cost_bytes(&self) -> u64;

    /// The object's name for people: no query, no userinfo.
    fn name(&self) -> &str;
}

/// Reads a small object whole, a manifest for example, in one request.
///
/// # Errors
/// [`Error::TooLarge`] if it is longer than `limit_bytes` (at most that many bytes were moved),
/// else what [`RangeSource::read_prefix`] says.
pub async fn read_whole(
    source: &dyn RangeSource,
    limit_bytes: u64,
    options: &ReadOptions,
) -> Result<Bytes, Error> {
    let bytes = source.read_prefix(limit_bytes, options).await?;
    match source.version() {
        Some(version) if version.len_bytes > limit_bytes => Err(Error::TooLarge {
            object: source.name().to_owned(),
            len_bytes: version.len_bytes,
            limit_bytes,
        }),
        _ => Ok(bytes),
    }
}

/// Refuses a range that leaves an object of known length, before anything is asked or allocated.
pub(crate) fn check_inside(object: &str, range: ByteRange, len_bytes: u64) -> Result<(), Error> {
    if range.end < range.start {
        return Err(Error::InvertedRange {
            start: range.start,
            end: range.end,
        });
    }
    if range.end > len_bytes {
        return Err(Error::OutsideObject {
            object: object.to_owned(),
            range,
            len_bytes,
        });
    }
    Ok(())
}
