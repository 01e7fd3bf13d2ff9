//! Access logs of the servers, in the few forms they have, as one list of replies.
//!
//! A log is read when its server has ended: some buffer it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// How a server writes its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Ours: method, path, range, status, body bytes, protocol; `-` where there is none. A range may hold blanks, so the
    /// three fields behind it are counted from the end.
    Words,
    /// JSON of Caddy 2.
    Caddy,
    /// JSON of `fat-origin serve`.
    FatOrigin,
    /// Debug lines of s3s-fs: a request, then its reply, told apart by the time of the span.
    S3s,
    /// Python's `http.server`; without bytes and ranges.
    Python,
}

/// One reply, as its server saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The path without a query.
    pub(crate) path: String,
    /// `Range` of the request; empty where there was none.
    pub(crate) range: String,
    pub(crate) status: u16,
    /// `None` where the log does not say.
    pub(crate) body_bytes: Option<u64>,
    /// `HTTP/1.1`, `HTTP/2.0`; empty where the log does not say.
    pub(crate) protocol: String,
}

/// Reads a whole log.
///
/// # Errors
/// If it cannot be read, or a line is not of its form.
pub(crate) fn read(path: &Path, form: Form) -> Result<Vec<Reply>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("no access log at {}", path.display()))?;
    let replies = match form {
        Form::S3s => s3s(&text),
        Form::Python => Ok(text.lines().filter_map(python).collect()),
        Form::Words | Form::Caddy | Form::FatOrigin => text
            .lines()
            .map(|line| one(line, form).with_context(|| format!("not a log line: {line}")))
            .collect(),
    };
    replies.with_context(|| format!("access log {}", path.display()))
}

/// Where a server writes, and how.
pub(crate) struct AccessLog {
    pub(crate) path: PathBuf,
    pub(crate) form: Form,
}

fn one(line: &str, form: Form) -> Result<Reply> {
    match form {
        Form::Caddy => caddy(line),
        Form::FatOrigin => fat_origin(line),
        _ => words(line).context("expected METHOD PATH RANGE STATUS BYTES PROTOCOL"),
    }
}

fn words(line: &str) -> Option<Reply> {
    let (_method, rest) = line.split_once(' ')?;
    let (path, rest) = rest.split_once(' ')?;
    let mut from_the_end = rest.rsplitn(4, ' ');
    let protocol = from_the_end.next()?.to_owned();
    let bytes = from_the_end.next()?;
    let status = from_the_end.next()?.parse().ok()?;
    let range = from_the_end.next()?;
    Some(Reply {
        path: path.to_owned(),
        range: if range == "-" {
            String::new()
        } else {
            range.to_owned()
        },
        status,
        body_bytes: Some(if bytes == "-" { 0 } else { bytes.parse().ok()? }),
        protocol,
    })
}

#[derive(Deserialize)]
struct CaddyLine {
    request: CaddyRequest,
    size: u64,
    status: u16,
}

#[derive(Deserialize)]
struct CaddyRequest {
    proto: String,
    uri: String,
    headers: CaddyHeaders,
}

#[derive(Deserialize)]
struct CaddyHeaders {
    #[serde(rename = "Range", default)]
    range: Vec<String>,
}

fn caddy(line: &str) -> Result<Reply> {
    let line: CaddyLine = serde_json::from_str(line)?;
    let path = line.request.uri.split('?').next().unwrap_or_default();
    Ok(Reply {
        path: path.to_owned(),
        range: line.request.headers.range.concat(),
        status: line.status,
        body_bytes: Some(line.size),
        protocol: line.request.proto,
    })
}

#[derive(Deserialize)]
struct FatOriginLine {
    path: String,
    range: Option<String>,
    status: u16,
    body_bytes_sent: u64,
    protocol: String,
}

fn fat_origin(line: &str) -> Result<Reply> {
    let line: FatOriginLine = serde_json::from_str(line)?;
    Ok(Reply {
        path: line.path,
        range: line.range.unwrap_or_default(),
        status: line.status,
        body_bytes: Some(line.body_bytes_sent),
        protocol: line.protocol,
    })
}

/// `127.0.0.1 - - [date] "GET /path HTTP/1.1" 200 -`; other lines are notes.
fn python(line: &str) -> Option<Reply> {
    let (_, rest) = line.split_once('"')?;
    let (request, rest) = rest.split_once('"')?;
    let mut words = request.split(' ');
    let (_method, path) = (words.next()?, words.next()?);
    Some(Reply {
        path: path.split('?').next()?.to_owned(),
        status: rest.split_whitespace().next()?.parse().ok()?,
        protocol: words.next()?.to_owned(),
        ..Reply::default()
    })
}

/// Requests and replies of concurrent connections are interleaved; the start of the span names the pair.
fn s3s(text: &str) -> Result<Vec<Reply>> {
    let mut open: Vec<(&str, Reply)> = Vec::new();
    let mut replies = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let is_request = line.contains("s3s::service: req: Request {");
        if !is_request && !line.contains("resp: Response {") {
            continue;
        }
        let span = lines
            .by_ref()
            .find_map(|line| line.split_once("s3s::service::call with start_time: "))
            .map(|(_, start)| start)
            .context("a request without the start of its span")?;
        if is_request {
            let uri = between(line, "uri: ", ",").context("a request without its uri")?;
            let path = uri.split('?').next().unwrap_or_default();
            let reply = Reply {
                path: path.to_owned(),
                range: between(line, "\"range\": \"", "\"")
                    .unwrap_or_default()
                    .to_owned(),
                protocol: between(line, "version: ", ",")
                    .unwrap_or_default()
                    .to_owned(),
                ..Reply::default()
            };
            open.push((span, reply));
        } else {
            let at = open.iter().position(|(start, _)| *start == span);
            let (_, mut reply) = open.remove(at.context("a reply to no request")?);
            let status = between(line, "status: ", ",").context("a reply without its status")?;
            reply.status = status.parse()?;
            let length = between(line, "\"content-length\": \"", "\"");
            reply.body_bytes = length.map(str::parse).transpose()?;
            replies.push(reply);
        }
    }
    Ok(replies)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

#[cfg(test)]
mod tests;
