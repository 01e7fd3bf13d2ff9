//! nginx: a server of files, one that compresses, and two caches in front of an origin.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};

use super::install;
use super::process::Process;
use super::running::{Place, Running};
use super::template;
use crate::origin::Origin;

const FRAME: &str = include_str!("templates/nginx.frame.conf");
pub(super) const PLAIN: &str = include_str!("templates/nginx.conf");
pub(super) const GZIP: &str = include_str!("templates/nginx-gzip.conf");
pub(super) const CACHE: &str = include_str!("templates/nginx-cache.conf");
pub(super) const SLICE: &str = include_str!("templates/nginx-slice.conf");

pub(super) fn plain(place: Place<'_>) -> Result<Running> {
    start("nginx", place, PLAIN, None)
}

pub(super) fn gzip(place: Place<'_>) -> Result<Running> {
    start("nginx", place, GZIP, None)
}

pub(super) fn cache(place: Place<'_>) -> Result<Running> {
    start("nginx", place, CACHE, Some(place.origin()?))
}

pub(super) fn slice(place: Place<'_>) -> Result<Running> {
    start("nginx", place, SLICE, Some(place.origin()?))
}

fn start(
    name: &'static str,
    place: Place<'_>,
    site: &str,
    upstream: Option<Origin>,
) -> Result<Running> {
    let program = install::on_path("nginx").context("nginx is not installed")?;
    let dir = template::plain(place.dir)?;
    let cache = place.dir.join("cache");
    let origin = upstream.as_ref().map(Origin::address);
    // As root it would change to a user who may not read the site; a plain user cannot change at all.
    let user = if install::is_root() { "user root;" } else { "" };
    let configuration = place.dir.join("nginx.conf");
    template::write(&configuration, FRAME, &[("dir", dir), ("user", user)])?;
    let (process, address) = Process::start(name, place.dir, |address: SocketAddr| {
        let values = [
            ("listen", address.to_string()),
            ("root", template::plain(place.site)?.to_owned()),
            ("cache", template::plain(&cache)?.to_owned()),
            (
                "origin",
                origin.map(|origin| origin.to_string()).unwrap_or_default(),
            ),
        ];
        template::write(
            &place.dir.join("site.conf"),
            site,
            &template::borrowed(&values),
        )?;
        let mut command = Command::new(&program);
        command
            .args(["-e", "stderr", "-p", dir, "-c"])
            .arg(&configuration);
        Ok(command)
    })?;
    let running = Running::of_files(process, address, place.dir);
    Ok(Running {
        upstream,
        ..running
    })
}
