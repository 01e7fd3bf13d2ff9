//! What is answered, faults included: pure, from a request's head to a reply that can be written.

use super::request::RequestHead;
use crate::{Fault, Object, PartDefect, Parts, Several};

/// What follows a reply on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    KeepAlive,
    Close,
    Reset,
    /// Hold it until the peer leaves.
    Hold,
}

/// A reply as it goes out, faults included.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) body: Body,
    /// Stop after that many body bytes, and then do `after`.
    pub(super) cut: Option<u64>,
    pub(super) drip: Option<(u64, std::time::Duration)>,
    /// Lines behind the last chunk.
    pub(super) trailers: &'static str,
    pub(super) after: After,
}

pub(super) enum Body {
    /// Object bytes of this range.
    Range {
        start: u64,
        end: u64,
    },
    Chunked {
        start: u64,
        end: u64,
    },
    Text(&'static str),
    /// A multipart body.
    Made(Vec<u8>),
}

pub(super) fn text(status: u16, body: &'static str) -> Reply {
    Reply {
        status,
        fields: vec![("Content-Length", body.len().to_string())],
        body: Body::Text(body),
        cut: None,
        drip: None,
        trailers: "",
        after: After::KeepAlive,
    }
}

pub(super) fn reply_to(
    head: &RequestHead,
    object: &Object,
    fault: &Fault,
    (heeds_if_match, usual): (bool, Option<&Several>),
) -> Reply {
    let parts = fault.parts();
    if let Some(reply) = parts.iter().find_map(instead_of_content) {
        return reply;
    }
    if head.method != "GET" {
        return text(405, "");
    }
    let stale = head
        .field("if-match")
        .is_some_and(|asked| Some(asked.as_str()) != object.etag());
    if stale && heeds_if_match {
        return text(412, "");
    }
    let len_bytes = object.len_bytes();
    let manner = parts.iter().find_map(|part| match part {
        Fault::Several(manner) | Fault::Instead(_, manner) => Some(manner),
        Fault::WholeObject => Some(&Several::Status(200)),
        _ => None,
    });
    let manner = manner.or(usual);
    if let Some(mut reply) = manner.and_then(|manner| several(head, object, manner, parts)) {
        for part in parts {
            misbehave(&mut reply, part, len_bytes);
        }
        return reply;
    }
    let mut reply = match head.range() {
        Some((start, _)) if start >= len_bytes => {
            // With a text behind it, as most servers have one.
            let mut reply = text(416, "range not satisfiable\n");
            reply
                .fields
                .push(("Content-Range", format!("bytes */{len_bytes}")));
            return reply;
        }
        Some((start, end)) if !parts.contains(&Fault::WholeObject) => {
            partial(start, end.min(len_bytes), len_bytes)
        }
        _ => Reply {
            status: 200,
            fields: vec![("Content-Length", len_bytes.to_string())],
            body: Body::Range {
                start: 0,
                end: len_bytes,
            },
            ..text(200, "")
        },
    };
    reply
        .fields
        .extend(object.etag().map(|etag| ("ETag", etag.to_owned())));
    for part in parts {
        misbehave(&mut reply, part, len_bytes);
    }
    reply
}

fn instead_of_content(fault: &Fault) -> Option<Reply> {
    match fault {
        Fault::Status { code, retry_after } => {
            let mut reply = text(*code, "scripted\n");
            let wait = retry_after.iter();
            reply
                .fields
                .extend(wait.map(|value| ("Retry-After", value.clone())));
            Some(reply)
        }
        Fault::Redirect(location) => {
            let mut reply = text(302, "elsewhere\n");
            reply.fields.push(("Location", location.clone()));
            Some(reply)
        }
        _ => None,
    }
}

/// The reply to a request for several ranges; `None` for any other, and for those that this manner
/// leaves to a plain reply. Ranges behind the object's end are left out, as RFC 9110 has it.
fn several(
    head: &RequestHead,
    object: &Object,
    manner: &Several,
    faults: &[Fault],
) -> Option<Reply> {
    let len_bytes = object.len_bytes();
    let mut ranges = head.ranges();
    if ranges.len() < 2 {
        return None;
    }
    ranges.retain(|&(start, _)| start < len_bytes);
    for range in &mut ranges {
        range.1 = range.1.min(len_bytes);
    }
    let (first, last) = (*ranges.first()?, *ranges.last()?);
    let honest = Several::honest();
    let refusing = match manner {
        Several::Limited { status, .. } => Several::Status(*status),
        _ => honest.clone(),
    };
    let manner = match manner {
        Several::Limited { most, .. } if ranges.len() > *most => &refusing,
        Several::Limited { .. } => &honest,
        other => other,
    };
    let mut reply = match manner {
        Several::Limited { .. } | Several::Status(200) => return None,
        Several::Status(code) => return Some(text(*code, "scripted\n")),
        Several::FirstOnly => partial(first.0, first.1, len_bytes),
        Several::Merged => partial(first.0, last.1, len_bytes),
        Several::Parts(_) if ranges.len() == 1 => partial(first.0, first.1, len_bytes),
        Several::Parts(parts) => {
            let parts = &spoiled(parts, faults, &mut ranges, len_bytes);
            let body = parts.body(object, &ranges);
            let announced = (body.len() as u64).saturating_add_signed(parts.content_length_off_by);
            let (cut, after) = match parts.cut_after_bytes {
                Some(bytes) => (Some(bytes), After::Close),
                // Who announced too much has to end the body by closing.
                None if parts.content_length_off_by > 0 => (None, After::Close),
                None => (None, After::KeepAlive),
            };
            Reply {
                status: 206,
                fields: vec![
                    ("Content-Length", announced.to_string()),
                    ("Content-Type", parts.content_type()),
                ],
                body: Body::Made(body),
                cut,
                after,
                ..text(206, "")
            }
        }
    };
    let tag = object.etag().map(|etag| ("ETag", etag.to_owned()));
    reply.fields.extend(tag);
    Some(reply)
}

/// What a fault that concerns the content of one range does to several.
fn spoiled(parts: &Parts, faults: &[Fault], ranges: &mut [(u64, u64)], len_bytes: u64) -> Parts {
    let mut parts = parts.clone();
    for fault in faults {
        match fault {
            Fault::Shift(by) => parts.defect = Some((0, PartDefect::Shift(*by))),
            Fault::ContentRange(_) => parts.defect = Some((0, PartDefect::NoContentRange)),
            Fault::Superset { before, after } => {
                for range in &mut *ranges {
                    range.0 = range.0.saturating_sub(*before);
                    range.1 = range.1.saturating_add(*after).min(len_bytes);
                }
            }
            _ => {}
        }
    }
    parts
}

fn partial(start: u64, end: u64, len_bytes: u64) -> Reply {
    Reply {
        status: 206,
        fields: vec![
            ("Content-Length", (end - start).to_string()),
            (
                "Content-Range",
                format!("bytes {start}-{}/{len_bytes}", end - 1),
            ),
        ],
        body: Body::Range { start, end },
        ..text(206, "")
    }
}

fn misbehave(reply: &mut Reply, fault: &Fault, len_bytes: u64) {
    if matches!(reply.body, Body::Text(_)) {
        return;
    }
    ending(reply, fault);
    match fault {
        Fault::Etag(etag) => reply.set("ETag", Some(etag.clone())),
        Fault::Encoding(coding) => reply.set("Content-Encoding", Some(coding.clone())),
        Fault::ContentLength(bytes) => reply.set("Content-Length", Some(bytes.to_string())),
        Fault::Http10 => reply.set("Content-Length", None),
        _ => match &mut reply.body {
            Body::Range { start, end } => {
                let range = (*start, *end);
                of_one_range(reply, fault, range, len_bytes);
            }
            Body::Made(body) => {
                let extra = match fault {
                    Fault::ChunkedWithExtra(extra) => *extra,
                    Fault::Chunked | Fault::Trailers => 0,
                    _ => return,
                };
                body.resize(body.len() + usize::try_from(extra).unwrap_or(0), 0);
                let mut chunks = format!("{:x}\r\n", body.len()).into_bytes();
                chunks.append(body);
                chunks.extend_from_slice(b"\r\n0\r\n");
                if matches!(fault, Fault::Trailers) {
                    chunks.extend_from_slice(TRAILERS.as_bytes());
                }
                chunks.extend_from_slice(b"\r\n");
                *body = chunks;
                reply.set("Content-Length", None);
                reply.set("Transfer-Encoding", Some("chunked".to_owned()));
            }
            Body::Chunked { .. } | Body::Text(_) => {}
        },
    }
}

/// Lines behind the last chunk that contradict the head.
const TRAILERS: &str = "ETag: \"trailing\"\r\nContent-Range: bytes 0-0/1\r\n";

impl Reply {
    fn set(&mut self, name: &'static str, value: Option<String>) {
        self.fields.retain(|(found, _)| *found != name);
        self.fields.extend(value.map(|value| (name, value)));
    }
}

/// How a body goes out and what follows it.
fn ending(reply: &mut Reply, fault: &Fault) {
    match fault {
        Fault::Reset { after_body_bytes } => {
            (reply.cut, reply.after) = (Some(*after_body_bytes), After::Reset);
        }
        Fault::Truncate { after_body_bytes } => {
            (reply.cut, reply.after) = (Some(*after_body_bytes), After::Close);
        }
        Fault::Stall { after_body_bytes } => {
            (reply.cut, reply.after) = (Some(*after_body_bytes), After::Hold);
        }
        Fault::Drip { piece_bytes, pause } => reply.drip = Some((*piece_bytes, *pause)),
        Fault::ResetWhenIdle => reply.after = After::Reset,
        Fault::Http10 | Fault::RequestTimeout | Fault::CloseWhenIdle => reply.after = After::Close,
        _ => {}
    }
}

fn of_one_range(reply: &mut Reply, fault: &Fault, (start, end): (u64, u64), len_bytes: u64) {
    let mut set = |name, value| reply.set(name, value);
    match fault {
        Fault::ContentRange(value) => set("Content-Range", value.clone()),
        Fault::ChunkedWithExtra(extra) => {
            set("Content-Length", None);
            set("Transfer-Encoding", Some("chunked".to_owned()));
            reply.body = Body::Chunked {
                start,
                end: end.saturating_add(*extra),
            };
        }
        Fault::Superset { before, after } => {
            let start = start.saturating_sub(*before);
            let end = end.saturating_add(*after).min(len_bytes);
            set("Content-Length", Some((end - start).to_string()));
            set(
                "Content-Range",
                Some(format!("bytes {start}-{}/{len_bytes}", end - 1)),
            );
            reply.body = Body::Range { start, end };
        }
        Fault::Shift(by) => {
            let (start, end) = (start.saturating_add(*by), end.saturating_add(*by));
            reply.body = Body::Range { start, end };
        }
        Fault::Chunked => {
            set("Content-Length", None);
            set("Transfer-Encoding", Some("chunked".to_owned()));
            reply.body = Body::Chunked { start, end };
        }
        Fault::Trailers => {
            set("Content-Length", None);
            set("Transfer-Encoding", Some("chunked".to_owned()));
            reply.body = Body::Chunked { start, end };
            reply.trailers = TRAILERS;
        }
        _ => {}
    }
}
