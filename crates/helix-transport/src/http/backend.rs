//! [`HttpBackend`]: one URL as a [`RangeSource`]. Holds no connections of its own (the
//! [`HttpClient`] does) and keeps no bytes.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use url::Url;

use super::exchange::Target;
use super::many::read_many;
use super::response::{Ask, Extent};
use super::route::Route;
use super::transfer::{Continuation, Terms, Transfer, collect};
use super::{HttpClient, HttpConfig};
use crate::redact::{redacted, redacted_text};
use crate::source::check_inside;
use crate::validator::PinnedVersion;
use crate::{ByteRange, Error, ManyRead, ObjectVersion, RangeSource, ReadOptions};

/// An object behind an `http` or `https` URL.
///
/// The first accepted reply pins its version: total length and strong entity tag. Every later
/// reply must be of that version; to see another one, make another backend.
#[derive(Debug)]
pub struct HttpBackend {
    target: Target,
}

impl HttpBackend {
    /// The object at `url`, with a client of its own. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::Url`] if `url` is no `http` or `https` URL or holds credentials,
    /// [`Error::Setting`] if the configuration cannot work.
    pub fn new(url: &str, config: HttpConfig) -> Result<Self, Error> {
        Self::with_client(url, &HttpClient::new(config)?)
    }

    /// The object at `url`, sharing connections and retry budget with the client's other objects.
    ///
    /// # Errors
    /// [`Error::Url`] as for [`HttpBackend::new`].
    pub fn with_client(url: &str, client: &HttpClient) -> Result<Self, Error> {
        let refuse = |url, reason: &str| {
            Err(Error::Url {
                url,
                reason: reason.to_owned(),
            })
        };
        let parsed = match Url::parse(url) {
            Ok(parsed) => parsed,
            Err(error) => return refuse(redacted_text(url), &error.to_string()),
        };
        let name = redacted(&parsed);
        if !matches!(parsed.scheme(), "http" | "https") {
            return refuse(name, "only http and https URLs can be read");
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return refuse(name, "credentials in the URL are not sent");
        }
        let target = Target {
            client: client.clone(),
            name,
            url: parsed,
            pinned: PinnedVersion::default(),
            route: Route::default(),
        };
        Ok(Self { target })
    }

    async fn read_exact(&self, range: ByteRange, options: &ReadOptions) -> Result<Bytes, Error> {
        self.check(range)?;
        let ask = Ask {
            range,
            extent: Extent::Exact,
        };
        let terms = Terms::of(self.target.client.config(), options);
        collect(&self.target, ask, options, terms).await
    }

    async fn read_up_to(&self, max_bytes: u64, options: &ReadOptions) -> Result<Bytes, Error> {
        let ask = match self.target.pinned.get() {
            Some(version) => Ask {
                range: ByteRange {
                    start: 0,
                    end: max_bytes.min(version.len_bytes),
                },
                extent: Extent::Exact,
            },
            None => Ask {
                range: ByteRange {
                    start: 0,
                    end: max_bytes,
                },
                extent: Extent::UpTo,
            },
        };
        let terms = Terms::of(self.target.client.config(), options);
        collect(&self.target, ask, options, terms).await
    }

    /// Refuses what a reply could only refuse, where the length is known.
    fn check(&self, range: ByteRange) -> Result<(), Error> {
        let len_bytes = self
            .target
            .pinned
            .get()
            .map_or(u64::MAX, |version| version.len_bytes);
        check_inside(&self.target.name, range, len_bytes)
    }
}

impl RangeSource for HttpBackend {
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        self.read_exact(range, options).boxed()
    }

    fn read_prefix<'a>(
        &'a self,
        max_bytes: u64,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        self.read_up_to(max_bytes, options).boxed()
    }

    fn read_many<'a>(
        &'a self,
        ranges: &'a [ByteRange],
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, ManyRead> {
        read_many(&self.target, ranges, options).boxed()
    }

    fn stream<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxStream<'a, Result<Bytes, Error>> {
        let ask = Ask {
            range,
            extent: Extent::Exact,
        };
        let transfer = self.check(range).and_then(|()| {
            let terms = Terms::of(self.target.client.config(), options);
            Transfer::new(&self.target, ask, Continuation::Always, options, terms)
        });
        // `None` ends the stream after an error.
        stream::unfold(Some(transfer), |transfer| async move {
            match transfer? {
                Err(error) => Some((Err(error), None)),
                Ok(mut transfer) => match transfer.piece().await {
                    Ok(Some(piece)) => Some((Ok(piece.bytes), Some(Ok(transfer)))),
                    Ok(None) => None,
                    Err(error) => Some((Err(error), None)),
                },
            }
        })
        .boxed()
    }

    fn version(&self) -> Option<ObjectVersion> {
        self.target.pinned.get().cloned()
    }

    /// The configured connections on HTTP/1.1. On HTTP/2, and until a first reply has told which
    /// it is, as many as the origin admits: what is too much waits for a connection.
    fn parallelism(&self) -> usize {
        self.target.parallelism()
    }

    fn request_cost_bytes(&self) -> u64 {
        self.target.request_cost_bytes()
    }

    fn name(&self) -> &str {
        &self.target.name
    }
}
