//! Apache httpd: a server of files, and one that compresses.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};

use super::install;
use super::process::Process;
use super::running::{Place, Running};
use super::template;

const FRAME: &str = include_str!("templates/apache.frame.conf");
pub(super) const PLAIN: &str = include_str!("templates/apache.conf");
pub(super) const DEFLATE: &str = include_str!("templates/apache-deflate.conf");

/// Debian's folder of modules.
const MODULES: &str = "/usr/lib/apache2/modules";

pub(super) fn plain(place: Place<'_>) -> Result<Running> {
    start(place, PLAIN)
}

pub(super) fn deflate(place: Place<'_>) -> Result<Running> {
    start(place, DEFLATE)
}

fn start(place: Place<'_>, site: &str) -> Result<Running> {
    let program = install::on_path("apache2").context("apache2 is not installed")?;
    let dir = template::plain(place.dir)?;
    // It refuses to work as root; a plain user cannot change and needs no directive.
    let user = if install::is_root() {
        "User www-data\nGroup www-data"
    } else {
        ""
    };
    let configuration = place.dir.join("apache.conf");
    let values = [("dir", dir), ("user", user), ("modules", MODULES)];
    template::write(&configuration, FRAME, &values)?;
    let (process, address) = Process::start("apache", place.dir, |address: SocketAddr| {
        let values = [
            ("listen", address.to_string()),
            ("root", template::plain(place.site)?.to_owned()),
        ];
        template::write(
            &place.dir.join("site.conf"),
            site,
            &template::borrowed(&values),
        )?;
        let mut command = Command::new(&program);
        command.arg("-DFOREGROUND").arg("-f").arg(&configuration);
        Ok(command)
    })?;
    Ok(Running::of_files(process, address, place.dir))
}
