//! Real servers in the tests: each started on loopback by its own file below, with a configuration of its own, read by
//! cold stations, and compared with what docs/servers.md says.
//!
//! It is no deployment: a server lives for one test, in a folder under `target/servers/`.

mod access_log;
mod apache;
mod ask;
mod behaviour;
mod caddy;
mod catalogue;
mod fat_origin;
pub(crate) mod install;
mod lighttpd;
mod material;
mod measure;
mod nginx;
mod page;
mod presign;
pub(crate) mod process;
mod python;
mod reader;
mod replaced;
mod running;
pub(crate) mod s3s;
mod signed;
mod site_cache;
mod template;
mod varnish;

use anyhow::{Result, ensure};

use crate::repository;
use catalogue::{Role, SERVERS, ServerUnderTest};
use material::Material;

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Installs what is missing first: Debian's packages as root, s3s-fs by cargo.
    #[arg(long)]
    install: bool,
    /// Only this server, by its key; may be given more than once. The page is neither written nor checked.
    #[arg(long, value_name = "KEY")]
    only: Vec<String>,
    /// Writes docs/servers.md; needs every server.
    #[arg(long, conflicts_with_all = ["only", "check"])]
    write: bool,
    /// Compares docs/servers.md with what is measured; needs every server.
    #[arg(long, conflicts_with = "only")]
    check: bool,
}

/// What a server that is not installed means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is said and passed over.
    Skipped,
    /// It is a failure: somebody relies on the result.
    Failure,
}

/// Runs the task by itself.
///
/// # Errors
/// The first server that is not as it must be, or a page that says something else.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.install {
        install::install()?;
    }
    repository::build_binaries()?;
    let chosen = chosen(&arguments.only)?;
    let missing = if arguments.write || arguments.check {
        Missing::Failure
    } else {
        Missing::Skipped
    };
    let text = measure_all(&chosen, missing)?;
    match text {
        Some(text) if arguments.write => page::write(&text),
        Some(text) if arguments.check => page::check(&text),
        Some(text) if arguments.only.is_empty() => {
            print!("{text}");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The step of `cargo xtask test`: every server that is there, and the page if all are.
///
/// # Errors
/// The first server that is not as it must be, a page that says something else, or a missing server in CI.
pub(crate) fn test(missing: Missing) -> Result<()> {
    let all: Vec<&ServerUnderTest> = SERVERS.iter().collect();
    match measure_all(&all, missing)? {
        Some(text) => page::check(&text),
        None => Ok(()),
    }
}

fn chosen(keys: &[String]) -> Result<Vec<&'static ServerUnderTest>> {
    for key in keys {
        ensure!(
            SERVERS.iter().any(|server| server.key == key),
            "no server {key}; there are {}",
            SERVERS
                .iter()
                .map(|server| server.key)
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let wanted =
        |server: &&ServerUnderTest| keys.is_empty() || keys.iter().any(|key| key == server.key);
    Ok(SERVERS.iter().filter(wanted).collect())
}

/// Says which servers are passed over, or fails where none may be.
fn pass_over(absent: &[&str], missing: Missing) -> Result<()> {
    for title in absent {
        println!("skipped: {title} ({})", install::HOW_TO_INSTALL);
    }
    ensure!(
        absent.is_empty() || missing == Missing::Skipped,
        "not installed: {} ({})",
        absent.join(", "),
        install::HOW_TO_INSTALL
    );
    Ok(())
}

/// The page's text, if every server was there.
fn measure_all(servers: &[&ServerUnderTest], missing: Missing) -> Result<Option<String>> {
    let (there, absent): (Vec<&ServerUnderTest>, Vec<&ServerUnderTest>) =
        servers.iter().partition(|server| server.is_installed());
    let absent: Vec<&str> = absent.iter().map(|server| server.title).collect();
    pass_over(&absent, missing)?;
    if there.is_empty() {
        return Ok(None);
    }
    repository::run(repository::cargo().args([
        "build",
        "--quiet",
        "--package",
        "fat-station",
        "--example",
        "read_rows",
    ]))?;
    let material = Material::prepare(material::base_dir())?;
    let references = measure::references(&material)?;
    let mut measured = Vec::new();
    for server in &there {
        eprintln!("servers: {}", server.title);
        measured.push(measure::measure(server, &material, &references)?);
    }
    let mut caches = Vec::new();
    for server in there.iter().filter(|server| server.role == Role::Cache) {
        eprintln!("servers: ten stations behind {}", server.title);
        caches.push(site_cache::measure(server, &material)?);
    }
    let text = page::text(&measured, &caches)?;
    // Logs are kept where something failed; here nothing did.
    std::fs::remove_dir_all(&material.base)?;
    Ok(absent.is_empty().then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_is_passed_over_unless_somebody_relies_on_it() {
        assert!(pass_over(&["nginx", "Varnish"], Missing::Skipped).is_ok());
        assert!(pass_over(&[], Missing::Failure).is_ok());
        let text =
            pass_over(&["nginx", "Varnish"], Missing::Failure).map_err(|error| error.to_string());
        assert_eq!(
            text,
            Err(
                "not installed: nginx, Varnish (install with: cargo xtask test --install)"
                    .to_owned()
            )
        );
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_known_ones() {
        let text = chosen(&["nginx".into(), "iis".into()])
            .map(|_| ())
            .map_err(|error| error.to_string());
        assert!(
            text.is_err_and(|text| text.starts_with("no server iis; there are fat-origin, nginx,"))
        );
    }
}
