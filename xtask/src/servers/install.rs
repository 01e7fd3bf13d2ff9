//! Where the servers come from: Debian's packages, and s3s-fs from Cargo's registry.
//!
//! Nothing is installed unasked: only `cargo xtask test --install` and CI do, as root, and no service is started.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::repository;

/// Debian's packages of the servers, and the program each brings.
const PACKAGES: &[(&str, &str)] = &[
    ("apache2", "apache2"),
    ("caddy", "caddy"),
    ("lighttpd", "lighttpd"),
    ("nginx", "nginx"),
    ("varnish", "varnishd"),
];

/// The S3 server; 0.17 would need a newer compiler than the workspace does.
pub(crate) const S3S_FS_VERSION: &str = "0.14.1";

/// Folders of system programs that a user's PATH often leaves out.
const SYSTEM_FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// What to say where a server, or another program of the tests, is missing.
pub(crate) const HOW_TO_INSTALL: &str = "install with: cargo xtask test --install";

/// A program on the PATH or in a folder of system programs.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// Whether servers start as root, who may not be who they run as.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where `cargo install` puts what the tests need; one folder a version, so that a cache never serves an old one.
fn tools_dir() -> PathBuf {
    repository::target_dir()
        .join("tools")
        .join(format!("s3s-fs-{S3S_FS_VERSION}"))
}

/// s3s-fs of the wanted version: where `--install` puts it, or on the PATH.
pub(crate) fn s3s_fs() -> Option<PathBuf> {
    let installed = tools_dir().join("bin").join("s3s-fs");
    if installed.is_file() {
        return Some(installed);
    }
    on_path("s3s-fs").filter(|program| is_wanted_version(program))
}

fn is_wanted_version(program: &Path) -> bool {
    let Ok(output) = Command::new(program).arg("--version").output() else {
        return false;
    };
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .any(|word| word == S3S_FS_VERSION)
}

/// Installs whatever is missing.
///
/// # Errors
/// If a package cannot be installed; the text carries what the package manager said.
pub(crate) fn install() -> Result<()> {
    debian_packages(PACKAGES)?;
    if s3s_fs().is_none() {
        let mut cargo = repository::cargo();
        // Its own target folder would be built again for each change of flags; the default temporary one is not kept.
        cargo.args(["install", "s3s-fs", "--locked", "--version", S3S_FS_VERSION]);
        cargo.args(["--features", "binary", "--quiet", "--root"]);
        repository::run(cargo.arg(tools_dir())).context("could not build s3s-fs")?;
    }
    Ok(())
}

/// Installs those of `packages` whose program, named second, is missing.
///
/// # Errors
/// If one cannot be installed; the text carries what the package manager said.
pub(crate) fn debian_packages(packages: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(_, program)| on_path(program).is_none())
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    debian(&missing)
}

/// `apt-get`, answering no questions; a refusal to start services stands while it runs.
///
/// # Errors
/// If one cannot be installed.
pub(crate) fn debian(packages: &[&str]) -> Result<()> {
    let _refusal = ServicesStayDown::declare()?;
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.args(["--quiet", "--yes"]);
        command
    };
    repository::run(apt().arg("update")).context("the list of Debian packages did not come")?;
    repository::run(
        apt()
            .args(["install", "--no-install-recommends"])
            .args(packages),
    )
    .with_context(|| format!("could not install {}; it needs root", packages.join(" ")))
}

/// While it lives, Debian's maintainer scripts start nothing (invoke-rc.d(8), policy-rc.d: 101 is "forbidden").
struct ServicesStayDown {
    /// `None` where the machine has a policy of its own, which stays.
    ours: Option<PathBuf>,
}

impl ServicesStayDown {
    fn declare() -> Result<Self> {
        let policy = PathBuf::from("/usr/sbin/policy-rc.d");
        if policy.exists() {
            return Ok(Self { ours: None });
        }
        std::fs::write(&policy, "#!/bin/sh\nexit 101\n")
            .with_context(|| format!("could not write {}; it needs root", policy.display()))?;
        std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { ours: Some(policy) })
    }
}

impl Drop for ServicesStayDown {
    fn drop(&mut self) {
        if let Some(policy) = &self.ours {
            // A policy that stays would surprise the machine's owner, but there is nobody left to tell.
            let _ = std::fs::remove_file(policy);
        }
    }
}
