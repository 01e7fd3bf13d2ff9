//! A program under callgrind. It marks what is counted by calls of `region_begins` and `region_ends`, at which callgrind
//! writes a *part* with the costs since the part before (callgrind's manual, `--dump-before`), and prints a name a region.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::repository;

/// What runs a program, as the PATH and Debian know it.
pub(super) const PROGRAM: &str = "valgrind";

/// The function at whose call a region's part is written, as a part tells its reason.
const END: &str = "region_ends";

/// Functions of the C library that hand out memory; what they call among themselves has other names.
const ALLOCATORS: [&str; 6] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
];

/// What a region took, on all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) instructions: u64,
    pub(super) allocations: u64,
}

/// Runs `program` and returns its regions in their order, by the names it printed. Parts are left in `folder`, which is
/// emptied first.
///
/// # Errors
/// If it fails, or if names and parts don't match.
pub(super) fn regions(program: &Command, folder: &Path) -> Result<Vec<(String, Cost)>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let mut valgrind = Command::new(PROGRAM);
    valgrind
        .args(["--tool=callgrind", "--quiet", "--compress-strings=no"])
        .args([
            "--dump-before=*region_begins*",
            "--dump-before=*region_ends*",
        ])
        .arg(format!("--callgrind-out-file={}/part", folder.display()))
        .arg(program.get_program())
        .args(program.get_args());
    for (name, value) in program.get_envs() {
        if let Some(value) = value {
            valgrind.env(name, value);
        }
    }
    let printed = String::from_utf8(repository::output(&mut valgrind)?)?;
    let mut costs = Vec::new();
    for entry in fs::read_dir(folder)? {
        costs.extend(region(&fs::read_to_string(entry?.path())?)?);
    }
    costs.sort_by_key(|(part, _)| *part);
    let names: Vec<&str> = printed.lines().collect();
    ensure!(
        names.len() == costs.len(),
        "{:?} named {} regions, and callgrind saw {}",
        program.get_program(),
        names.len(),
        costs.len()
    );
    let named = names.into_iter().zip(costs);
    Ok(named
        .map(|(name, (_, cost))| (name.to_owned(), cost))
        .collect())
}

/// Number and cost of a part, if it is a region's: others hold what happened around regions.
fn region(part: &str) -> Result<Option<(u64, Cost)>> {
    let field = |name: &str| part.lines().find_map(|line| line.strip_prefix(name));
    if !field("desc: Trigger: ").is_some_and(|reason| reason.ends_with(END)) {
        return Ok(None);
    }
    let number = |name: &str| {
        let text = field(name).with_context(|| format!("a part of callgrind without {name:?}"))?;
        let text = text.trim();
        text.parse()
            .with_context(|| format!("{name:?} of callgrind is {text:?}, expected a number"))
    };
    let cost = Cost {
        instructions: number("summary:")?,
        allocations: allocations(part)?,
    };
    Ok(Some((number("part:")?, cost)))
}

/// Calls of [`ALLOCATORS`]: a `calls=COUNT POSITION` belongs to the `cfn=` before it.
fn allocations(part: &str) -> Result<u64> {
    let mut called = "";
    let mut calls = 0;
    for line in part.lines() {
        if let Some(function) = line.strip_prefix("cfn=") {
            called = function;
        } else if let Some(counted) = line.strip_prefix("calls=")
            && ALLOCATORS.contains(&called)
        {
            let count = counted.split(' ').next().unwrap_or_default();
            calls += count
                .parse::<u64>()
                .with_context(|| format!("callgrind wrote {line:?}, expected a count"))?;
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As callgrind 3.19 writes it, shortened.
    const PART: &str = "\
version: 1
part: 4

desc: Timerange: Basic block 12281575 - 12283766
desc: Trigger: --dump-before=measured_kernels::region_ends

events: Ir
summary: 31778

fn=low_bit_kernels::together::run
cob=/lib/x86_64-linux-gnu/libc.so.6
cfn=malloc
calls=2 0
+3 140
cfn=low_bit_kernels::matrix::chunk
calls=7 0
+4 9000
cfn=malloc_consolidate
calls=5 0
+4 90

fn=alloc::raw_vec::finish_grow
cfn=realloc
calls=1 0
+4 70
";

    #[test]
    fn a_part_is_read_with_its_allocations() {
        let cost = Cost {
            instructions: 31_778,
            allocations: 3,
        };
        assert_eq!(region(PART).unwrap(), Some((4, cost)));
    }

    #[test]
    fn what_lies_around_regions_is_no_region() {
        for reason in ["--dump-before=m::region_begins", "Program termination"] {
            let part = PART.replace("--dump-before=measured_kernels::region_ends", reason);
            assert_eq!(region(&part).unwrap(), None);
        }
    }

    #[test]
    fn a_part_without_a_sum_is_refused() {
        let error = region(&PART.replace("summary: 31778", "")).unwrap_err();
        assert!(error.to_string().contains("summary:"), "{error}");
    }
}
