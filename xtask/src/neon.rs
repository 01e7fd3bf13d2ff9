//! `cargo xtask test-neon`: the tests of the kernels on AArch64, where there is none: cross-compiled, and run by qemu's
//! user-mode emulation. It shows that they are right there, not how fast they are.
//!
//! A Rust toolchain from elsewhere has the standard library of its own architecture alone. Debian's `rustc-web` comes
//! with those of others, and takes the place of `rustc` for this one build.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::repository;
use crate::servers::{Missing, install};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Debian's compiler, never the one that the rest is built with.
const RUSTC: &str = "/usr/bin/rustc";

/// Where its packages put the standard library of [`TARGET`].
const STANDARD_LIBRARY: &str = "/usr/lib/rustlib/aarch64-unknown-linux-gnu/lib";

const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";

/// What brings all of it. With the loader of `libc6:arm64` the emulator needs no folder of libraries named; the
/// cross compiler's own has another build of the C library, and a loader of one with the other hangs.
const PACKAGES: &[&str] = &[
    "rustc-web",
    "libstd-rust-web-dev:arm64",
    "libc6:arm64",
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
    "qemu-user",
];

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Installs Debian's compiler for AArch64 and qemu first, as root, where they are missing.
    #[arg(long)]
    install: bool,
}

/// Runs the task by itself.
///
/// # Errors
/// A test that fails, or a tool that is missing.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.install {
        install_tools()?;
    }
    let missing = missing_tools();
    ensure!(
        missing.is_empty(),
        "not installed: {}; as root: cargo xtask test-neon --install",
        missing.join(", ")
    );
    run_tests()
}

/// The step of `cargo xtask test`.
///
/// # Errors
/// A test that fails, or a tool that cannot be installed where somebody relies on the result.
pub(crate) fn test(missing: Missing) -> Result<()> {
    if missing == Missing::Failure {
        install_tools()?;
    }
    let tools = missing_tools();
    if tools.is_empty() {
        return run_tests();
    }
    ensure!(
        missing == Missing::Skipped,
        "not installed: {}",
        tools.join(", ")
    );
    eprintln!(
        "skipped: AArch64 (not installed: {}; {})",
        tools.join(", "),
        install::HOW_TO_INSTALL
    );
    Ok(())
}

fn missing_tools() -> Vec<&'static str> {
    let programs = [LINKER, EMULATOR].map(|name| (name, install::on_path(name).is_some()));
    let files = [RUSTC, STANDARD_LIBRARY].map(|path| (path, Path::new(path).exists()));
    let all = programs.into_iter().chain(files);
    all.filter(|(_, there)| !there)
        .map(|(name, _)| name)
        .collect()
}

fn install_tools() -> Result<()> {
    if missing_tools().is_empty() {
        return Ok(());
    }
    repository::run(Command::new("dpkg").args(["--add-architecture", "arm64"]))
        .context("another architecture's packages need root")?;
    install::debian(PACKAGES)
}

fn run_tests() -> Result<()> {
    let folder = repository::target_dir().join("neon");
    // Examples in the documentation would need a rustdoc of the same version.
    repository::run(cargo(&folder).args(["test", "--quiet", "--tests"]))?;
    // Tests go over the sets that a machine has. This one says no where the set it is told to use is not there.
    let mut forced = cargo(&folder);
    forced.args(["run", "--quiet", "--example", "measured_kernels"]);
    forced.env("LOW_BIT_KERNELS_INSTRUCTION_SET", "neon");
    let printed = repository::output(&mut forced).context("the emulated machine has no neon")?;
    ensure!(!printed.is_empty(), "no kernel was run");
    Ok(())
}

/// Cargo for the kernels on [`TARGET`], in a folder of its own: another compiler's output is no use to the others.
fn cargo(folder: &Path) -> Command {
    let mut cargo = repository::cargo();
    let setting = |name: &str| {
        let target = TARGET.to_uppercase().replace('-', "_");
        format!("CARGO_TARGET_{target}_{name}")
    };
    cargo
        .env("RUSTC", RUSTC)
        .env("CARGO_TARGET_DIR", folder)
        .env("CARGO_INCREMENTAL", "0")
        .env(setting("LINKER"), LINKER)
        .env(setting("RUNNER"), format!("{EMULATOR} -cpu max"))
        .env("CARGO_BUILD_TARGET", TARGET)
        .current_dir(repository::root().join("crates/low-bit-kernels"));
    cargo
}
