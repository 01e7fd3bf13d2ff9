//! One connection: reads heads, looks up the fault, writes the reply byte by byte as told.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::Shared;
use super::request::RequestHead;
use crate::log::LogEntry;
use crate::{Fault, Object, Several};

/// Body bytes made and written at a time.
const PIECE_BYTES: u64 = 64 << 10;

/// What follows a reply on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    KeepAlive,
    Close,
    Reset,
    /// Hold it until the peer leaves.
    Hold,
}

/// A reply as it goes out, faults included.
struct Reply {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: Body,
    /// Stop after that many body bytes, and then do `after`.
    cut: Option<u64>,
    drip: Option<(u64, std::time::Duration)>,
    after: After,
}

enum Body {
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

pub(super) async fn serve(
    mut stream: TcpStream,
    shared: &Shared,
    connection: u64,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let after = {
        let (reading, mut writing) = stream.split();
        let mut reading = BufReader::new(reading);
        loop {
            let Some(head) = RequestHead::read(&mut reading).await? else {
                break After::Close;
            };
            let entry = LogEntry {
                connection,
                method: head.method.clone(),
                path: head.target.clone(),
                range: head.field("range"),
                if_match: head.field("if-match"),
                accept_encoding: head.field("accept-encoding"),
                authorization: head.field("authorization"),
                ..LogEntry::default()
            };
            let number = shared.log.begin(entry);
            let sent = respond(&head, shared, number, &mut writing).await;
            shared.log.end(number);
            match sent? {
                After::KeepAlive => {}
                After::Hold => {
                    wait_for_end(&mut reading).await;
                    break After::Close;
                }
                after => break after,
            }
        }
    };
    if after == After::Reset {
        stream.set_zero_linger()?;
    }
    Ok(())
}

async fn wait_for_end(reading: &mut BufReader<ReadHalf<'_>>) {
    let mut scrap = [0; 1024];
    while matches!(reading.read(&mut scrap).await, Ok(read) if read > 0) {}
}

async fn respond(
    head: &RequestHead,
    shared: &Shared,
    number: usize,
    writing: &mut WriteHalf<'_>,
) -> std::io::Result<After> {
    let sequence = shared.requests.fetch_add(1, Relaxed);
    let fault = shared
        .script
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .fault(sequence);
    match fault {
        Fault::HangUp => return Ok(After::Close),
        Fault::Silence => return Ok(After::Hold),
        Fault::Reset {
            after_body_bytes: 0,
        } => return Ok(After::Reset),
        _ => {}
    }
    let object = {
        let objects = shared
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        objects.get(head.path()).cloned()
    };
    let object = match &fault {
        Fault::Instead(other, _) => object.map(|_| other.clone()),
        _ => object,
    };
    let reply = match &object {
        Some(object) => reply_to(head, object, &fault, shared.heeds_if_match),
        None => text(404, "no such object\n"),
    };
    shared
        .log
        .update(number, |entry| entry.status = Some(reply.status));
    let mut text = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    writing.write_all(text.as_bytes()).await?;
    write_body(&reply, object.as_ref(), shared, number, writing).await
}

async fn write_body(
    reply: &Reply,
    object: Option<&Object>,
    shared: &Shared,
    number: usize,
    writing: &mut WriteHalf<'_>,
) -> std::io::Result<After> {
    let (mut next, end, chunked) = match reply.body {
        Body::Text(text) => {
            writing.write_all(text.as_bytes()).await?;
            shared
                .log
                .update(number, |entry| entry.body_bytes = text.len() as u64);
            return Ok(reply.after);
        }
        Body::Made(ref body) => return write_made(body, reply, shared, number, writing).await,
        Body::Range { start, end } => (start, end, false),
        Body::Chunked { start, end } => (start, end, true),
    };
    let Some(object) = object else {
        return Ok(After::Close);
    };
    let end = reply
        .cut
        .map_or(end, |cut| end.min(next.saturating_add(cut)));
    let (piece_bytes, pause) = reply
        .drip
        .unwrap_or((PIECE_BYTES, std::time::Duration::ZERO));
    while next < end {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let piece_end = end.min(next + piece_bytes.max(1));
        // Behind the object's end there is nothing: zeros stand in for what a liar would send.
        let mut piece = object.slice(next, piece_end);
        piece.resize(usize::try_from(piece_end - next).unwrap_or(0), 0);
        if chunked {
            writing
                .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
                .await?;
        }
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let written = writing.write(rest).await?;
            rest = &rest[written..];
            shared
                .log
                .update(number, |entry| entry.body_bytes += written as u64);
        }
        if chunked {
            writing.write_all(b"\r\n").await?;
        }
        next = piece_end;
    }
    if chunked && reply.cut.is_none() {
        writing.write_all(b"0\r\n\r\n").await?;
    }
    Ok(reply.after)
}

async fn write_made(
    body: &[u8],
    reply: &Reply,
    shared: &Shared,
    number: usize,
    writing: &mut WriteHalf<'_>,
) -> std::io::Result<After> {
    let cut = reply.cut.and_then(|cut| usize::try_from(cut).ok());
    let body = &body[..cut.unwrap_or(body.len()).min(body.len())];
    for piece in body.chunks(64 << 10) {
        writing.write_all(piece).await?;
        shared
            .log
            .update(number, |entry| entry.body_bytes += piece.len() as u64);
    }
    Ok(reply.after)
}

fn text(status: u16, body: &'static str) -> Reply {
    Reply {
        status,
        fields: vec![("Content-Length", body.len().to_string())],
        body: Body::Text(body),
        cut: None,
        drip: None,
        after: After::KeepAlive,
    }
}

fn reply_to(head: &RequestHead, object: &Object, fault: &Fault, heeds_if_match: bool) -> Reply {
    match fault {
        Fault::Status { code, retry_after } => {
            let mut reply = text(*code, "scripted\n");
            reply.fields.extend(
                retry_after
                    .iter()
                    .map(|value| ("Retry-After", value.clone())),
            );
            return reply;
        }
        Fault::Redirect(location) => {
            let mut reply = text(302, "elsewhere\n");
            reply.fields.push(("Location", location.clone()));
            return reply;
        }
        _ => {}
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
    if let Fault::Several(manner) | Fault::Instead(_, manner) = fault
        && let Some(reply) = several(head, object, manner)
    {
        return reply;
    }
    let mut reply = match head.range() {
        Some((start, _)) if start >= len_bytes => {
            let mut reply = text(416, "");
            reply
                .fields
                .push(("Content-Range", format!("bytes */{len_bytes}")));
            return reply;
        }
        Some((start, end)) if *fault != Fault::WholeObject => {
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
    misbehave(&mut reply, fault, len_bytes);
    reply
}

/// The reply to a request for several ranges; `None` for any other, and for those that this manner
/// leaves to a plain reply. Ranges behind the object's end are left out, as RFC 9110 has it.
fn several(head: &RequestHead, object: &Object, manner: &Several) -> Option<Reply> {
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
    let mut reply = match manner {
        Several::Status(200) => return None,
        Several::Status(code) => return Some(text(*code, "scripted\n")),
        Several::FirstOnly => partial(first.0, first.1, len_bytes),
        Several::Merged => partial(first.0, last.1, len_bytes),
        Several::Parts(_) if ranges.len() == 1 => partial(first.0, first.1, len_bytes),
        Several::Parts(parts) => {
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
    let Body::Range { start, end } = reply.body else {
        return;
    };
    let mut set = |name: &'static str, value: Option<String>| {
        reply.fields.retain(|(found, _)| *found != name);
        reply.fields.extend(value.map(|value| (name, value)));
    };
    match fault {
        Fault::Etag(etag) => set("ETag", Some(etag.clone())),
        Fault::Encoding(coding) => set("Content-Encoding", Some(coding.clone())),
        Fault::ContentLength(bytes) => set("Content-Length", Some(bytes.to_string())),
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
        Fault::CloseWhenIdle => reply.after = After::Close,
        _ => {}
    }
}
