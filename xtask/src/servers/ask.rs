//! One request on a connection of its own, by hand: what a server answers must not pass through a client that knows
//! better.
//!
//! It reads a reply to the end of the connection and understands no transfer coding: a length is what it is given.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The longest wait for the next byte.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than any object that is asked for here.
const MOST_BYTES: u64 = 4 << 20;

/// A reply as it came.
pub(super) struct Answer {
    pub(super) status: u16,
    /// The head's lines behind the first one, names in lower case.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// The value of a header; `name` in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// GETs an `http://` URL with further header lines.
///
/// # Errors
/// If no connection comes about, or what comes back is no HTTP/1 reply of at most 4 MiB.
pub(super) fn get(url: &str, headers: &[(&str, &str)]) -> Result<Answer> {
    let rest = url.strip_prefix("http://").context("not an http:// URL")?;
    let (host, path) = rest.split_once('/').context("a URL without a path")?;
    let mut stream =
        TcpStream::connect(host).with_context(|| format!("no connection to {host}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let lines: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n"
    )?;
    let mut reply = Vec::new();
    stream.take(MOST_BYTES + 1).read_to_end(&mut reply)?;
    ensure!(
        reply.len() as u64 <= MOST_BYTES,
        "a reply of more than {MOST_BYTES} bytes"
    );
    parsed(&reply).context("the reply is not HTTP/1")
}

pub(super) fn parsed(reply: &[u8]) -> Option<Answer> {
    let end = reply.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(reply.get(..end)?).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some(Answer {
        status,
        headers,
        body: reply.get(end + 4..)?.to_vec(),
    })
}
