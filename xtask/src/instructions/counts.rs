//! Counts, the compiler that made what was counted, and the cold session, as docs/results/instructions.json keeps them: a
//! line a case, so that a change reads well. No commit is in it: it changes together with the code it speaks of.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::HOW_TO_RENEW;
use super::session::Moved;
use crate::repository;

/// The compiler: another one makes other instructions of the same text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Compiler {
    pub(super) release: String,
    pub(super) commit_hash: String,
    pub(super) host: String,
}

/// What a case took with one set of kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Count {
    pub(super) name: String,
    pub(super) instruction_set: String,
    pub(super) instructions: u64,
    pub(super) allocations: u64,
}

/// The whole record.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Record {
    pub(super) compiler: Compiler,
    pub(super) cold_session: Vec<Moved>,
    pub(super) cases: Vec<Count>,
}

impl Compiler {
    /// The one that cargo uses here.
    pub(super) fn current() -> Result<Self> {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let told = repository::output(rustc.current_dir(repository::root()).arg("-vV"))?;
        Self::parse(&String::from_utf8(told)?)
    }

    /// From what `rustc -vV` prints.
    fn parse(told: &str) -> Result<Self> {
        let field = |name: &str| {
            let value = told.lines().find_map(|line| line.strip_prefix(name));
            let value = value.with_context(|| format!("rustc -vV tells no {name:?}: {told}"))?;
            Ok::<_, anyhow::Error>(value.trim().to_owned())
        };
        Ok(Self {
            release: field("release:")?,
            commit_hash: field("commit-hash:")?,
            host: field("host:")?,
        })
    }

    /// Why counts of this compiler say nothing about those of `other`, and what to do about it; `None` if they do.
    pub(super) fn differs_from(&self, other: &Self) -> Option<String> {
        (self != other).then(|| {
            format!(
                "instruction counts are not compared: they were recorded with {self}, and this is {other}; renew the record with {HOW_TO_RENEW}"
            )
        })
    }
}

impl std::fmt::Display for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let commit: String = self.commit_hash.chars().take(9).collect();
        write!(f, "rustc {} ({commit}) for {}", self.release, self.host)
    }
}

impl Record {
    /// What is committed.
    pub(super) fn read() -> Result<Self> {
        let path = path();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("no {}; make it with {HOW_TO_RENEW}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not as {HOW_TO_RENEW} writes it", path.display()))
    }

    /// Replaces what is committed.
    pub(super) fn write(&self) -> Result<()> {
        let path = path();
        std::fs::write(&path, self.to_json()?)
            .with_context(|| format!("could not write {}", path.display()))
    }

    fn to_json(&self) -> Result<String> {
        Ok(format!(
            "{{\n\"compiler\": {},\n\"cold_session\": {},\n\"cases\": {}\n}}\n",
            serde_json::to_string(&self.compiler)?,
            lines(&self.cold_session)?,
            lines(&self.cases)?,
        ))
    }
}

/// A list with a line an item.
fn lines<T: Serialize>(items: &[T]) -> Result<String> {
    let lines = items.iter().map(serde_json::to_string);
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]", lines.join(",\n")))
}

fn path() -> PathBuf {
    repository::root().join("docs/results/instructions.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "\
rustc 1.95.0 (59807616e 2026-04-14)
binary: rustc
commit-hash: 59807616e1fa2540724bfbac14d7976d7e4a3860
commit-date: 2026-04-14
host: x86_64-unknown-linux-gnu
release: 1.95.0
";

    #[test]
    fn another_compiler_is_told_apart_and_says_how_to_renew() {
        let recorded = Compiler::parse(TOLD).unwrap();
        assert_eq!(recorded.differs_from(&recorded.clone()), None);
        for (old, new) in [
            ("release: 1.95.0", "release: 1.96.0"),
            ("hash: 59807616e", "hash: 123456789"),
            ("host: x86_64", "host: aarch64"),
        ] {
            let other = Compiler::parse(&TOLD.replace(old, new)).unwrap();
            let reason = recorded.differs_from(&other).unwrap();
            assert!(
                reason.contains("not compared") && reason.ends_with(HOW_TO_RENEW),
                "{reason}"
            );
        }
        assert!(Compiler::parse("rustc 1.95.0").is_err());
    }

    #[test]
    fn the_record_reads_back() {
        let record = Record {
            compiler: Compiler::parse(TOLD).unwrap(),
            cold_session: Vec::new(),
            cases: vec![Count {
                name: "product q4_1 k=576 x1".into(),
                instruction_set: "avx2".into(),
                instructions: 31_778,
                allocations: 2,
            }],
        };
        let text = record.to_json().unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
