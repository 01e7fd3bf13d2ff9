//! Varnish in front of an origin: it fetches whole objects and cuts ranges out of them.

use std::process::Command;

use anyhow::{Context, Result};

use super::install;
use super::process::Process;
use super::running::{Place, Running};
use super::template;

pub(super) const VCL: &str = include_str!("templates/varnish.vcl");

/// One line a reply, in the order that the other servers are asked for.
const LOG_FORMAT: &str = "%m %U %{Range}i %s %b %H";

/// Room for the largest object of the tests, and then some.
const STORAGE: &str = "file,cache.bin,1g";

pub(super) fn cache(place: Place<'_>) -> Result<Running> {
    let program = install::on_path("varnishd").context("varnish is not installed")?;
    let print = install::on_path("varnishncsa").context("varnish came without varnishncsa")?;
    let origin = place.origin()?;
    let configuration = place.dir.join("site.vcl");
    let (host, port) = (
        origin.address().ip().to_string(),
        origin.address().port().to_string(),
    );
    let values = [
        ("origin_host", host.as_str()),
        ("origin_port", port.as_str()),
    ];
    template::write(&configuration, VCL, &values)?;
    let state = place.dir.join("state");
    let (process, address) = Process::start("varnish", place.dir, |address| {
        let mut command = Command::new(&program);
        command.args(["-F", "-j", "none", "-T", "none", "-s", STORAGE]);
        command
            .args(["-a", &address.to_string(), "-f"])
            .arg(&configuration);
        command.arg("-n").arg(&state);
        Ok(command)
    })?;
    let mut print_log = Command::new(print);
    print_log
        .arg("-n")
        .arg(&state)
        .args(["-d", "-F", LOG_FORMAT]);
    let running = Running::of_files(process, address, place.dir);
    Ok(Running {
        upstream: Some(origin),
        print_log: Some(print_log),
        ..running
    })
}
