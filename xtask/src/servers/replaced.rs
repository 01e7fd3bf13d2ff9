//! An object replaced under a server between two batches: by one of equal length, a longer one, a shorter one. A batch
//! either fails, or has rows of the old version alone, which a cache may still hold.
//!
//! Most rows are read without verification here: the row tree would refuse wrong rows anyhow, and it is the version that
//! is looked at. The row tree has a case of its own: a file so fresh that Apache gives it a weak tag, which pins nothing.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use super::catalogue::{Role, ServerUnderTest};
use super::material::{self, Material, Site};
use super::measure::EXIT_INTEGRITY;
use super::reader::{Outcome, Reader, Source, Wanted};
use super::running::Running;

/// What the object is replaced by.
#[derive(Clone, Copy)]
enum Replacement {
    EqualLength,
    Longer,
    Shorter,
}

/// One replacement and the circumstances.
struct Case {
    name: &'static str,
    replacement: Replacement,
    /// `--verify` of the reader.
    verify: &'static str,
    /// Age of the first version when it is put in place; the second one is half as old.
    age: Duration,
}

/// Old enough for Apache to call a tag strong (core.c: a second), with room for tags of whole seconds.
const SETTLED: Duration = Duration::from_secs(3_600);

const CASES: [Case; 4] = [
    Case {
        name: "equal",
        replacement: Replacement::EqualLength,
        verify: "off",
        age: SETTLED,
    },
    Case {
        name: "longer",
        replacement: Replacement::Longer,
        verify: "off",
        age: SETTLED,
    },
    Case {
        name: "shorter",
        replacement: Replacement::Shorter,
        verify: "off",
        age: SETTLED,
    },
    Case {
        name: "fresh",
        replacement: Replacement::EqualLength,
        verify: "require",
        age: Duration::ZERO,
    },
];

/// Rows of the first batch and of the second, which has none of the first: nothing can come from memory.
const FIRST: std::ops::Range<u32> = 0..10;
const SECOND: std::ops::Range<u32> = 100..110;

/// Replaces the object in each way and says what became of the second batches.
///
/// # Errors
/// If a row of another version was handed out, or a failure does not say that the object changed.
pub(super) fn try_all(
    running: &Running,
    server: &ServerUnderTest,
    (material, site): (&Material, &Site),
    dir: &Path,
) -> Result<String> {
    if server.role == Role::Refused {
        return Ok("-".to_owned());
    }
    let mut outcomes = Vec::new();
    for case in &CASES {
        // A name of its own, so that no cache knows it.
        let object = format!("{}-{}", case.name, material::REPLACED);
        let outcome = replaced(running, (material, site), dir, (case, &object))
            .with_context(|| format!("{object}, replaced between two batches"))?;
        outcomes.push(outcome);
    }
    outcomes.dedup();
    Ok(outcomes.join(", "))
}

fn replaced(
    running: &Running,
    (material, site): (&Material, &Site),
    dir: &Path,
    (case, object): (&Case, &str),
) -> Result<&'static str> {
    let table = material.tiny.rows();
    let path = site.dir.join(object);
    let rows = std::fs::read(&table)?;
    put(&path, &rows, SystemTime::now() - case.age)?;
    let source = Source {
        url: &running.url(object)?,
        knot: &material.tiny.knot(),
        verify: case.verify,
        root_certificate: running.root_certificate(),
    };
    let mut reader = Reader::start(source, &dir.join(format!("{object}.reader")))?;
    let out = dir.join(format!("{object}.read"));
    let batch = reader.read(&Wanted::Ids(FIRST.collect()), &out)?;
    material::compare(&out, &batch.ids, batch.row_bytes, &table)?;
    let new = other(&rows, batch.row_bytes, case.replacement)?;
    put(&path, &new, SystemTime::now() - case.age / 2)?;
    reader.ask(&Wanted::Ids(SECOND.collect()), &out)?;
    let outcome = reader.answer()?;
    std::fs::remove_file(&path)?;
    match outcome {
        Outcome::Rows(batch) => {
            material::compare(&out, &batch.ids, batch.row_bytes, &table)
                .context("rows of the new version came out as rows of the old one")?;
            Ok("served as it was")
        }
        Outcome::Refused(refusal) => {
            ensure!(
                refusal.code == EXIT_INTEGRITY
                    && (refusal.text.contains("changed") || case.verify == "require"),
                "it ended with exit code {} and: {}",
                refusal.code,
                refusal.text
            );
            Ok("refused")
        }
    }
}

/// Another version: every byte differs, and the length where it is asked to.
fn other(rows: &[u8], row_bytes: usize, replacement: Replacement) -> Result<Vec<u8>> {
    let mut bytes: Vec<u8> = rows.iter().map(|byte| !byte).collect();
    match replacement {
        Replacement::EqualLength => {}
        Replacement::Longer => bytes.extend(vec![7; row_bytes]),
        Replacement::Shorter => bytes.truncate(rows.len() - row_bytes),
    }
    if bytes.len() < SECOND.end as usize * row_bytes {
        bail!("the toy has too few rows for the second batch");
    }
    Ok(bytes)
}

/// Replaces a file as a publisher does: written beside it, then renamed over it.
fn put(path: &Path, bytes: &[u8], modified: SystemTime) -> Result<()> {
    let beside: PathBuf = path.with_extension("partial");
    std::fs::write(&beside, bytes)?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o644))?;
    File::options()
        .write(true)
        .open(&beside)?
        .set_modified(modified)?;
    std::fs::rename(&beside, path)?;
    Ok(())
}
