//! s3s-fs: S3 over a folder, with real signature version 4. A bucket is a folder below its root.
//!
//! Anonymous reads are refused, so a station is given presigned URLs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::access_log::{AccessLog, Form};
use super::install;
use super::presign::{Signer, Validity};
use super::process::Process;
use super::running::{BUCKET, Engine, Place, Running};

/// A key pair of the tests; nothing outside the server on loopback knows it.
pub(crate) const ACCESS_KEY: &str = "AKIDTESTONLY";
/// Its secret.
pub(crate) const SECRET_KEY: &str = "secret-of-the-tests-only";
/// The region that clients name; the server takes any.
pub(crate) const REGION: &str = "us-east-1";

/// A running s3s-fs.
pub(crate) struct S3Server {
    process: Process,
    address: SocketAddr,
}

impl S3Server {
    /// Serves `root`, whose folders are the buckets; `scratch` takes the log.
    ///
    /// # Errors
    /// If s3s-fs is not installed or does not start.
    pub(crate) fn start(root: &Path, scratch: &Path) -> Result<Self> {
        let program = install::s3s_fs().with_context(|| {
            format!(
                "s3s-fs {} is missing ({})",
                install::S3S_FS_VERSION,
                install::HOW_TO_INSTALL
            )
        })?;
        let root = root
            .canonicalize()
            .with_context(|| format!("no folder of buckets at {}", root.display()))?;
        let (process, address) = Process::start("s3s-fs", scratch, |address| {
            let mut command = Command::new(&program);
            command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
            command.args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]);
            // One line a request and one a reply; the default says nothing.
            command.arg(&root).env("RUST_LOG", "s3s::service=debug");
            Ok(command)
        })?;
        Ok(Self { process, address })
    }

    /// What `AWS_ENDPOINT_URL` takes.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A URL that reads `key` of `bucket` without credentials, from `from` on for `lasts`.
    ///
    /// # Errors
    /// If the time lies before 1970.
    pub(crate) fn presigned(
        &self,
        bucket: &str,
        key: &str,
        from: SystemTime,
        lasts: Duration,
    ) -> Result<String> {
        let signer = Signer {
            access_key: ACCESS_KEY,
            secret_key: SECRET_KEY,
            region: REGION,
        };
        signer.get(
            "http",
            &self.address.to_string(),
            &format!("/{bucket}/{key}"),
            Validity { from, lasts },
        )
    }

    /// Its log: one line for each request and each reply.
    pub(crate) fn log(&self) -> PathBuf {
        self.process.log().to_path_buf()
    }

    /// Ends it, so that its log is complete.
    ///
    /// # Errors
    /// If it does not end.
    pub(crate) fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

/// The site as a bucket: a link to its folder, below a root of our own.
pub(super) fn bucket(place: Place<'_>) -> Result<Running> {
    let root = place.dir.join("root");
    std::fs::create_dir_all(&root)?;
    std::os::unix::fs::symlink(place.site, root.join(BUCKET))?;
    let server = S3Server::start(&root, place.dir)?;
    Ok(Running {
        base_url: format!("{}/{BUCKET}", server.endpoint()),
        access_log: AccessLog {
            path: server.log(),
            form: Form::S3s,
        },
        engine: Engine::S3(server),
        root_certificate: None,
        upstream: None,
        print_log: None,
    })
}
