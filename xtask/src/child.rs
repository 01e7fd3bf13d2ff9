//! Child processes that end with their owner: an origin, a link, a station.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A running server; dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    /// Kept open: a server that logs to a closed pipe would be ended by the next line.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts `command` and waits for the line on its stdout that names the address it listens on.
    ///
    /// # Errors
    /// If it cannot be started, or ends before it says where it listens.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start {command:?}"))?;
        let stdout = child.stdout.take().context("the child has no stdout")?;
        let mut lines = BufReader::new(stdout);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            if let Some(address) = address_in(&line) {
                return Ok(Self {
                    child,
                    address,
                    _stdout: lines,
                });
            }
            line.clear();
        }
        let status = child.wait()?;
        bail!("{command:?} ended with {status} before it said where it listens")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good as killed; there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    line.split_whitespace()
        .map(|word| {
            word.trim_start_matches("http://")
                .trim_start_matches("https://")
        })
        .find_map(|word| word.parse().ok())
}
