//! Where things lie in the work tree, and how its binaries are built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The workspace root.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Fetched models and what is made from them; ignored by git, kept between runs.
pub(crate) fn models_dir() -> PathBuf {
    root().join(".models")
}

/// `path` with `suffix` behind its whole name: a model's name may hold dots, which `with_extension` would cut at.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}

/// Cargo's target folder.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where cargo puts the binaries of the one optimised profile.
fn binaries_dir() -> PathBuf {
    target_dir().join("debug")
}

/// Builds the product's binaries and the link once; a second call costs cargo's freshness check.
pub(crate) fn build_binaries() -> Result<()> {
    run(cargo().args(["build", "--workspace", "--bins", "--quiet"]))
}

/// A binary that [`build_binaries`] made.
pub(crate) fn binary(name: &str) -> Command {
    Command::new(binaries_dir().join(name))
}

/// An example of a crate, built before by whoever asks for it.
pub(crate) fn example(name: &str) -> Command {
    Command::new(binaries_dir().join("examples").join(name))
}

/// Cargo, at the workspace root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command to its end, its output passed through.
///
/// # Errors
/// If it cannot be started or exits with anything but 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("could not start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// If it cannot be started or exits with anything but 0; the text carries what it wrote to stderr.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command
        .output()
        .with_context(|| format!("could not start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

/// Whether this runs in CI: `CI` is `true` or `1`. The tests of fat-station have the same rule, in `disk_room.rs`.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1")
}

/// Refuses to write a result among those that are published where it speaks of no commit.
///
/// # Errors
/// If `path` lies in docs/results and tracked files differ from the commit.
pub(crate) fn check_publishable(path: &Path, commit: &str) -> Result<()> {
    let published = root().join("docs/results");
    ensure!(
        !std::path::absolute(path)?.starts_with(&published) || !commit.ends_with("-dirty"),
        "{} is published and must speak of a commit, but the work tree is {commit}: commit first",
        path.display()
    );
    Ok(())
}

/// The commit that is checked out, with `-dirty` behind it where tracked files differ.
pub(crate) fn commit() -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(root()).args([
        "describe",
        "--always",
        "--abbrev=12",
        "--dirty",
        "--exclude=*",
    ]);
    Ok(String::from_utf8_lossy(&output(&mut git)?)
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_speaks_of_a_commit() {
        let published = root().join("docs/results/soak.json");
        assert!(check_publishable(&published, "0123456789ab").is_ok());
        assert!(check_publishable(&published, "0123456789ab-dirty").is_err());
        assert!(check_publishable(Path::new("elsewhere/soak.json"), "0123456789ab-dirty").is_ok());
    }
}
