//! A server that runs: where its objects are, and what it logged once it has ended.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::access_log::{self, AccessLog, Reply};
use super::process::Process;
use super::s3s::S3Server;
use crate::origin::Origin;

/// The folders a server is started with.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The files it serves.
    pub(crate) site: &'a Path,
    /// Its own folder, empty: configuration, logs, caches.
    pub(crate) dir: &'a Path,
}

impl Place<'_> {
    /// `fat-origin serve` for the site, logging into this place.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn origin(self) -> Result<Origin> {
        Origin::start_logging(self.site, self.dir.join("origin.access.jsonl"))
    }
}

/// The process behind a running server.
pub(super) enum Engine {
    /// A server of files, or a cache.
    Child(Process),
    /// `fat-origin serve`.
    FatOrigin(Origin),
    /// s3s-fs, which wants signed requests.
    S3(S3Server),
}

/// A running server; dropping it ends it, its workers, and the origin behind it.
pub(crate) struct Running {
    pub(super) engine: Engine,
    pub(super) base_url: String,
    pub(super) access_log: AccessLog,
    /// Certificate of the authority that signed the server's, for `SSL_CERT_FILE`.
    pub(super) root_certificate: Option<PathBuf>,
    /// What a cache asks.
    pub(super) upstream: Option<Origin>,
    /// Varnish keeps its log in memory: the command that prints it, run before the end.
    pub(super) print_log: Option<std::process::Command>,
}

/// What a server and the origin behind it logged.
pub(crate) struct Logged {
    pub(crate) replies: Vec<Reply>,
    /// Empty where no origin stands behind the server.
    pub(crate) upstream: Vec<Reply>,
}

/// How long a presigned URL of a test is good.
const PRESIGNED_FOR: Duration = Duration::from_secs(3_600);

/// The bucket that s3s-fs shows the site as.
pub(super) const BUCKET: &str = "site";

impl Running {
    /// A server of files at `address`, logging in our words.
    pub(super) fn of_files(process: Process, address: SocketAddr, dir: &Path) -> Self {
        Self {
            engine: Engine::Child(process),
            base_url: format!("http://{address}"),
            access_log: AccessLog {
                path: dir.join("access.log"),
                form: access_log::Form::Words,
            },
            root_certificate: None,
            upstream: None,
            print_log: None,
        }
    }

    /// The URL of an object of the site; presigned where the server wants it.
    ///
    /// # Errors
    /// If the clock stands before 1970.
    pub(crate) fn url(&self, name: &str) -> Result<String> {
        match &self.engine {
            Engine::S3(server) => server.presigned(BUCKET, name, SystemTime::now(), PRESIGNED_FOR),
            _ => Ok(format!("{}/{name}", self.base_url)),
        }
    }

    /// The S3 server itself.
    pub(crate) fn s3(&self) -> Option<&S3Server> {
        match &self.engine {
            Engine::S3(server) => Some(server),
            _ => None,
        }
    }

    /// Certificate of the authority behind an https URL.
    pub(crate) fn root_certificate(&self) -> Option<&Path> {
        self.root_certificate.as_deref()
    }

    /// Ends the server, then the origin behind it, and reads what both logged.
    ///
    /// # Errors
    /// If one does not end, or a log is not what its server documents.
    pub(crate) fn stop(self) -> Result<Logged> {
        if let Some(mut print) = self.print_log {
            let output = print
                .output()
                .with_context(|| format!("could not start {print:?}"))?;
            if !output.status.success() {
                bail!("{print:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
            std::fs::write(&self.access_log.path, output.stdout)?;
        }
        match self.engine {
            Engine::Child(process) => process.stop()?,
            Engine::S3(server) => server.stop()?,
            Engine::FatOrigin(origin) => drop(origin),
        }
        let replies = access_log::read(&self.access_log.path, self.access_log.form)?;
        let upstream = match self.upstream {
            None => Vec::new(),
            Some(origin) => {
                let log = origin.log().to_path_buf();
                drop(origin);
                access_log::read(&log, access_log::Form::FatOrigin)?
            }
        };
        Ok(Logged { replies, upstream })
    }
}
