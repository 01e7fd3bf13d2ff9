//! The pinned version of one object: total length and strong entity tag, compared on every reply.
//! Not a cache key and no proof of content; conditional requests are a courtesy only, since many
//! servers ignore `If-Match` (RFC 9110 sections 8.8.3 and 13.1.1 say what they should do).

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::{ByteRange, Error};

/// An entity tag that promises equal bytes, quotes included, as in `"5f3a"`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StrongEtag(Arc<str>);

/// Longer tags are treated as absent: nothing an origin really sends comes near.
const MAX_ETAG_BYTES: usize = 1024;

impl StrongEtag {
    /// The tag in the value of an `ETag` field; `None` if it is weak (`W/"..."`) or malformed.
    #[must_use]
    pub fn parse(field_value: &str) -> Option<Self> {
        let text = field_value.trim();
        let opaque = text.strip_prefix('"')?.strip_suffix('"')?;
        // etagc of RFC 9110: visible ASCII without the quote, or obs-text (not in a &str's ASCII).
        let legal = opaque
            .bytes()
            .all(|byte| byte > 0x20 && byte != b'"' && byte != 0x7f);
        (legal && text.len() <= MAX_ETAG_BYTES).then(|| Self(text.into()))
    }

    /// The tag with its quotes, as it is sent in `If-Match`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for StrongEtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What tells one version of an object from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Total length of the object in bytes.
    pub len_bytes: u64,
    /// The strong entity tag; `None` where the origin sends none or a weak one, and for files and
    /// memory.
    pub etag: Option<StrongEtag>,
}

/// Set by the first accepted reply, compared with every later one.
#[derive(Debug, Default)]
pub struct PinnedVersion(OnceLock<ObjectVersion>);

impl PinnedVersion {
    /// The pinned version, once there is one.
    #[must_use]
    pub fn get(&self) -> Option<&ObjectVersion> {
        self.0.get()
    }

    /// Pins `found` if nothing is pinned yet, else compares.
    ///
    /// # Errors
    /// [`Error::Changed`] if the length or the tag is not the pinned one. A tag that appears or
    /// disappears is a change too: half a pin is none.
    pub fn check(
        &self,
        object: &str,
        range: ByteRange,
        found: &ObjectVersion,
    ) -> Result<(), Error> {
        let pinned = self.0.get_or_init(|| found.clone());
        let changed = |fact, expected, found| {
            Err(Error::Changed {
                object: object.to_owned(),
                range,
                fact,
                expected,
                found,
            })
        };
        if pinned.len_bytes != found.len_bytes {
            return changed(
                "length",
                pinned.len_bytes.to_string(),
                found.len_bytes.to_string(),
            );
        }
        if pinned.etag != found.etag {
            let show = |etag: &Option<StrongEtag>| {
                etag.as_ref()
                    .map_or_else(|| "none".to_owned(), |tag| tag.as_str().to_owned())
            };
            return changed("entity tag", show(&pinned.etag), show(&found.etag));
        }
        Ok(())
    }
}
