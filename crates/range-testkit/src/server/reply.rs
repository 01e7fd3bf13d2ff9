//! One connection: reads heads, looks up the fault, writes the reply byte by byte as told.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::Shared;
use super::answer::{After, Body, Reply, reply_to, text};
use super::head::HeadStyle;
use super::request::RequestHead;
use crate::log::LogEntry;
use crate::{Fault, Object};

/// Body bytes made and written at a time.
const PIECE_BYTES: u64 = 64 << 10;

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
                proxy_authorization: head.field("proxy-authorization"),
                host: head.field("host"),
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
        .fault_at(sequence, &head.target, head.range());
    let name = fault.name();
    shared.log.update(number, |entry| entry.fault = name);
    for part in fault.parts() {
        match part {
            Fault::HangUp => return Ok(After::Close),
            Fault::Silence => return Ok(After::Hold),
            Fault::Reset {
                after_body_bytes: 0,
            } => return Ok(After::Reset),
            _ => {}
        }
    }
    let object = {
        let objects = shared
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        objects.get(head.path()).cloned()
    };
    let instead = fault.parts().iter().find_map(|part| match part {
        Fault::Instead(other, _) => Some(other),
        _ => None,
    });
    let object = match instead {
        Some(other) => object.map(|_| other.clone()),
        None => object,
    };
    let reply = match &object {
        Some(object) => {
            let usual = shared.several.lock();
            let usual = usual.unwrap_or_else(PoisonError::into_inner);
            reply_to(
                head,
                object,
                &fault,
                (shared.heeds_if_match, usual.as_ref()),
            )
        }
        None => text(404, "no such object\n"),
    };
    shared
        .log
        .update(number, |entry| entry.status = Some(reply.status));
    let style = HeadStyle::of(&fault);
    if let Some(after) = style.write(&reply, writing).await? {
        return Ok(after);
    }
    let after = write_body(&reply, object.as_ref(), shared, number, writing).await?;
    writing.write_all(&style.behind).await?;
    Ok(after)
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
        writing.write_all(b"0\r\n").await?;
        writing.write_all(reply.trailers.as_bytes()).await?;
        writing.write_all(b"\r\n").await?;
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
    let usual = (PIECE_BYTES, std::time::Duration::ZERO);
    let (piece_bytes, pause) = reply.drip.unwrap_or(usual);
    for piece in body.chunks(usize::try_from(piece_bytes).unwrap_or(1).max(1)) {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        writing.write_all(piece).await?;
        shared
            .log
            .update(number, |entry| entry.body_bytes += piece.len() as u64);
    }
    Ok(reply.after)
}
