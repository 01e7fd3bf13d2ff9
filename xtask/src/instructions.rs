//! `cargo xtask instructions`: instructions and allocations of the kernels and of decoded tokens, counted by callgrind,
//! and what a cold session moves, compared with docs/results/instructions.json. None of it depends on the machine's load,
//! so a small change shows.
//!
//! It times nothing, and valgrind knows no AVX-512: those kernels are measured by `cargo xtask bench`.

mod callgrind;
mod comparison;
mod counts;
mod page;
mod programs;
mod session;

use anyhow::{Result, ensure};

use crate::servers::{Missing, install};
use comparison::Comparison;
use counts::{Compiler, Record};

/// How the record is made anew.
const HOW_TO_RENEW: &str = "cargo xtask instructions --write";

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Installs Debian's valgrind first, as root, where it is missing.
    #[arg(long)]
    install: bool,
    /// Writes docs/results/instructions.json, and its tables in docs/performance.md, instead of comparing.
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
        has_valgrind(),
        "not installed: valgrind ({})",
        install::HOW_TO_INSTALL
    );
    if arguments.write {
        return write();
    }
    compare(|comparison| print!("{}", comparison.to_table()))
}

/// The step of `cargo xtask test`. Without valgrind the cold session is compared all the same.
///
/// # Errors
/// A count beyond its bound, or valgrind that cannot be installed where somebody relies on the result.
pub(crate) fn test(missing: Missing) -> Result<()> {
    if missing == Missing::Failure {
        install_valgrind()?;
    }
    compare(|_| {})
}

fn has_valgrind() -> bool {
    install::on_path(callgrind::PROGRAM).is_some()
}

fn install_valgrind() -> Result<()> {
    install::debian_packages(&[(callgrind::PROGRAM, callgrind::PROGRAM)])
}

fn write() -> Result<()> {
    programs::build()?;
    let model = programs::real()?;
    let record = Record {
        compiler: Compiler::current()?,
        cold_session: session::measure_twice(&model)?,
        cases: programs::measure(&model)?,
    };
    print!("{}", Comparison::of(&[], &record.cases).to_table());
    record.write()?;
    page::write(&record)
}

/// Compares everything that can be compared here; `show` gets what was counted.
fn compare(show: impl FnOnce(&Comparison<'_>)) -> Result<()> {
    let recorded = Record::read()?;
    programs::build()?;
    let model = programs::real()?;
    let moved = session::measure(&model, &recorded.cold_session)?;
    let mut failures = session::differences(&recorded.cold_session, &moved);
    let other_compiler = recorded.compiler.differs_from(&Compiler::current()?);
    if !has_valgrind() {
        println!("skipped: valgrind ({})", install::HOW_TO_INSTALL);
    } else if let Some(reason) = other_compiler {
        println!("skipped: {reason}");
    } else {
        let measured = programs::measure(&model)?;
        let comparison = Comparison::of(&recorded.cases, &measured);
        show(&comparison);
        for hint in comparison.hints() {
            eprintln!(
                "instructions: {hint}; renew the record, to keep the gain, with {HOW_TO_RENEW}"
            );
        }
        eprintln!("instructions: {}", comparison.summary());
        failures.extend(comparison.failures());
    }
    ensure!(
        failures.is_empty(),
        "{} counts do not hold; where that is meant, renew the record with {HOW_TO_RENEW}:\n  {}",
        failures.len(),
        failures.join("\n  ")
    );
    Ok(())
}
