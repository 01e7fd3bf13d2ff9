//! A reader of `multipart/byteranges` (RFC 9110 section 14.6, framing of RFC 2046 section 5.1): body
//! pieces in, parts out. Pure, and bounded before it has read anything. Not a general MIME reader.
//!
//! A part's `Content-Range` tells its length, so its bytes are never searched for the boundary: a
//! row may hold the boundary's own text. A part is handed out only when the delimiter behind it has
//! been seen: one whose bytes are more or fewer than its `Content-Range` says is none.
//!
//! Lenient where servers differ and nothing is lost: lines may end in LF alone, a preamble and an
//! epilogue are passed over, names are read in any case, parts may come in any order. Which asked
//! range a part answers is told by its `Content-Range` and never by its place.

use bytes::{Bytes, BytesMut};

use super::content_range::{ContentRange, number};
use crate::ByteRange;

/// Longest boundary (RFC 2046).
const MAX_BOUNDARY_BYTES: usize = 70;
/// Longest line of framing. Real part heads have lines of about 60 bytes.
const MAX_LINE_BYTES: usize = 1024;
/// Most bytes of one part's head.
const MAX_PART_HEAD_BYTES: usize = 2048;
/// Room made for a part before any of it has come.
const FIRST_ROOM_BYTES: u64 = 64 << 10;

/// What a reply may amount to at most; more of it is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of all parts together.
    pub(super) content_bytes: u64,
    /// Bytes of everything else.
    pub(super) framing_bytes: u64,
}

/// One part, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) range: ByteRange,
    /// Length of the whole object.
    pub(super) total_bytes: u64,
    pub(super) bytes: Bytes,
}

/// Why a body cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// A part without a usable `Content-Range`.
    ContentRange,
    /// A line of a part's head that is no field, or a field that promises another content.
    PartHead,
    /// The bytes of a part are not followed by a delimiter.
    Delimiter,
    /// More than the limits allow.
    TooMuch,
}

/// Where the reader is.
#[derive(Debug)]
enum State {
    /// Before the first delimiter.
    Preamble,
    Head {
        content: Option<(ByteRange, u64)>,
        declared_bytes: Option<u64>,
        head_bytes: usize,
    },
    Content {
        range: ByteRange,
        total_bytes: u64,
        buffer: BytesMut,
    },
    /// Behind a part's bytes: a line end, which belongs to the delimiter, then the delimiter.
    Behind { part: Part, line_end_seen: bool },
    /// Behind the last delimiter.
    Epilogue,
}

/// Reads one body, fed piece by piece.
#[derive(Debug)]
pub(super) struct MultipartReader {
    /// Two dashes and the boundary.
    delimiter: Vec<u8>,
    limits: Limits,
    state: State,
    /// The line of framing that is not complete yet.
    line: Vec<u8>,
    /// Whether lines end in CRLF, as the first delimiter's does, or in LF alone. Either will do, but
    /// not both: a part that is a byte short must not take the CR behind it for its last byte.
    crlf: Option<bool>,
    content_bytes: u64,
    framing_bytes: u64,
    /// Bytes of the parts whose heads were read, whether they have come or not.
    promised_bytes: u64,
}

impl MultipartReader {
    pub(super) fn new(boundary: &str, limits: Limits) -> Self {
        Self {
            delimiter: [b"--", boundary.as_bytes()].concat(),
            limits,
            state: State::Preamble,
            line: Vec::new(),
            crlf: None,
            content_bytes: 0,
            framing_bytes: 0,
            promised_bytes: 0,
        }
    }

    /// Bytes of parts so far, those of a part that did not become whole included.
    pub(super) fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Whether the last delimiter was seen: nothing that matters can follow.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, State::Epilogue)
    }

    /// Takes the next piece of the body and appends the parts that became whole to `parts`.
    ///
    /// After an error the rest of the body means nothing; parts handed out before are good.
    pub(super) fn push(&mut self, piece: &[u8], parts: &mut Vec<Part>) -> Result<(), Malformed> {
        let mut rest = piece;
        while let Some(&byte) = rest.first() {
            if let State::Content {
                range,
                total_bytes,
                buffer,
            } = &mut self.state
            {
                let missing = range.len().saturating_sub(buffer.len() as u64);
                let take = usize::try_from(missing)
                    .unwrap_or(usize::MAX)
                    .min(rest.len());
                let (content, behind) = rest.split_at(take);
                buffer.extend_from_slice(content);
                self.content_bytes += take as u64;
                rest = behind;
                if buffer.len() as u64 == range.len() {
                    let part = Part {
                        range: *range,
                        total_bytes: *total_bytes,
                        bytes: std::mem::take(buffer).freeze(),
                    };
                    self.state = State::Behind {
                        part,
                        line_end_seen: false,
                    };
                }
                continue;
            }
            rest = rest.get(1..).unwrap_or_default();
            self.framing_bytes += 1;
            if self.framing_bytes > self.limits.framing_bytes {
                return Err(Malformed::TooMuch);
            }
            if self.is_complete() {
                continue;
            }
            if byte != b'\n' {
                // What is too long for a delimiter or a field still counts against the limit.
                if self.line.len() >= MAX_LINE_BYTES {
                    return Err(Malformed::TooMuch);
                }
                self.line.push(byte);
                continue;
            }
            let mut line = std::mem::take(&mut self.line);
            let crlf = line.last() == Some(&b'\r');
            if crlf {
                line.pop();
            }
            self.take_line(&line, crlf, parts)?;
            line.clear();
            self.line = line;
        }
        Ok(())
    }

    /// Ends the body: a closing delimiter need not end in a line end.
    pub(super) fn finish(&mut self, parts: &mut Vec<Part>) -> Result<(), Malformed> {
        let line = std::mem::take(&mut self.line);
        if self.is_complete() || line.is_empty() {
            return Ok(());
        }
        self.take_line(&line, false, parts)
    }

    fn take_line(
        &mut self,
        line: &[u8],
        crlf: bool,
        parts: &mut Vec<Part>,
    ) -> Result<(), Malformed> {
        let delimiter = Delimiter::of(line, &self.delimiter);
        match &mut self.state {
            State::Preamble => {
                if let Some(delimiter) = delimiter {
                    self.crlf = Some(crlf);
                    self.state = delimiter.next();
                }
            }
            State::Head {
                content,
                declared_bytes,
                head_bytes,
            } => {
                *head_bytes += line.len() + 1;
                if *head_bytes > MAX_PART_HEAD_BYTES {
                    return Err(Malformed::TooMuch);
                }
                if line.is_empty() {
                    let (content, declared_bytes) = (*content, *declared_bytes);
                    return self.begin_content(content, declared_bytes);
                }
                take_field(line, content, declared_bytes)?;
            }
            State::Behind { line_end_seen, .. }
                if !*line_end_seen && line.is_empty() && self.crlf == Some(crlf) =>
            {
                *line_end_seen = true;
            }
            State::Behind {
                part,
                line_end_seen: true,
            } => {
                let delimiter = delimiter.ok_or(Malformed::Delimiter)?;
                parts.push(part.clone());
                self.state = delimiter.next();
            }
            State::Behind { .. } => return Err(Malformed::Delimiter),
            State::Content { .. } | State::Epilogue => {}
        }
        Ok(())
    }

    fn begin_content(
        &mut self,
        content: Option<(ByteRange, u64)>,
        declared_bytes: Option<u64>,
    ) -> Result<(), Malformed> {
        let (range, total_bytes) = content.ok_or(Malformed::ContentRange)?;
        if declared_bytes.is_some_and(|bytes| bytes != range.len()) {
            return Err(Malformed::PartHead);
        }
        self.promised_bytes = self.promised_bytes.saturating_add(range.len());
        if self.promised_bytes > self.limits.content_bytes {
            return Err(Malformed::TooMuch);
        }
        let room = usize::try_from(range.len().min(FIRST_ROOM_BYTES)).unwrap_or(0);
        self.state = State::Content {
            range,
            total_bytes,
            buffer: BytesMut::with_capacity(room),
        };
        Ok(())
    }
}

/// A line that is the delimiter, and whether it is the last one.
#[derive(Clone, Copy)]
enum Delimiter {
    Part,
    Last,
}

impl Delimiter {
    fn of(line: &[u8], delimiter: &[u8]) -> Option<Self> {
        let behind = line.strip_prefix(delimiter)?;
        let (last, padding) = match behind.strip_prefix(b"--") {
            Some(padding) => (true, padding),
            None => (false, behind),
        };
        let blank = padding.iter().all(|byte| matches!(byte, b' ' | b'\t'));
        match (blank, last) {
            (false, _) => None,
            (true, true) => Some(Self::Last),
            (true, false) => Some(Self::Part),
        }
    }

    fn next(self) -> State {
        match self {
            Self::Last => State::Epilogue,
            Self::Part => State::Head {
                content: None,
                declared_bytes: None,
                head_bytes: 0,
            },
        }
    }
}

/// Takes one field of a part's head.
fn take_field(
    line: &[u8],
    content: &mut Option<(ByteRange, u64)>,
    declared_bytes: &mut Option<u64>,
) -> Result<(), Malformed> {
    let line = std::str::from_utf8(line).map_err(|_not_text| Malformed::PartHead)?;
    let (name, value) = line.split_once(':').ok_or(Malformed::PartHead)?;
    let (name, value) = (name.trim_end(), value.trim());
    // A folded line would be part of the field before it.
    if name.is_empty() || name.starts_with([' ', '\t']) {
        return Err(Malformed::PartHead);
    }
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if is("content-range") {
        let Some(ContentRange::Satisfied {
            range,
            total_bytes: Some(total_bytes),
        }) = ContentRange::parse(value)
        else {
            return Err(Malformed::ContentRange);
        };
        if content.replace((range, total_bytes)).is_some() {
            return Err(Malformed::ContentRange);
        }
    } else if is("content-length") {
        *declared_bytes = Some(number(value).ok_or(Malformed::PartHead)?);
    } else {
        let plain: &[&str] = if is("content-encoding") {
            &["identity"]
        } else if is("content-transfer-encoding") {
            &["binary", "8bit"]
        } else {
            return Ok(());
        };
        if !plain.iter().any(|plain| value.eq_ignore_ascii_case(plain)) {
            return Err(Malformed::PartHead);
        }
    }
    Ok(())
}

/// What a `Content-Type` says about ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContentType {
    /// `multipart/byteranges` with this boundary.
    Multipart { boundary: String },
    /// `multipart/byteranges` whose boundary is missing or illegal.
    Unusable,
    /// Something else.
    Other,
}

impl ContentType {
    pub(super) fn parse(value: &str) -> Self {
        let (media_type, mut parameters) = match value.split_once(';') {
            Some((media_type, parameters)) => (media_type.trim(), parameters),
            None => (value.trim(), ""),
        };
        // The second name is that of the drafts; old servers still send it.
        if !["multipart/byteranges", "multipart/x-byteranges"]
            .iter()
            .any(|known| media_type.eq_ignore_ascii_case(known))
        {
            return Self::Other;
        }
        while let Some((name, behind)) = parameters.split_once('=') {
            let Some((value, rest)) = parameter(behind) else {
                return Self::Unusable;
            };
            if name
                .trim()
                .trim_start_matches(';')
                .trim()
                .eq_ignore_ascii_case("boundary")
            {
                return match is_boundary(&value) {
                    true => Self::Multipart { boundary: value },
                    false => Self::Unusable,
                };
            }
            parameters = rest;
        }
        Self::Unusable
    }
}

/// The value at the start of `text`, quoted or a token, and what follows it.
fn parameter(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return Some((text.get(..end)?.trim_end().to_owned(), text.get(end..)?));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// `boundary` of RFC 2046, section 5.1.1.
fn is_boundary(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    (1..=MAX_BOUNDARY_BYTES).contains(&text.len())
        && text.bytes().all(legal)
        && !text.ends_with(' ')
}

#[cfg(test)]
mod tests;
