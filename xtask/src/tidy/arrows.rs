//! The crate graph: which crate may know which, and what a pure crate must never pull in.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::repository;

/// A crate and the workspace crates it may depend on; dev-dependencies are free.
const ARROWS: &[(&str, &[&str])] = &[
    ("gkq-v2", &[]),
    ("low-bit-kernels", &[]),
    ("compact-tokenizer", &[]),
    ("helix-transport", &[]),
    ("range-testkit", &[]),
    ("columnar-embed", &["helix-transport"]),
    ("decoder-models", &["gkq-v2", "low-bit-kernels"]),
    (
        "fat-origin",
        &[
            "gkq-v2",
            "columnar-embed",
            "compact-tokenizer",
            "decoder-models",
            "helix-transport",
            "low-bit-kernels",
        ],
    ),
    (
        "fat-station",
        &[
            "gkq-v2",
            "columnar-embed",
            "compact-tokenizer",
            "decoder-models",
            "helix-transport",
            "low-bit-kernels",
        ],
    ),
    ("xtask", &[]),
];

/// A build of a crate and external crates that must not be in its tree: formats do no I/O, the row store and the
/// transport's trait pull no HTTP, a station carries no SVD (candle-core pulls in checkpoint readers that nothing calls).
const ABSENT: &[(&str, &[&str], &[&str])] = &[
    ("gkq-v2", &[], &["tokio", "hyper", "memmap2"]),
    ("low-bit-kernels", &[], &["tokio", "hyper", "candle-core"]),
    ("compact-tokenizer", &[], &["tokio", "hyper", "serde_json"]),
    (
        "helix-transport",
        &["--no-default-features"],
        &["hyper", "rustls"],
    ),
    ("columnar-embed", &[], &["hyper", "rustls"]),
    ("decoder-models", &[], &["tokio", "hyper"]),
    ("fat-station", &[], &["faer"]),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

pub(super) fn faults() -> Result<Vec<String>> {
    let mut cargo = repository::cargo();
    let printed =
        repository::output(cargo.args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Metadata =
        serde_json::from_slice(&printed).context("cargo metadata printed something else")?;
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            faults.push(format!(
                "{}: a crate without a line in xtask/src/tidy/arrows.rs",
                package.name
            ));
            continue;
        };
        let inner = package
            .dependencies
            .iter()
            .filter(|it| it.path.is_some() && it.kind.is_none());
        for dependency in inner.filter(|it| !allowed.contains(&it.name.as_str())) {
            faults.push(format!(
                "{}: may not depend on {}",
                package.name, dependency.name
            ));
        }
    }
    for (name, features, absent) in ABSENT {
        let mut cargo = repository::cargo();
        cargo.args([
            "tree",
            "--package",
            name,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ]);
        let tree = String::from_utf8(repository::output(cargo.args(*features))?)?;
        for line in tree.lines() {
            let external = line.split_whitespace().next().unwrap_or_default();
            if absent.contains(&external) {
                faults.push(format!(
                    "{name} {}: pulls in {external}",
                    features.join(" ")
                ));
            }
        }
    }
    faults.dedup();
    Ok(faults)
}
