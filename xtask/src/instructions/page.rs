//! The part of docs/performance.md that is made from the record: a few cases, and the cold session.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::counts::{Count, Record};
use crate::repository;

/// The lines of the page that the part stands between.
const BEGIN: &str = "<!-- written by cargo xtask instructions --write -->\n";
const END: &str = "<!-- end of what is written -->\n";

/// Cases of the page: a type of each kind at decode and at prefill, attention, tokens.
const SHOWN: [&str; 11] = [
    "product q4_1 k=576 x1",
    "product q4_1 k=576 x32",
    "product q4_k k=1536 x1",
    "product q4_k k=1536 x32",
    "product q8_0 k=640 x1",
    "product q8_0 k=640 x32",
    "attention decode at 1000",
    "attention prefill 16 at 240",
    "greatest of 49152",
    "4 decode steps of two Qwen2.5 layers",
    "4 decode steps of SmolLM2-135M",
];

/// Puts what `record` has into the page.
pub(super) fn write(record: &Record) -> Result<()> {
    let path = path();
    let page = std::fs::read_to_string(&path)
        .with_context(|| format!("could not read {}", path.display()))?;
    std::fs::write(&path, filled(&page, record)?)
        .with_context(|| format!("could not write {}", path.display()))
}

fn path() -> PathBuf {
    repository::root().join("docs/performance.md")
}

fn filled(page: &str, record: &Record) -> Result<String> {
    let (before, rest) = page
        .split_once(BEGIN)
        .with_context(|| format!("docs/performance.md has no line {BEGIN:?}"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("docs/performance.md has no line {END:?}"))?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", part(record)?))
}

fn part(record: &Record) -> Result<String> {
    let mut part = format!(
        "{} cases, {}; some of them:\n\n",
        record.cases.len(),
        record.compiler
    );
    part.push_str("| case | AVX2, instructions | portable, instructions | allocations |\n|---|---:|---:|---:|\n");
    for name in SHOWN {
        let (avx2, portable) = (find(record, name, "avx2")?, find(record, name, "portable")?);
        writeln!(
            part,
            "| {name} | {} | {} | {} |",
            avx2.instructions, portable.instructions, avx2.allocations
        )?;
    }
    part.push_str("\nThe cold session:\n\n");
    part.push_str("| kind | bytes received | used | between parts | requests | round trips |\n|---|---:|---:|---:|---:|---:|\n");
    for moved in &record.cold_session {
        writeln!(
            part,
            "| {} | {} | {} | {} | {} | {} |",
            moved.kind,
            moved.received_bytes,
            moved.useful_bytes,
            moved.framing_bytes,
            moved.requests,
            moved.round_trips
        )?;
    }
    Ok(part)
}

fn find<'a>(record: &'a Record, name: &str, instruction_set: &str) -> Result<&'a Count> {
    let mut cases = record.cases.iter();
    cases
        .find(|count| count.name == name && count.instruction_set == instruction_set)
        .with_context(|| format!("{name:?} is not measured with {instruction_set} kernels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_what_the_record_has() {
        let page = std::fs::read_to_string(path()).unwrap();
        let record = Record::read().unwrap();
        assert!(
            filled(&page, &record).unwrap() == page,
            "docs/performance.md is not of the record; renew both with {}",
            super::super::HOW_TO_RENEW
        );
    }

    #[test]
    fn a_page_without_its_place_is_refused() {
        let record = Record::read().unwrap();
        assert!(filled("# Speed\n", &record).is_err());
        assert!(filled(BEGIN, &record).is_err());
    }
}
