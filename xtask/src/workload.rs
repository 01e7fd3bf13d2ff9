//! The committed prompts under `fixtures/workloads/`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::repository;

/// A prompt and the rules it stands under.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// The least length under the Qwen tokenizer; a shorter text would flatter the byte counts.
    pub(crate) least_tokens: usize,
    /// Whether the byte gates hold for it: `long_prose` is reported, never gated.
    pub(crate) gated: bool,
    /// Whether the short acceptance run has it.
    pub(crate) in_ci: bool,
}

/// All workloads, in the order of the reports.
pub(crate) const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "qa_short",
        least_tokens: 27,
        gated: true,
        in_ci: true,
    },
    Workload {
        name: "chat_multi_turn",
        least_tokens: 100,
        gated: true,
        in_ci: false,
    },
    Workload {
        name: "code",
        least_tokens: 120,
        gated: true,
        in_ci: false,
    },
    Workload {
        name: "summarise",
        least_tokens: 150,
        gated: true,
        in_ci: false,
    },
    Workload {
        name: "multilingual",
        least_tokens: 100,
        gated: true,
        in_ci: false,
    },
    Workload {
        name: "long_context",
        least_tokens: 600,
        gated: true,
        in_ci: true,
    },
    Workload {
        name: "long_prose",
        least_tokens: 601,
        gated: false,
        in_ci: false,
    },
];

/// Ids fed to the synthetic model in place of its own picks.
pub(crate) const CONTINUATION_TOKENS: usize = 64;

impl Workload {
    pub(crate) fn path(self) -> PathBuf {
        dir().join(format!("{}.txt", self.name))
    }

    /// The prompt: the file without its final newline.
    pub(crate) fn prompt(self) -> Result<String> {
        let path = self.path();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("no workload at {}", path.display()))?;
        Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    }
}

/// The folder of the workloads.
pub(crate) fn dir() -> PathBuf {
    repository::root().join("fixtures/workloads")
}
