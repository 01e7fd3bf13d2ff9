//! `cargo xtask tidy`: rules of the house that no lint knows. Each rule is a file here and returns what it found
//! wrong, as lines a person can act on.

mod arrows;
mod format_pages;
mod source_files;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::repository;

/// Runs every rule and fails with everything that is wrong at once.
pub(crate) fn run() -> Result<()> {
    let mut faults = arrows::faults()?;
    faults.extend(source_files::faults()?);
    faults.extend(format_pages::faults()?);
    ensure!(
        faults.is_empty(),
        "tidy: {} faults:\n  {}",
        faults.len(),
        faults.join("\n  ")
    );
    Ok(())
}

/// Paths of the files that git tracks or would track, relative to the root.
fn tracked_files() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(repository::root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]);
    let listing = String::from_utf8(repository::output(&mut git)?)?;
    let root = repository::root();
    let paths = listing
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    Ok(paths.filter(|path| root.join(path).is_file()).collect())
}
