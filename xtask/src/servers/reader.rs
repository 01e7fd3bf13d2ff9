//! `read_rows`, an example of the station, as a child that is fed one batch after the other.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::repository;

/// Seconds after which a reader that hangs is ended; the station's own deadline of a batch is 10 s.
const LIMIT_S: &str = "120";

/// Variables that would send a request to loopback elsewhere.
const PROXIES: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// Where a reader takes its rows from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) url: &'a str,
    pub(super) knot: &'a Path,
    /// `auto`, `require` or `off`.
    pub(super) verify: &'a str,
    /// For `SSL_CERT_FILE`.
    pub(super) root_certificate: Option<&'a Path>,
}

/// Which rows.
#[derive(Clone)]
pub(super) enum Wanted {
    Ids(Vec<u32>),
    Text(PathBuf),
}

/// What one batch was and cost.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Batch {
    pub(super) ids: Vec<u32>,
    pub(super) row_bytes: usize,
    pub(super) requests: u64,
    pub(super) waves: u64,
    pub(super) received_bytes: u64,
    pub(super) framing_bytes: u64,
    pub(super) useful_bytes: u64,
    pub(super) retries: u64,
}

impl Batch {
    /// Bytes of bodies that carried rows, what separates the parts included.
    pub(super) fn carried_bytes(&self) -> u64 {
        self.received_bytes + self.framing_bytes
    }

    /// Whether another batch of the same rows moved as much in as many requests, and neither sent one again. Waves may
    /// differ: over HTTP/2 the server's limit of streams may come late.
    pub(super) fn cost_the_same(&self, other: &Self) -> bool {
        let counts = |batch: &Self| {
            (
                batch.requests,
                batch.received_bytes,
                batch.framing_bytes,
                batch.retries,
            )
        };
        self.retries == 0 && counts(self) == counts(other)
    }
}

/// A batch that failed, and with it the reader.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The station's error and its causes.
    pub(super) text: String,
    /// The exit code.
    pub(super) code: i32,
    /// Everything it wrote, on both streams.
    pub(super) output: String,
}

/// How a batch ended.
pub(super) enum Outcome {
    Rows(Batch),
    Refused(Refusal),
}

/// A running reader.
pub(super) struct Reader {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    errors: PathBuf,
}

/// Takes away what would send a request to loopback elsewhere, and sets the roots that a server's certificate needs.
pub(super) fn confine(command: &mut Command, root_certificate: Option<&Path>) {
    for name in PROXIES {
        command.env_remove(name);
    }
    if let Some(root) = root_certificate {
        command.env("SSL_CERT_FILE", root);
    }
}

impl Reader {
    /// Starts a reader that knows nothing yet: `scratch` is its cache folder, and holds what it writes to stderr.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(source: Source<'_>, scratch: &Path) -> Result<Self> {
        if scratch.exists() {
            std::fs::remove_dir_all(scratch)?;
        }
        std::fs::create_dir_all(scratch)?;
        let errors = scratch.join("stderr.log");
        let reader = repository::example("read_rows");
        let mut command = Command::new("timeout");
        command.arg(LIMIT_S).arg(reader.get_program());
        command.args([
            "--columnar-embed",
            source.url,
            "--verify",
            source.verify,
            "--knot",
        ]);
        command
            .arg(source.knot)
            .arg("--cache-dir")
            .arg(scratch.join("cache"));
        confine(&mut command, source.root_certificate);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?)
            .spawn()
            .context("could not start read_rows under timeout(1)")?;
        let stdin = child.stdin.take().context("the reader has no stdin")?;
        let stdout = child.stdout.take().context("the reader has no stdout")?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            errors,
        })
    }

    /// Asks for a batch; its rows go to `out`.
    ///
    /// # Errors
    /// If the reader is gone.
    pub(super) fn ask(&mut self, wanted: &Wanted, out: &Path) -> Result<()> {
        let batch = match wanted {
            Wanted::Ids(ids) => json!({ "ids": ids, "out": out }),
            Wanted::Text(path) => json!({ "text": path, "out": out }),
        };
        writeln!(self.stdin, "{batch}").context("the reader takes no batch")
    }

    /// Waits for the batch that was asked for.
    ///
    /// # Errors
    /// If the reader says something else than it documents.
    pub(super) fn answer(&mut self) -> Result<Outcome> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        if said.get("ids").is_some() {
            return Ok(Outcome::Rows(serde_json::from_value(said)?));
        }
        let status = self.child.wait()?;
        let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let Some(text) = said.get("error").and_then(Value::as_str) else {
            bail!("the reader ended with {status} and no word: {line}{errors}");
        };
        Ok(Outcome::Refused(Refusal {
            text: text.to_owned(),
            code: status.code().unwrap_or_default(),
            output: line + &errors,
        }))
    }

    /// Asks for a batch that must come.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn read(&mut self, wanted: &Wanted, out: &Path) -> Result<Batch> {
        self.ask(wanted, out)?;
        match self.answer()? {
            Outcome::Rows(batch) => Ok(batch),
            Outcome::Refused(refusal) => bail!("exit code {}: {}", refusal.code, refusal.text),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // timeout(1) hands the signal on; a reader that is done is gone already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
