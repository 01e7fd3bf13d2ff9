//! Python's `http.server`, which ignores ranges: a station must refuse it and say why.

use std::process::Command;

use anyhow::{Context, Result};

use super::access_log::{AccessLog, Form};
use super::install;
use super::process::Process;
use super::running::{Place, Running};

pub(super) fn plain(place: Place<'_>) -> Result<Running> {
    let program = install::on_path("python3").context("python3 is not installed")?;
    let (process, address) = Process::start("python", place.dir, |address| {
        let mut command = Command::new(&program);
        // Unbuffered: it is ended by a signal, which flushes nothing.
        command.args([
            "-u",
            "-m",
            "http.server",
            "--bind",
            "127.0.0.1",
            "--directory",
        ]);
        command.arg(place.site).arg(address.port().to_string());
        Ok(command)
    })?;
    let access_log = AccessLog {
        path: process.log().to_path_buf(),
        form: Form::Python,
    };
    let running = Running::of_files(process, address, place.dir);
    Ok(Running {
        access_log,
        ..running
    })
}
