//! Rows asked for on an assumption about their object: the reads go out unproved, and the first reply
//! proves the object's length or ends them. It decides nothing about the rows themselves: their tree
//! does.

use std::sync::Arc;

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use helix_transport::{ByteRange, Error, ManyRead, ObjectVersion, RangeSource, ReadOptions};

use tokio::sync::{Mutex, MutexGuard};

use super::{Container, Evidence, Located, LocationHint, Wanted};

/// Rows of a bare file that nothing was read of. Where the name does not say that it is one, the
/// first range goes out alone: a wrong guess then costs a row and not a batch.
pub(super) fn bare(
    source: &Arc<dyn RangeSource>,
    wanted: &Wanted,
    first: First,
) -> Result<Located, crate::Error> {
    Ok(Located {
        source: Arc::new(ExpectedLength {
            inner: Arc::clone(source),
            object_bytes: wanted.table_bytes()?,
            alone: match first {
                First::Batch => None,
                First::Alone => Some(Mutex::default()),
            },
        }),
        layout: wanted.layout(0)?,
        container: Container::Bare,
        evidence: Evidence::Assumed,
    })
}

/// What goes out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// Everything that is asked.
    Batch,
    /// One range, whose reply the others wait for.
    Alone,
}

/// Rows where the packer saw them.
pub(super) fn at_hint(
    source: &Arc<dyn RangeSource>,
    wanted: &Wanted,
    hint: &LocationHint,
) -> Result<Located, crate::Error> {
    let gguf = hint.file.to_ascii_lowercase().ends_with(".gguf");
    let container = if gguf {
        Container::Gguf
    } else {
        Container::Safetensors
    };
    let (base, object_bytes) = (hint.base_bytes, hint.object_bytes);
    let layout = wanted.layout(base)?;
    layout.check_object(source.name(), object_bytes)?;
    located(source, wanted, (base, object_bytes), container)
}

fn located(
    source: &Arc<dyn RangeSource>,
    wanted: &Wanted,
    (base_bytes, object_bytes): (u64, u64),
    container: Container,
) -> Result<Located, crate::Error> {
    Ok(Located {
        source: of_length(source, object_bytes),
        layout: wanted.layout(base_bytes)?,
        container,
        evidence: Evidence::Assumed,
    })
}

/// `source`, held to one length of its object.
pub(super) fn of_length(source: &Arc<dyn RangeSource>, object_bytes: u64) -> Arc<dyn RangeSource> {
    Arc::new(ExpectedLength {
        inner: Arc::clone(source),
        object_bytes,
        alone: None,
    })
}

/// A source whose object must have one length. As soon as a reply has told another one, nothing more
/// is asked, and what came is not handed out.
#[derive(Debug)]
struct ExpectedLength {
    inner: Arc<dyn RangeSource>,
    object_bytes: u64,
    /// Held by the one read that goes out before the length is known, where others are to wait.
    alone: Option<Mutex<()>>,
}

impl ExpectedLength {
    /// The right to be the first read, where there is such a thing; `None` once the length is known.
    async fn first(&self) -> Option<MutexGuard<'_, ()>> {
        let alone = self
            .alone
            .as_ref()
            .filter(|_| self.inner.version().is_none())?;
        let guard = alone.lock().await;
        self.inner.version().is_none().then_some(guard)
    }

    fn check(&self, range: ByteRange) -> Result<(), Error> {
        match self.inner.version() {
            Some(version) if version.len_bytes != self.object_bytes => Err(Error::Changed {
                object: self.inner.name().to_owned(),
                range,
                fact: "length",
                expected: self.object_bytes.to_string(),
                found: version.len_bytes.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

impl RangeSource for ExpectedLength {
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        async move {
            let first = self.first().await;
            self.check(range)?;
            let bytes = self.inner.read(range, options).await?;
            drop(first);
            self.check(range).map(|()| bytes)
        }
        .boxed()
    }

    fn read_prefix<'a>(
        &'a self,
        max_bytes: u64,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        let range = ByteRange {
            start: 0,
            end: max_bytes,
        };
        async move {
            self.check(range)?;
            let bytes = self.inner.read_prefix(max_bytes, options).await?;
            self.check(range).map(|()| bytes)
        }
        .boxed()
    }

    /// Handed on whole, so that a source that asks for many ranges in one request still can. A
    /// first batch is out before any reply has told the length; what it brought is then refused.
    fn read_many<'a>(
        &'a self,
        ranges: &'a [ByteRange],
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, ManyRead> {
        async move {
            if let (Some(first), Some((range, rest))) = (self.first().await, ranges.split_first())
                && !rest.is_empty()
            {
                let reply = self.inner.read(*range, options).await;
                drop(first);
                let reply = reply.and_then(|bytes| self.check(*range).map(|()| bytes));
                let reply = reply.map_err(Arc::new);
                let mut many = match &reply {
                    // Nothing is known yet: asking for the others in turn would fail in turn.
                    Err(error) if self.inner.version().is_none() => ManyRead {
                        replies: rest.iter().map(|_| Err(Arc::clone(error))).collect(),
                        ..ManyRead::default()
                    },
                    _ => self.read_many(rest, options).await,
                };
                many.replies.insert(0, reply);
                many.requests += 1;
                many.round_trips += 1;
                return many;
            }
            let refused = |range: &ByteRange| self.check(*range).err().map(Arc::new);
            if let Some(error) = ranges.first().and_then(refused) {
                let replies = ranges.iter().map(|_| Err(Arc::clone(&error))).collect();
                return ManyRead {
                    replies,
                    ..ManyRead::default()
                };
            }
            let mut many = self.inner.read_many(ranges, options).await;
            for (reply, range) in many.replies.iter_mut().zip(ranges) {
                if let Some(error) = refused(range) {
                    *reply = Err(error);
                }
            }
            many
        }
        .boxed()
    }

    fn stream<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxStream<'a, Result<Bytes, Error>> {
        if let Err(error) = self.check(range) {
            return stream::iter([Err(error)]).boxed();
        }
        // The first piece has told the length; a wrong one ends the stream there.
        let pieces = self.inner.stream(range, options);
        stream::unfold(Some(pieces), move |pieces| async move {
            let mut pieces = pieces?;
            let piece = pieces.next().await?;
            match piece.and_then(|bytes| self.check(range).map(|()| bytes)) {
                Ok(bytes) => Some((Ok(bytes), Some(pieces))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    fn version(&self) -> Option<ObjectVersion> {
        self.inner.version()
    }

    fn parallelism(&self) -> usize {
        self.inner.parallelism()
    }

    fn request_cost_bytes(&self) -> u64 {
        self.inner.request_cost_bytes()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}
