//! Heads, lengths and names of source files.

use std::path::Path;

use anyhow::Result;

use crate::repository;

/// A file past this is two files.
const LINES_LIMIT: usize = 800;

/// Names that say nothing about what a file is for.
const EMPTY_NAMES: &[&str] = &[
    "mod", "utils", "util", "common", "misc", "helpers", "helper", "prelude", "manager",
];

pub(super) fn faults() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for path in super::tracked_files()? {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(repository::root().join(&path))?;
            faults.extend(faults_of(&path, &text));
        }
    }
    Ok(faults)
}

fn faults_of(path: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let shown = path.display();
    if !text.starts_with("//!") {
        faults.push(format!(
            "{shown}: line 1 must be `//!`: what the file is, and what it is not"
        ));
    }
    let lines = text.lines().count();
    if lines > LINES_LIMIT {
        faults.push(format!("{shown}: {lines} lines, at most {LINES_LIMIT}"));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if EMPTY_NAMES.contains(&stem.as_ref()) {
        faults.push(format!(
            "{shown}: `{stem}` says nothing; name the file after its one purpose"
        ));
    }
    if text.contains("#[ignore") && !path.starts_with("xtask") {
        faults.push(format!("{shown}: an ignored test is no test"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::faults_of;

    #[test]
    fn a_good_file_has_no_faults() {
        assert_eq!(
            faults_of(Path::new("crates/a/src/plan.rs"), "//! Plans.\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn each_rule_speaks() {
        let long = format!("//! Long.\n{}", "\n".repeat(900));
        for (path, text, word) in [
            ("a/plan.rs", "fn f() {}\n", "line 1"),
            ("a/plan.rs", long.as_str(), "lines"),
            ("a/utils.rs", "//! Things.\n", "says nothing"),
            ("a/mod.rs", "//! Things.\n", "says nothing"),
        ] {
            let faults = faults_of(Path::new(path), text);
            assert!(
                faults.len() == 1 && faults[0].contains(word),
                "{path}: {faults:?}"
            );
        }
    }
}
