//! The access log: one JSON object a line, written whole with one system call, so that a reader of
//! the file never sees half a line. The query of a request never gets here.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::Error;

#[derive(Debug)]
pub(super) struct AccessLog {
    file: Mutex<File>,
}

impl AccessLog {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(Error::io(path, "open"))?;
        Ok(Self {
            file: Mutex::new(file),
        })
    }

    fn write(&self, line: &Line) {
        let Ok(mut text) = serde_json::to_vec(line) else {
            return;
        };
        text.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not take the origin down; it is said where operators look.
        if let Err(error) = file.write_all(&text) {
            tracing::warn!(%error, "the access log cannot be written");
        }
    }
}

/// The line's fields, in their order in the file.
#[derive(Debug, Serialize)]
struct Line {
    time_ms: u64,
    method: String,
    path: String,
    range: Option<String>,
    status: u16,
    body_bytes_sent: u64,
    protocol: &'static str,
}

/// One reply in the making. The line is written when the last byte of the body is handed to the
/// connection (a client that has its answer finds it in the log), or, when the reply is cut short,
/// on drop, with the bytes handed over until then.
#[derive(Debug)]
pub(super) struct Record {
    log: Option<Arc<AccessLog>>,
    line: Line,
}

impl Record {
    /// A record of a request that has just arrived.
    pub(super) fn new<B>(log: Option<Arc<AccessLog>>, request: &hyper::Request<B>) -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let range = request.headers().get(hyper::header::RANGE);
        Self {
            log,
            line: Line {
                time_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
                method: request.method().to_string(),
                path: request.uri().path().to_owned(),
                range: range.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
                status: 0,
                body_bytes_sent: 0,
                protocol: match request.version() {
                    hyper::Version::HTTP_2 => "HTTP/2",
                    hyper::Version::HTTP_10 => "HTTP/1.0",
                    _ => "HTTP/1.1",
                },
            },
        }
    }

    pub(super) fn set_status(&mut self, status: hyper::StatusCode) {
        self.line.status = status.as_u16();
    }

    pub(super) fn add_sent(&mut self, bytes: u64) {
        self.line.body_bytes_sent = self.line.body_bytes_sent.saturating_add(bytes);
    }

    /// Writes the line, once.
    pub(super) fn finish(&mut self) {
        if let Some(log) = self.log.take() {
            log.write(&self.line);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.finish();
    }
}
