//! `cargo xtask instructions`: instructions and allocations of the kernels and of decoded tokens, counted by callgrind
//! and compared with docs/results/instructions.json. Counts don't depend on the machine's load, so a small change shows.
//!
//! It times nothing, and valgrind knows no AVX-512: those kernels are measured by `cargo xtask bench`.

mod callgrind;
mod comparison;
mod counts;
mod programs;

use anyhow::{Result, ensure};

use crate::servers::{Missing, install};
use comparison::Comparison;
use counts::{Compiler, Counts};

/// How the record is made anew.
const HOW_TO_RENEW: &str = "cargo xtask instructions --write";

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Installs Debian's valgrind first, as root, where it is missing.
    #[arg(long)]
    install: bool,
    /// Writes docs/results/instructions.json instead of comparing with it.
    #[arg(long)]
    write: bool,
}

/// Runs the task by itself: the table of all counts, then the verdict.
///
/// # Errors
/// A count beyond its bound, or valgrind missing.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.install {
        install_valgrind()?;
    }
    ensure!(
        install::on_path(callgrind::PROGRAM).is_some(),
        "not installed: valgrind ({})",
        install::HOW_TO_INSTALL
    );
    let compiler = Compiler::current()?;
    if arguments.write {
        let measured = programs::measure(compiler)?;
        print!("{}", measured.to_table());
        return measured.write();
    }
    let recorded = Counts::recorded()?;
    if let Some(reason) = recorded.compiler.differs_from(&compiler) {
        println!("skipped: {reason}");
        return Ok(());
    }
    let measured = programs::measure(compiler)?;
    let comparison = Comparison::of(&recorded, &measured);
    print!("{}", comparison.to_table());
    verdict(&comparison)
}

/// The step of `cargo xtask test`.
///
/// # Errors
/// A count beyond its bound, or valgrind missing where somebody relies on the result.
pub(crate) fn test(missing: Missing) -> Result<()> {
    if missing == Missing::Failure {
        install_valgrind()?;
    } else if install::on_path(callgrind::PROGRAM).is_none() {
        println!("skipped: valgrind ({})", install::HOW_TO_INSTALL);
        return Ok(());
    }
    let compiler = Compiler::current()?;
    let recorded = Counts::recorded()?;
    if let Some(reason) = recorded.compiler.differs_from(&compiler) {
        println!("skipped: {reason}");
        return Ok(());
    }
    verdict(&Comparison::of(&recorded, &programs::measure(compiler)?))
}

fn install_valgrind() -> Result<()> {
    install::debian_packages(&[(callgrind::PROGRAM, callgrind::PROGRAM)])
}

/// Says what got cheaper, and fails with everything that got dearer at once.
fn verdict(comparison: &Comparison) -> Result<()> {
    for hint in comparison.hints() {
        eprintln!("instructions: {hint}; keep the gain with {HOW_TO_RENEW}");
    }
    let failures = comparison.failures();
    ensure!(
        failures.is_empty(),
        "{} counts do not hold; where that is meant, {HOW_TO_RENEW}:\n  {}",
        failures.len(),
        failures.join("\n  ")
    );
    eprintln!("instructions: {}", comparison.summary());
    Ok(())
}
