//! Starts the binary and reads back what it left; an origin in this process that logs.

use fat_origin::serve::{ServeOptions, Server};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

use crate::tiny_model;

/// The binary, free of the tester's own settings.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fat-station"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAT_STATION_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// An origin over a directory of packed models, with its access log.
pub(crate) struct Origin {
    server: Option<Server>,
    url: String,
    log: PathBuf,
    _scratch: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Origin {
    pub(crate) fn start() -> Self {
        Self::over(tiny_model::models())
    }

    pub(crate) fn over(directory: &Path) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let log = scratch.path().join("access.jsonl");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let options = ServeOptions {
            access_log: Some(log.clone()),
            ..ServeOptions::new(directory)
        };
        let server = runtime.block_on(Server::start(options)).unwrap();
        let url = server.base_url();
        Self {
            server: Some(server),
            url,
            log,
            _scratch: scratch,
            runtime,
        }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// Ranges in each request so far for a path with this ending, as the replies ended.
    pub(crate) fn ranges_of(&self, ending: &str) -> Vec<usize> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["path"].as_str().unwrap().ends_with(ending))
            .map(|line| line["range"].as_str().unwrap().split(',').count())
            .collect()
    }

    /// Shuts the origin down and reads its log: body bytes and requests for paths with this ending.
    pub(crate) fn stop(mut self) -> AccessLog {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.shutdown());
        let text = std::fs::read_to_string(&self.log).unwrap();
        AccessLog(
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        )
    }
}

pub(crate) struct AccessLog(Vec<Value>);

impl AccessLog {
    /// (requests, body bytes) of paths that end so.
    pub(crate) fn of(&self, ending: &str) -> (u64, u64) {
        let lines = self
            .0
            .iter()
            .filter(|line| line["path"].as_str().unwrap().ends_with(ending));
        lines.fold((0, 0), |(requests, bytes), line| {
            (
                requests + 1,
                bytes + line["body_bytes_sent"].as_u64().unwrap(),
            )
        })
    }
}

/// What a finished `run` left.
pub(crate) struct Finished {
    pub(crate) text: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
    pub(crate) summary: Value,
    pub(crate) tokens: Vec<u32>,
    pub(crate) logits: Vec<u8>,
}

/// Runs with these flags before and after `run`, a cold cache where none is named.
pub(crate) fn run(station: &[&str], run: &[&str]) -> Finished {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str| scratch.path().join(name);
    let mut command = binary();
    command
        .args(station)
        .arg("--summary-file")
        .arg(file("summary.json"));
    if !station.contains(&"--cache-dir") {
        command.arg("--cache-dir").arg(file("cache"));
    }
    command
        .arg("run")
        .arg("--tokens-file")
        .arg(file("tokens.json"));
    command
        .arg("--logits-file")
        .arg(file("logits.f32"))
        .args(run);
    let output = command.output().unwrap();
    let json = |name: &str| {
        std::fs::read_to_string(file(name))
            .map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    };
    Finished {
        text: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap(),
        summary: json("summary.json"),
        tokens: serde_json::from_value(json("tokens.json")).unwrap_or_default(),
        logits: std::fs::read(file("logits.f32")).unwrap_or_default(),
    }
}

impl Finished {
    /// (requests, body bytes) of these kinds, framing of replies to several ranges included: what an
    /// origin logs.
    pub(crate) fn moved(&self, kinds: &[&str]) -> (u64, u64) {
        let of = |kind: &str, what: &str| self.number(&format!("/bytes/{kind}/{what}"));
        kinds.iter().fold((0, 0), |(requests, bytes), kind| {
            (
                requests + of(kind, "requests"),
                bytes + of(kind, "received") + of(kind, "framing"),
            )
        })
    }

    /// As [`Finished::moved`], of every kind.
    pub(crate) fn moved_in_all(&self) -> (u64, u64) {
        self.moved(&["rows", "paths", "head", "blocks", "probe"])
    }

    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self
    }

    pub(crate) fn number(&self, path: &str) -> u64 {
        self.summary
            .pointer(path)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("no {path}: {}", self.summary))
    }
}

/// Path of a packed model's file.
pub(crate) fn packed(name: &str) -> String {
    tiny_model::models().join(name).to_str().unwrap().to_owned()
}

#[track_caller]
pub(crate) fn text_of(output: &Output) -> &str {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::str::from_utf8(&output.stdout).unwrap()
}
