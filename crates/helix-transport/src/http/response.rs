//! Is this reply the range that was asked, of the object that was pinned? Pure: head in, verdict
//! out. What it refuses is never read: the caller drops the body unread.

use std::sync::{Mutex, PoisonError};

use hyper::HeaderMap;
use hyper::StatusCode;
use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderName,
    LOCATION, RETRY_AFTER,
};

use super::content_range::{ContentRange, number};
use super::multipart::ContentType;
use super::retry_after;
use crate::{ByteRange, Error, ObjectVersion, StrongEtag, WeakEtag};

/// What one request asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    /// From the first byte asked to the last.
    pub(super) range: ByteRange,
    pub(super) extent: Extent<'a>,
}

impl<'a> Ask<'a> {
    /// Asks `ranges`, which are ascending, disjoint and at least two.
    pub(super) fn several(ranges: &'a [ByteRange], answerer: &'a Answerer) -> Self {
        Self {
            range: hull(ranges),
            extent: Extent::Several(ranges, answerer),
        }
    }

    /// The value of `Range`. No space follows a comma: there are servers that stumble over one.
    pub(super) fn range_value(&self) -> String {
        let ranges = match self.extent {
            Extent::Several(ranges, _) => ranges,
            Extent::Exact | Extent::UpTo => &[self.range],
        };
        let mut value = String::from("bytes");
        for (index, range) in ranges.iter().enumerate() {
            value.push(if index == 0 { '=' } else { ',' });
            value.push_str(&format!("{}-{}", range.start, range.end.saturating_sub(1)));
        }
        value
    }
}

/// How a reply that holds less than the range is to be taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent<'a> {
    /// All of the range must come.
    Exact,
    /// The range starts at 0, and an object that is shorter may come whole.
    UpTo,
    /// Only these ranges are asked, and whatever comes of them is welcome.
    Several(&'a [ByteRange], &'a Answerer),
}

/// The origin whose head came last, redirects followed: what is learned from a reply is learned of
/// that one.
#[derive(Debug, Default)]
pub(super) struct Answerer(Mutex<Option<String>>);

impl Answerer {
    pub(super) fn is(&self, origin: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(origin);
    }

    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// From the first byte of ascending ranges to the last.
pub(super) fn hull(ranges: &[ByteRange]) -> ByteRange {
    ByteRange {
        start: ranges.first().map_or(0, |range| range.start),
        end: ranges.last().map_or(0, |range| range.end),
    }
}

/// What a head amounts to.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The body is `range` of an object of this version.
    Content {
        range: ByteRange,
        version: ObjectVersion,
    },
    /// The body is multipart. Its tag is told by the head, its length by each part.
    Parts {
        boundary: String,
        version: ObjectVersion,
    },
    /// The object is empty; the body, if any, is not content.
    Empty { version: ObjectVersion },
    /// Look elsewhere.
    Redirect { location: String },
}

/// Unasked bytes tolerated in a reply to several ranges: servers merge over gaps of about 80 bytes.
/// A reply of more is not read.
pub(super) const MERGED_BYTES: u64 = 64 << 10;

/// The head of a reply, with the names errors need.
pub(super) struct Head<'a> {
    pub(super) object: &'a str,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    /// The version pinned so far.
    pub(super) pinned: Option<&'a ObjectVersion>,
}

impl Head<'_> {
    /// Judges the head as a reply to `ask`.
    pub(super) fn judge(&self, ask: Ask<'_>) -> Result<Verdict, Error> {
        match (self.status.as_u16(), ask.extent) {
            (206, Extent::Several(ranges, _)) => return self.several(ranges, ask.range),
            // Some servers mean the number of ranges by it. What it says of the object, a single
            // range will tell.
            (status @ 416, Extent::Several(..)) => {
                return Err(Error::Status {
                    object: self.object.to_owned(),
                    range: ask.range,
                    status,
                    retry_after: None,
                });
            }
            _ => {}
        }
        match self.status.as_u16() {
            206 => self.partial(ask),
            200 => self.whole(ask),
            301 | 302 | 303 | 307 | 308 => {
                let location = self
                    .text(&LOCATION, ask.range)?
                    .ok_or_else(|| Error::Redirect {
                        object: self.object.to_owned(),
                        reason: "no Location".to_owned(),
                    })?;
                Ok(Verdict::Redirect {
                    location: location.to_owned(),
                })
            }
            416 => self.unsatisfied(ask),
            412 if self.pinned.is_some_and(|version| version.etag.is_some()) => {
                let found = self.text(&ETAG, ask.range)?.unwrap_or("another").to_owned();
                Err(self.changed(ask.range, "entity tag", found))
            }
            status => {
                let date = self.text(&DATE, ask.range).unwrap_or_default();
                let retry_after = self.text(&RETRY_AFTER, ask.range).unwrap_or_default();
                Err(Error::Status {
                    object: self.object.to_owned(),
                    range: ask.range,
                    status,
                    retry_after: retry_after.and_then(|value| retry_after::parse(value, date)),
                })
            }
        }
    }

    fn several(&self, ranges: &[ByteRange], hull: ByteRange) -> Result<Verdict, Error> {
        self.refuse_encoding(hull)?;
        let content_type = self.text(&CONTENT_TYPE, hull)?.unwrap_or_default();
        match ContentType::parse(content_type) {
            ContentType::Multipart { boundary } => {
                // Before any part is read: the parts' own fields can tell a length, but no tag.
                let len_bytes = self.pinned.map_or(0, |pinned| pinned.len_bytes);
                let version = self.version(len_bytes, hull)?;
                if self
                    .pinned
                    .is_some_and(|pinned| !pinned.tags_agree(&version))
                {
                    let found = version.tag_text().to_owned();
                    return Err(self.changed(hull, "entity tag", found));
                }
                return Ok(Verdict::Parts { boundary, version });
            }
            ContentType::Unusable => return Err(self.field(hull, "Content-Type", content_type)),
            ContentType::Other => {}
        }
        let value = self
            .text(&CONTENT_RANGE, hull)?
            .ok_or_else(|| self.field(hull, "Content-Range", "missing"))?;
        let Some(ContentRange::Satisfied {
            range,
            total_bytes: Some(total_bytes),
        }) = ContentRange::parse(value)
        else {
            return Err(self.field(hull, "Content-Range", value));
        };
        let asked_bytes: u64 = ranges.iter().map(ByteRange::len).sum();
        if !hull.contains(range) || range.len() > asked_bytes.saturating_add(MERGED_BYTES) {
            return Err(Error::WrongRange {
                object: self.object.to_owned(),
                range: hull,
                found: range,
            });
        }
        match self.content_length(hull)? {
            Some(found_bytes) if found_bytes != range.len() => Err(Error::WrongLength {
                object: self.object.to_owned(),
                range,
                found_bytes,
            }),
            _ => Ok(Verdict::Content {
                range,
                version: self.version(total_bytes, hull)?,
            }),
        }
    }

    fn partial(&self, ask: Ask<'_>) -> Result<Verdict, Error> {
        self.refuse_encoding(ask.range)?;
        let value = self
            .text(&CONTENT_RANGE, ask.range)?
            .ok_or_else(|| self.field(ask.range, "Content-Range", "missing"))?;
        let Some(ContentRange::Satisfied {
            range: found,
            total_bytes: Some(total_bytes),
        }) = ContentRange::parse(value)
        else {
            return Err(self.field(ask.range, "Content-Range", value));
        };
        let version = self.version(total_bytes, ask.range)?;
        let expected = match ask.extent {
            Extent::Exact | Extent::Several(..) => ask.range,
            Extent::UpTo => ByteRange {
                start: 0,
                end: ask.range.end.min(total_bytes),
            },
        };
        if found != expected {
            // Another length explains another range: the object was replaced by a shorter one.
            if self
                .pinned
                .is_some_and(|pinned| pinned.len_bytes != total_bytes)
            {
                return Err(self.changed(ask.range, "length", total_bytes.to_string()));
            }
            return Err(Error::WrongRange {
                object: self.object.to_owned(),
                range: expected,
                found,
            });
        }
        match self.content_length(ask.range)? {
            Some(found_bytes) if found_bytes != expected.len() => Err(Error::WrongLength {
                object: self.object.to_owned(),
                range: expected,
                found_bytes,
            }),
            _ => Ok(Verdict::Content {
                range: expected,
                version,
            }),
        }
    }

    /// A 200 is taken only where the whole object was asked, and its length proves it.
    fn whole(&self, ask: Ask<'_>) -> Result<Verdict, Error> {
        self.refuse_encoding(ask.range)?;
        let declared = self.content_length(ask.range)?;
        let len_bytes = declared.or(self.pinned.map(|pinned| pinned.len_bytes));
        let is_whole = ask.range.start == 0
            && len_bytes.is_some_and(|len_bytes| match ask.extent {
                Extent::Exact => len_bytes == ask.range.end,
                Extent::UpTo => len_bytes <= ask.range.end,
                Extent::Several(..) => false,
            });
        match len_bytes {
            Some(len_bytes) if is_whole => Ok(Verdict::Content {
                range: ByteRange {
                    start: 0,
                    end: len_bytes,
                },
                version: self.version(len_bytes, ask.range)?,
            }),
            _ => Err(Error::RangeIgnored {
                object: self.object.to_owned(),
                range: ask.range,
                offered_bytes: declared,
            }),
        }
    }

    fn unsatisfied(&self, ask: Ask<'_>) -> Result<Verdict, Error> {
        let value = self.text(&CONTENT_RANGE, ask.range)?;
        let total_bytes = match value.map(ContentRange::parse) {
            Some(Some(ContentRange::Unsatisfied { total_bytes })) => Some(total_bytes),
            _ => None,
        };
        if matches!(ask.extent, Extent::UpTo) && total_bytes == Some(0) {
            return Ok(Verdict::Empty {
                version: self.version(0, ask.range)?,
            });
        }
        let found = total_bytes.map_or_else(|| "shorter".to_owned(), |bytes| bytes.to_string());
        Err(self.changed(ask.range, "length", found))
    }

    fn refuse_encoding(&self, range: ByteRange) -> Result<(), Error> {
        for value in self.headers.get_all(CONTENT_ENCODING) {
            // `identity` is no coding, though some servers spell it out.
            if !value.as_bytes().eq_ignore_ascii_case(b"identity") {
                return Err(Error::Encoded {
                    object: self.object.to_owned(),
                    range,
                    found: String::from_utf8_lossy(value.as_bytes()).into_owned(),
                });
            }
        }
        Ok(())
    }

    fn version(&self, len_bytes: u64, range: ByteRange) -> Result<ObjectVersion, Error> {
        let tag = self.text(&ETAG, range)?;
        Ok(ObjectVersion {
            len_bytes,
            etag: tag.and_then(StrongEtag::parse),
            weak_etag: tag.and_then(WeakEtag::parse),
        })
    }

    fn content_length(&self, range: ByteRange) -> Result<Option<u64>, Error> {
        match self.text(&CONTENT_LENGTH, range)? {
            None => Ok(None),
            Some(value) => match number(value.trim()) {
                Some(bytes) => Ok(Some(bytes)),
                None => Err(self.field(range, "Content-Length", value)),
            },
        }
    }

    /// The one value of a field; `None` if absent, an error if repeated or not text.
    fn text(&self, name: &HeaderName, range: ByteRange) -> Result<Option<&str>, Error> {
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let shown = field_name(name);
        if values.next().is_some() {
            return Err(self.field(range, shown, "sent more than once"));
        }
        match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_not_ascii) => Err(self.field(range, shown, "not text")),
        }
    }

    fn field(&self, range: ByteRange, field: &'static str, found: &str) -> Error {
        let found = found.chars().take(100).collect();
        Error::Field {
            object: self.object.to_owned(),
            range,
            field,
            found,
        }
    }

    fn changed(&self, range: ByteRange, fact: &'static str, found: String) -> Error {
        let expected = match (fact, self.pinned) {
            ("length", Some(pinned)) => pinned.len_bytes.to_string(),
            ("length", None) => format!("at least {}", range.end),
            (_, pinned) => pinned.map_or("none", ObjectVersion::tag_text).to_owned(),
        };
        Error::Changed {
            object: self.object.to_owned(),
            range,
            fact,
            expected,
            found,
        }
    }
}

fn field_name(name: &HeaderName) -> &'static str {
    match *name {
        CONTENT_LENGTH => "Content-Length",
        CONTENT_RANGE => "Content-Range",
        CONTENT_TYPE => "Content-Type",
        ETAG => "ETag",
        LOCATION => "Location",
        RETRY_AFTER => "Retry-After",
        _ => "Date",
    }
}

#[cfg(test)]
mod tests;
