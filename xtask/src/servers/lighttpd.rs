//! lighttpd: a server of files. It ignores `If-Match` and drops ranges beyond the tenth without a word.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};

use super::install;
use super::process::Process;
use super::running::{Place, Running};
use super::template;

const FRAME: &str = include_str!("templates/lighttpd.frame.conf");
pub(super) const PLAIN: &str = include_str!("templates/lighttpd.conf");

pub(super) fn plain(place: Place<'_>) -> Result<Running> {
    let program = install::on_path("lighttpd").context("lighttpd is not installed")?;
    let configuration = place.dir.join("lighttpd.conf");
    template::write(
        &configuration,
        FRAME,
        &[("dir", template::plain(place.dir)?)],
    )?;
    let (process, address) = Process::start("lighttpd", place.dir, |address: SocketAddr| {
        let values = [
            ("host", address.ip().to_string()),
            ("port", address.port().to_string()),
            ("root", template::plain(place.site)?.to_owned()),
        ];
        template::write(
            &place.dir.join("site.conf"),
            PLAIN,
            &template::borrowed(&values),
        )?;
        let mut command = Command::new(&program);
        command.arg("-D").arg("-f").arg(&configuration);
        Ok(command)
    })?;
    Ok(Running::of_files(process, address, place.dir))
}
