//! The pinned version of one object: total length and entity tag, compared on every reply.
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
        parse_quoted(field_value.trim()).map(Self)
    }

    /// The tag with its quotes, as it is sent in `If-Match`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text with its quotes, if it is an entity tag without the mark of a weak one.
fn parse_quoted(text: &str) -> Option<Arc<str>> {
    let opaque = text.strip_prefix('"')?.strip_suffix('"')?;
    // etagc of RFC 9110: visible ASCII without the quote, or obs-text (not in a &str's ASCII).
    let legal = opaque
        .bytes()
        .all(|byte| byte > 0x20 && byte != b'"' && byte != 0x7f);
    (legal && text.len() <= MAX_ETAG_BYTES).then(|| text.into())
}

/// An entity tag that promises nothing about bytes, as in `W/"5f3a"`. It is never sent, but two of
/// one object that differ are two versions: Apache marks the tags of young files as weak.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WeakEtag(Arc<str>);

impl WeakEtag {
    /// The tag in the value of an `ETag` field; `None` if it is strong or malformed.
    #[must_use]
    pub fn parse(field_value: &str) -> Option<Self> {
        let text = field_value.trim();
        parse_quoted(text.strip_prefix("W/")?).map(|_| Self(text.into()))
    }

    /// The tag with its mark and quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for WeakEtag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    /// The weak entity tag, where there is no strong one.
    pub weak_etag: Option<WeakEtag>,
}

impl ObjectVersion {
    /// The tag of either kind, as it was sent; `none` for none.
    #[must_use]
    pub fn tag_text(&self) -> &str {
        self.etag
            .as_ref()
            .map(StrongEtag::as_str)
            .or(self.weak_etag.as_ref().map(WeakEtag::as_str))
            .unwrap_or("none")
    }

    /// Whether the tags can be those of one version. Their opaque parts count: Apache takes the mark
    /// of a weak tag away once the file is a second old. A strong tag that appears or disappears is a
    /// change (half a pin is none), a weak one may be on some replies only.
    #[must_use]
    pub fn tags_agree(&self, other: &Self) -> bool {
        let has_strong = self.etag.is_some() || other.etag.is_some();
        let bare = |version: &Self| match version.tag_text() {
            "none" => None,
            tag => Some(tag.trim_start_matches("W/").to_owned()),
        };
        match (bare(self), bare(other)) {
            (Some(left), Some(right)) => left == right,
            (None, None) => true,
            _ => !has_strong,
        }
    }
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
    /// [`Error::Changed`] if the length is not the pinned one, or the tag is that of another
    /// version ([`ObjectVersion::tags_agree`]).
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
        if !pinned.tags_agree(found) {
            return changed(
                "entity tag",
                pinned.tag_text().to_owned(),
                found.tag_text().to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tag: &str) -> ObjectVersion {
        ObjectVersion {
            len_bytes: 7,
            etag: StrongEtag::parse(tag),
            weak_etag: WeakEtag::parse(tag),
        }
    }

    #[test]
    fn tags_are_told_apart() {
        for (tag, strong, weak) in [
            ("\"a\"", true, false),
            ("W/\"a\"", false, true),
            ("w/\"a\"", false, false),
            ("W/ \"a\"", false, false),
            ("W/a", false, false),
            ("\"a\"b\"", false, false),
            ("", false, false),
        ] {
            assert_eq!(StrongEtag::parse(tag).is_some(), strong, "{tag}");
            assert_eq!(WeakEtag::parse(tag).is_some(), weak, "{tag}");
        }
        assert!(WeakEtag::parse(&format!("W/\"{}\"", "x".repeat(2000))).is_none());
    }

    #[test]
    fn agreement_of_tags() {
        for (first, then, agree) in [
            ("\"a\"", "\"a\"", true),
            ("\"a\"", "\"b\"", false),
            ("\"a\"", "", false),
            ("", "\"a\"", false),
            ("", "", true),
            ("W/\"a\"", "W/\"a\"", true),
            ("W/\"a\"", "W/\"b\"", false),
            // Apache, a second later.
            ("W/\"a\"", "\"a\"", true),
            ("\"a\"", "W/\"a\"", true),
            ("W/\"a\"", "\"b\"", false),
            ("W/\"a\"", "", true),
            ("", "W/\"a\"", true),
        ] {
            assert_eq!(
                version(first).tags_agree(&version(then)),
                agree,
                "{first} {then}"
            );
            let pinned = PinnedVersion::default();
            let range = ByteRange { start: 0, end: 1 };
            pinned.check("o", range, &version(first)).unwrap();
            let second = pinned.check("o", range, &version(then));
            assert_eq!(second.is_ok(), agree);
            if let Err(error) = second {
                let show = |tag: &str| {
                    if tag.is_empty() {
                        "none".to_owned()
                    } else {
                        tag.to_owned()
                    }
                };
                assert_eq!(
                    error.to_string(),
                    format!(
                        "o: range 0..1: object changed: entity tag was {}, now {}",
                        show(first),
                        show(then)
                    )
                );
            }
        }
    }
}
