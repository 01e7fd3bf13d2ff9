//! Caddy: a server of files in cleartext, and one behind TLS with HTTP/2 and a certificate authority of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::access_log::{AccessLog, Form};
use super::install;
use super::process::Process;
use super::running::{Place, Running};
use super::template;

const FRAME: &str = include_str!("templates/caddy.frame");
pub(super) const PLAIN: &str = include_str!("templates/caddy");
pub(super) const TLS: &str = include_str!("templates/caddy-tls");

/// The name in the certificate; it resolves to loopback everywhere.
const NAME: &str = "localhost";
/// Caddy makes its authority and the first certificate after it listens; seconds on a slow machine.
const CERTIFICATE_LIMIT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub(super) fn plain(place: Place<'_>) -> Result<Running> {
    start(place, PLAIN).map(|(running, _)| running)
}

pub(super) fn tls(place: Place<'_>) -> Result<Running> {
    let (running, address) = start(place, TLS)?;
    let kept = place.dir.join("data/caddy");
    let root = kept.join("pki/authorities/local/root.crt");
    // The key is written last, after the certificate.
    let leaf = kept.join(format!("certificates/local/{NAME}/{NAME}.key"));
    wait_for(&root)?;
    wait_for(&leaf)?;
    Ok(Running {
        base_url: format!("https://{NAME}:{}", address.port()),
        root_certificate: Some(root),
        ..running
    })
}

fn start(place: Place<'_>, site: &str) -> Result<(Running, SocketAddr)> {
    let program = install::on_path("caddy").context("caddy is not installed")?;
    let configuration = place.dir.join("Caddyfile");
    template::write(
        &configuration,
        FRAME,
        &[("dir", template::plain(place.dir)?)],
    )?;
    let log = place.dir.join("access.log");
    let (process, address) = Process::start("caddy", place.dir, |address: SocketAddr| {
        let values = [
            ("host", address.ip().to_string()),
            ("port", address.port().to_string()),
            ("name", NAME.to_owned()),
            ("root", template::plain(place.site)?.to_owned()),
            ("log", template::plain(&log)?.to_owned()),
        ];
        template::write(&place.dir.join("site"), site, &template::borrowed(&values))?;
        let mut command = Command::new(&program);
        command
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(&configuration);
        // Everything it keeps, the keys of its authority first, stays in the test's folder.
        for (name, folder) in [
            ("HOME", "home"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_CONFIG_HOME", "config"),
        ] {
            command.env(name, place.dir.join(folder));
        }
        Ok(command)
    })?;
    let running = Running::of_files(process, address, place.dir);
    let access_log = AccessLog {
        path: log,
        form: Form::Caddy,
    };
    Ok((
        Running {
            access_log,
            ..running
        },
        address,
    ))
}

fn wait_for(path: &Path) -> Result<()> {
    let deadline = Instant::now() + CERTIFICATE_LIMIT;
    while std::fs::metadata(path).map_or(0, |file| file.len()) == 0 {
        ensure!(
            Instant::now() < deadline,
            "caddy made no {} within {} s",
            path.display(),
            CERTIFICATE_LIMIT.as_secs()
        );
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}
