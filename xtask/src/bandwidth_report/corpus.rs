//! The two mixes of texts: the six gated workloads, and natural texts that nobody wrote for this purpose: the READMEs
//! of this workspace's dependencies, at the versions of Cargo.lock, where cargo unpacked them.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::repository;
use crate::workload::WORKLOADS;

/// A text, by the name the report gives it.
pub(super) struct Text {
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// Dependencies whose READMEs make the natural mix.
const NATURAL_PACKAGES: [&str; 12] = [
    "anyhow",
    "axum",
    "blake3",
    "half",
    "minijinja",
    "moka",
    "proptest",
    "rayon",
    "tempfile",
    "tokio",
    "tracing",
    "unicode-normalization",
];

/// Every committed workload, `long_prose` among them.
pub(super) fn workloads() -> Vec<Text> {
    WORKLOADS
        .iter()
        .map(|workload| Text {
            name: workload.name.to_owned(),
            path: workload.path(),
        })
        .collect()
}

/// The READMEs; fetched by cargo if need be.
pub(super) fn natural() -> Result<Vec<Text>> {
    let mut cargo = repository::cargo();
    let printed =
        repository::output(cargo.args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&printed)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    NATURAL_PACKAGES
        .iter()
        .map(|name| readme_of(packages, name))
        .collect()
}

/// The README of the one version in the lock file.
fn readme_of(packages: &[serde_json::Value], name: &str) -> Result<Text> {
    let versions: Vec<_> = packages
        .iter()
        .filter(|package| package["name"] == name)
        .collect();
    let [package] = versions[..] else {
        bail!(
            "{name}: {} versions among the dependencies, the natural mix needs exactly one",
            versions.len()
        );
    };
    let manifest = PathBuf::from(
        package["manifest_path"]
            .as_str()
            .context("a package without a manifest")?,
    );
    let version = package["version"]
        .as_str()
        .context("a package without a version")?;
    Ok(Text {
        name: format!("{name}-{version}"),
        path: manifest.with_file_name("README.md"),
    })
}
