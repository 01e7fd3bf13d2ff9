//! `cargo xtask publish-guide`: docs/publish-to-r2.md, run word for word against s3s-fs, and a publisher that is
//! killed over and over by the byte.
//!
//! It provides what the page says is provided (an `hf`, an `r2.env`, a public domain) and nothing else.

mod blocks;
mod killed;
mod stand_ins;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::origin::Origin;
use crate::repository;
use crate::servers::s3s::S3Server;
use crate::servers::{Missing, install};

/// The page.
const PAGE: &str = "docs/publish-to-r2.md";
/// The bucket that the page has its reader make.
const BUCKET: &str = "models";

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The checkpoint that `hf` brings; a small one of Qwen's structure is made if none is given.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
}

/// Runs the task by itself.
///
/// # Errors
/// If s3s-fs is not installed, a command of the page fails, or a killed publisher loses something.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    repository::build_binaries()?;
    exercise(arguments.model.as_deref())
}

/// The step of `cargo xtask test`.
///
/// # Errors
/// As [`run`]; without s3s-fs only where nothing may be missing.
pub(crate) fn test(missing: Missing) -> Result<()> {
    if install::s3s_fs().is_none() {
        let why = format!("s3s-fs ({})", install::HOW_TO_INSTALL);
        ensure!(missing == Missing::Skipped, "not installed: {why}");
        println!("skipped: {PAGE}, publishing to a bucket: {why}");
        return Ok(());
    }
    run(&Arguments { model: None })
}

fn exercise(model: Option<&Path>) -> Result<()> {
    let scratch = repository::target_dir().join("publish-guide");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    let buckets = scratch.join("buckets");
    std::fs::create_dir_all(buckets.join(BUCKET))?;
    let server = S3Server::start(&buckets, &scratch)?;
    follow_the_page(&scratch, &server, model)?;
    killed::at_every_amount(&scratch, &server, &buckets)?;
    killed::refused(&scratch, &server)?;
    server.stop()?;
    std::fs::remove_dir_all(&scratch)?;
    Ok(())
}

/// All blocks of the page, in one shell, in an empty folder.
fn follow_the_page(scratch: &Path, server: &S3Server, model: Option<&Path>) -> Result<()> {
    let page = repository::root().join(PAGE);
    let text = std::fs::read_to_string(&page).with_context(|| format!("no page {PAGE}"))?;
    let script = blocks::script(&text)?;
    let domain = Origin::start(&scratch.join("buckets").join(BUCKET))?;
    let folder = scratch.join("reader");
    std::fs::create_dir_all(&folder)?;
    let model = match model {
        Some(model) => model
            .canonicalize()
            .with_context(|| format!("no model at {}", model.display()))?,
        None => stand_ins::small_checkpoint(scratch)?,
    };
    let programs = stand_ins::programs(scratch, &model)?;
    stand_ins::settings(&folder, server, domain.address())?;
    let mut shell = Command::new("bash");
    shell
        .args(["-e", "-u", "-o", "pipefail", "-x", "-c", &script])
        .current_dir(&folder)
        .env("PATH", programs)
        .env("XDG_CACHE_HOME", scratch.join("cache"))
        .env_remove("HTTP_PROXY")
        .env_remove("http_proxy");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            shell.env_remove(name);
        }
    }
    repository::output(&mut shell).with_context(|| format!("the commands of {PAGE}"))?;
    check_outcome(&scratch.join("buckets").join(BUCKET).join("qwen2.5-0.5b"))
}

/// Two versions were published: two knots, one row file, one manifest.
fn check_outcome(published: &Path) -> Result<()> {
    let mut counts = [("knot-", 0_usize), ("rows-", 0), ("manifest.json", 0)];
    for entry in std::fs::read_dir(published)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        for (start, count) in &mut counts {
            *count += usize::from(name.starts_with(*start));
        }
    }
    ensure!(
        counts == [("knot-", 2), ("rows-", 1), ("manifest.json", 1)],
        "after {PAGE} the bucket holds {counts:?}"
    );
    Ok(())
}
