//! A `fat-origin serve` process and what its access log says.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::child::Server;
use crate::repository;

/// One reply, as the origin logged it.
#[derive(Deserialize)]
pub(crate) struct LoggedReply {
    path: String,
    body_bytes_sent: u64,
}

/// Body bytes and requests of a set of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) requests: u64,
    pub(crate) body_bytes: u64,
}

/// An origin in a process of its own, on a free loopback port, with a fresh log.
pub(crate) struct Origin {
    server: Server,
    log: PathBuf,
}

impl Origin {
    /// Serves `dir`; the log lies beside the folder, so it is never served itself.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        Self::start_logging(dir, repository::beside(dir, ".access.jsonl"))
    }

    /// Serves `dir`, logging to a file elsewhere.
    pub(crate) fn start_logging(dir: &Path, log: PathBuf) -> Result<Self> {
        if log.exists() {
            std::fs::remove_file(&log)?;
        }
        let mut command = repository::binary("fat-origin");
        command
            .arg("serve")
            .arg(dir)
            .args(["--listen", "127.0.0.1:0"])
            .arg("--access-log")
            .arg(&log);
        Ok(Self {
            server: Server::start(&mut command)?,
            log,
        })
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// Its access log, one JSON object a reply.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    pub(crate) fn url(&self, file: &Path) -> String {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        format!("http://{}/{name}", self.server.address())
    }

    /// Everything logged so far.
    pub(crate) fn replies(&self) -> Result<Vec<LoggedReply>> {
        let text = std::fs::read_to_string(&self.log)
            .with_context(|| format!("no access log at {}", self.log.display()))?;
        text.lines()
            .map(|line| {
                serde_json::from_str(line).with_context(|| format!("not a log line: {line}"))
            })
            .collect()
    }
}

/// Sums the replies whose path ends in `suffix`.
pub(crate) fn traffic(replies: &[LoggedReply], suffix: &str) -> Traffic {
    replies
        .iter()
        .filter(|reply| reply.path.ends_with(suffix))
        .fold(Traffic::default(), |sum, reply| Traffic {
            requests: sum.requests + 1,
            body_bytes: sum.body_bytes + reply.body_bytes_sent,
        })
}
