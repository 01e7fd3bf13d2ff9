//! How a server answers a request for several ranges: honestly, or in one of the ways that real
//! servers and liars do. Only what is said, not how it is sent: that is the server's.

use crate::Object;

/// The manner of an answer to several ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Several {
    /// A status with a short text, or 200 with the whole object.
    Status(u16),
    /// 206 with the first range only, as some object stores do.
    FirstOnly,
    /// 206 with one range from the first byte asked to the last.
    Merged,
    /// `multipart/byteranges`.
    Parts(Parts),
    /// Honest multipart up to so many ranges, a status (200: the whole object) above.
    Limited {
        /// Most ranges that are answered.
        most: usize,
        /// What more of them get.
        status: u16,
    },
}

impl Several {
    /// Multipart with every part, as RFC 9110 has it.
    #[must_use]
    pub fn honest() -> Self {
        Self::Parts(Parts::default())
    }
}

/// What a multipart body is like. The default is honest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// `boundary="..."` instead of a bare token.
    pub quoted_boundary: bool,
    /// Text in front of the first delimiter, sent as a line.
    pub preamble: String,
    /// Text behind the last delimiter.
    pub epilogue: String,
    /// Lines that end in LF alone.
    pub bare_lf: bool,
    /// The last range first.
    pub reversed: bool,
    /// Every part twice.
    pub doubled: bool,
    /// At most that many parts, the rest dropped in silence; 0 is no limit.
    pub most_parts: usize,
    /// Neighbours joined to one part where the gap is at most this many bytes.
    pub merge_gap_bytes: Option<u64>,
    /// The boundary, if not the usual one.
    pub boundary: Option<String>,
    /// This part, counted from 0 as sent, is wrong in one way.
    pub defect: Option<(usize, PartDefect)>,
    /// More (or fewer) bytes announced by `Content-Length` than are sent.
    pub content_length_off_by: i64,
    /// The connection is closed after that many body bytes.
    pub cut_after_bytes: Option<u64>,
}

/// What is wrong with one part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartDefect {
    /// No `Content-Range`.
    NoContentRange,
    /// A field of this many bytes in its head.
    LongHead(usize),
    /// A right head, and bytes from this many further on.
    Shift(u64),
    /// Fewer bytes than the head says.
    Short(u64),
    /// More bytes than the head says.
    Long(u64),
    /// Another total length than the object's.
    Total(u64),
    /// A content coding.
    Encoded,
    /// From this part on, the parts are those of another object.
    From(Object),
}

/// The usual boundary; `tests` put its text into objects.
pub const BOUNDARY: &str = "THIS_STRING_SEPARATES";

impl Parts {
    pub(crate) fn boundary(&self) -> &str {
        self.boundary.as_deref().unwrap_or(BOUNDARY)
    }

    pub(crate) fn content_type(&self) -> String {
        let boundary = self.boundary();
        if self.quoted_boundary {
            format!("multipart/byteranges; boundary=\"{boundary}\"")
        } else {
            format!("multipart/byteranges; boundary={boundary}")
        }
    }

    /// The body for `ranges`, half-open.
    pub(crate) fn body(&self, object: &Object, ranges: &[(u64, u64)]) -> Vec<u8> {
        let end = if self.bare_lf { "\n" } else { "\r\n" };
        let mut ranges = self.merged(ranges);
        if self.reversed {
            ranges.reverse();
        }
        if self.doubled {
            ranges = ranges
                .into_iter()
                .flat_map(|range| [range, range])
                .collect();
        }
        if self.most_parts > 0 {
            ranges.truncate(self.most_parts);
        }
        let mut body = Vec::new();
        if !self.preamble.is_empty() {
            body.extend_from_slice(format!("{}{end}", self.preamble).as_bytes());
        }
        let mut current = object.clone();
        for (index, range) in ranges.into_iter().enumerate() {
            let defect = match &self.defect {
                Some((at, defect)) if *at == index => Some(defect),
                _ => None,
            };
            if let Some(PartDefect::From(other)) = defect {
                current = other.clone();
            }
            self.write_part(&mut body, &current, range, defect);
        }
        body.extend_from_slice(format!("--{}--{end}{}", self.boundary(), self.epilogue).as_bytes());
        body
    }

    fn write_part(
        &self,
        body: &mut Vec<u8>,
        object: &Object,
        (start, stop): (u64, u64),
        defect: Option<&PartDefect>,
    ) {
        let end = if self.bare_lf { "\n" } else { "\r\n" };
        let total_bytes = match defect {
            Some(PartDefect::Total(bytes)) => *bytes,
            _ => object.len_bytes(),
        };
        let mut head = format!(
            "--{}{end}Content-Type: application/octet-stream{end}",
            self.boundary()
        );
        match defect {
            Some(PartDefect::NoContentRange) => {}
            _ => head.push_str(&format!(
                "Content-Range: bytes {start}-{}/{total_bytes}{end}",
                stop - 1
            )),
        }
        match defect {
            Some(PartDefect::LongHead(bytes)) => {
                head.push_str(&format!("X-Long: {}{end}", "x".repeat(*bytes)));
            }
            Some(PartDefect::Encoded) => head.push_str(&format!("Content-Encoding: gzip{end}")),
            _ => {}
        }
        body.extend_from_slice(format!("{head}{end}").as_bytes());
        let (start, stop) = match defect {
            Some(PartDefect::Shift(by)) => (start + by, stop + by),
            Some(PartDefect::Short(by)) => (start, stop.saturating_sub(*by)),
            Some(PartDefect::Long(by)) => (start, stop + by),
            _ => (start, stop),
        };
        body.extend_from_slice(&object.slice(start, stop));
        body.extend_from_slice(end.as_bytes());
    }

    fn merged(&self, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for &(start, end) in ranges {
            match (merged.last_mut(), self.merge_gap_bytes) {
                (Some(last), Some(gap)) if start <= last.1.saturating_add(gap) => {
                    last.1 = last.1.max(end);
                }
                _ => merged.push((start, end)),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_body_is_the_one_of_the_rfc() {
        let object = Object::bytes(*b"0123456789");
        let body = Parts::default().body(&object, &[(0, 2), (5, 9)]);
        assert_eq!(
            String::from_utf8(body).unwrap(),
            "--THIS_STRING_SEPARATES\r\nContent-Type: application/octet-stream\r\n\
             Content-Range: bytes 0-1/10\r\n\r\n01\r\n\
             --THIS_STRING_SEPARATES\r\nContent-Type: application/octet-stream\r\n\
             Content-Range: bytes 5-8/10\r\n\r\n5678\r\n--THIS_STRING_SEPARATES--\r\n"
        );
    }

    #[test]
    fn parts_are_merged_reversed_doubled_and_dropped_in_that_order() {
        let object = Object::bytes(*b"0123456789");
        let parts = Parts {
            merge_gap_bytes: Some(1),
            reversed: true,
            doubled: true,
            most_parts: 3,
            bare_lf: true,
            boundary: Some("B".to_owned()),
            ..Parts::default()
        };
        let body = String::from_utf8(parts.body(&object, &[(0, 1), (2, 3), (6, 7)])).unwrap();
        let spans: Vec<_> = body
            .lines()
            .filter_map(|line| line.strip_prefix("Content-Range: bytes "))
            .collect();
        assert_eq!(spans, ["6-6/10", "6-6/10", "0-2/10"]);
    }
}
