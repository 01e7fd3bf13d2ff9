//! The models of the acceptance runs: where each comes from and how it is packed.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::models::{Package, PackedModel};
use crate::repository;
use crate::station;
use crate::synthetic::{self, Geometry};
use crate::workload::{self, CONTINUATION_TOKENS};

/// What a row consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowDtype {
    /// As the source stores it.
    Kept(&'static str),
    Bf16,
    F32,
    /// bf16, the rarer half of the rows stored in fp8.
    Mixed,
}

impl RowDtype {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kept(name) => name,
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::Mixed => "bf16+fp8",
        }
    }
}

enum Source {
    Package(Package),
    Synthetic {
        geometry: Geometry,
        real_tokenizer: bool,
    },
    Given(PathBuf),
}

/// A model before it is fetched, made and packed.
pub(super) struct ModelUnderTest {
    name: String,
    row_dtype: RowDtype,
    source: Source,
}

/// A packed model, ready to be served.
pub(super) struct PreparedModel {
    name: String,
    row_dtype: RowDtype,
    pub(super) packed: PackedModel,
    /// The file that was packed, if the rows in it are the knot's.
    pub(super) original: Option<PathBuf>,
    /// Whether its geometry is that of a published model.
    pub(super) is_real: bool,
    /// Ids that stand in for the picks of a random model.
    pub(super) continuation: Option<PathBuf>,
    /// Whether the least prompt lengths, which are counted under the Qwen tokenizer, apply.
    pub(super) has_qwen_tokenizer: bool,
}

impl ModelUnderTest {
    pub(super) fn smollm2() -> Self {
        Self {
            name: "SmolLM2-135M-Instruct".into(),
            row_dtype: RowDtype::Kept("q8_0"),
            source: Source::Package(Package::Smollm2),
        }
    }

    pub(super) fn gemma3() -> Self {
        Self {
            name: "Gemma-3-270M".into(),
            row_dtype: RowDtype::Kept("q8_0"),
            source: Source::Package(Package::Gemma3),
        }
    }

    pub(super) fn qwen_geometry(row_dtype: RowDtype) -> Self {
        let source = Source::Synthetic {
            geometry: synthetic::QWEN2_5_0_5B,
            real_tokenizer: true,
        };
        Self {
            name: "Qwen2.5-0.5B-geometry".into(),
            row_dtype,
            source,
        }
    }

    pub(super) fn tiny() -> Self {
        let source = Source::Synthetic {
            geometry: synthetic::TINY,
            real_tokenizer: false,
        };
        Self {
            name: "tiny".into(),
            row_dtype: RowDtype::Bf16,
            source,
        }
    }

    pub(super) fn given(path: &Path) -> Self {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self {
            name,
            row_dtype: RowDtype::Kept("as given"),
            source: Source::Given(path.to_path_buf()),
        }
    }

    /// Fetches or makes the source, packs it, and lets `fat-origin verify` compare rows and block.
    pub(super) fn prepare(self) -> Result<PreparedModel> {
        let stem = format!("{}-{}", self.name, self.row_dtype.name())
            .replace(' ', "-")
            .to_lowercase();
        let (packed, original) = match &self.source {
            Source::Package(package) => {
                let file = package.fetch()?;
                (PackedModel::pack(&file, &stem, &[])?, Some(file))
            }
            Source::Given(path) => {
                let file = path.is_file().then(|| path.clone());
                (PackedModel::pack(path, &stem, &[])?, file)
            }
            Source::Synthetic {
                geometry,
                real_tokenizer,
            } => {
                let dir = repository::models_dir().join(format!("{}-source", self.name));
                std::fs::create_dir_all(&dir)?;
                let tokenizer = if *real_tokenizer {
                    Package::QwenTokenizer.fetch()?
                } else {
                    synthetic::write_byte_tokenizer(&repository::beside(&dir, ".tokenizer.json"))?
                };
                synthetic::write(&dir, *geometry, &tokenizer)?;
                let mut options = vec!["--block-dtype", "q8_0", "--embed-dtype"];
                match self.row_dtype {
                    RowDtype::Mixed => {
                        options.extend(["bf16", "--embed-mix", "fp8_e4m3=rarest:50%"]);
                    }
                    dtype => options.push(dtype.name()),
                }
                let kept = self.row_dtype == RowDtype::Bf16;
                let original = kept.then(|| dir.join("model.safetensors"));
                (PackedModel::pack(&dir, &stem, &options)?, original)
            }
        };
        let mut verify = repository::binary("fat-origin");
        repository::output(
            verify
                .arg("verify")
                .arg(packed.knot())
                .arg("--rows")
                .arg(packed.rows()),
        )?;
        let synthetic = matches!(self.source, Source::Synthetic { .. });
        let has_qwen_tokenizer = matches!(
            self.source,
            Source::Synthetic {
                real_tokenizer: true,
                ..
            }
        );
        let continuation = synthetic.then(|| write_continuation(&packed)).transpose()?;
        Ok(PreparedModel {
            name: self.name,
            row_dtype: self.row_dtype,
            packed,
            original,
            is_real: has_qwen_tokenizer || !synthetic,
            continuation,
            has_qwen_tokenizer,
        })
    }
}

impl PreparedModel {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn row_dtype(&self) -> &'static str {
        self.row_dtype.name()
    }

    /// Whether the byte gate covers the prompt only: with f32 rows a decoded session may pass it.
    pub(super) fn gates_prompt_only(&self) -> bool {
        self.row_dtype == RowDtype::F32
    }
}

/// The first 64 ids of the committed continuation under the model's own tokenizer.
fn write_continuation(packed: &PackedModel) -> Result<PathBuf> {
    let text = workload::dir().join("continuation.txt");
    let mut ids = station::tokenize(&packed.knot(), &text)?;
    ensure!(
        ids.len() >= CONTINUATION_TOKENS,
        "{} holds {} tokens, expected 64 or more",
        text.display(),
        ids.len()
    );
    ids.truncate(CONTINUATION_TOKENS);
    let path = repository::beside(&packed.dir, ".continuation.json");
    std::fs::write(&path, serde_json::to_string(&ids)?)?;
    Ok(path)
}
