//! A checkpoint as the packer sees it: tensors under their Hugging Face names, read by range from
//! whatever file they lie in, and the texts that make a model of them. It knows no knot, converts no
//! value, and never holds a tensor in memory.

mod chat_template;
pub mod gguf;
mod gguf_config;
mod gguf_model;
mod hugging_face;
mod names;
pub(crate) mod plain_file;
mod safetensors;
mod shards;
mod stop_ids;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use compact_tokenizer::TokenizerSpec;
use gkq_v2::Dtype;

use crate::Error;

/// The vocabulary matrix: one row a token id.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The output projection of untied models.
pub(crate) const HEAD: &str = "lm_head.weight";

/// A tensor of a checkpoint: what it is and where its bytes lie.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// Hugging Face name.
    pub(crate) name: String,
    pub(crate) dtype: StoredDtype,
    /// Outermost dimension first.
    pub(crate) shape: Vec<u64>,
    /// Number of the file in its checkpoint.
    pub(crate) file: usize,
    /// Bytes of that file.
    pub(crate) range: Range<u64>,
}

/// An element type as the file names it. Tensors of other types may lie in a checkpoint (position
/// ids, masks); only a model that needs one is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredDtype {
    Known(Dtype),
    Other(String),
}

/// One file of a checkpoint, held open so that what was validated is what is read.
#[derive(Debug)]
pub(crate) struct DataFile {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) len_bytes: u64,
}

impl DataFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let (file, len_bytes) = plain_file::open(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            len_bytes,
        })
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.file
            .read_exact_at(buffer, offset)
            .map_err(Error::io(&self.path, "read"))
    }
}

/// The texts of a model, each as the knot will carry it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelTexts {
    /// `config.json`.
    pub(crate) config: String,
    /// `tokenizer_config.json` without the parts that are elsewhere in the knot.
    pub(crate) tokenizer_config: Option<String>,
    pub(crate) chat_template: Option<String>,
    /// `generation_config.json` with the union of all end-of-sequence ids.
    pub(crate) generation_config: Option<String>,
}

/// An opened checkpoint.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) path: PathBuf,
    /// `huggingface` or `gguf`, for the knot's provenance.
    pub(crate) format: &'static str,
    pub(crate) tensors: BTreeMap<String, Tensor>,
    pub(crate) files: Vec<DataFile>,
    pub(crate) texts: ModelTexts,
    pub(crate) tokenizer: TokenizerSpec,
    /// The ids that end a generation, from all places that name some.
    pub(crate) stop_ids: BTreeSet<u32>,
}

impl Checkpoint {
    /// Opens a Hugging Face directory or a GGUF file, told apart by content.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let metadata = path.metadata().map_err(Error::io(path, "open"))?;
        if metadata.is_dir() {
            hugging_face::open(path)
        } else if starts_with_gguf_magic(path)? {
            gguf_model::open(path)
        } else {
            Err(Error::NoCheckpoint {
                path: path.to_path_buf(),
                reason: "expected a directory with config.json and safetensors, or a file that begins with `GGUF`"
                    .to_owned(),
            })
        }
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<&Tensor, Error> {
        self.tensors.get(name).ok_or_else(|| Error::MissingTensor {
            path: self.path.clone(),
            tensor: name.to_owned(),
        })
    }

    /// The element type of a tensor that goes into the knot.
    pub(crate) fn dtype(&self, tensor: &Tensor) -> Result<Dtype, Error> {
        match &tensor.dtype {
            StoredDtype::Known(dtype) => Ok(*dtype),
            StoredDtype::Other(name) => {
                let path = self
                    .files
                    .get(tensor.file)
                    .map_or(&self.path, |file| &file.path);
                let known: Vec<_> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
                Err(Error::unsupported(
                    path,
                    format!("dtype of tensor `{}`", tensor.name),
                    name,
                    known.join(", "),
                ))
            }
        }
    }

    /// Reads bytes of a tensor, from `offset` within it, whole or an error.
    pub(crate) fn read(
        &self,
        tensor: &Tensor,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let start = tensor.range.start.checked_add(offset);
        let inside = start.is_some_and(|start| {
            start
                .checked_add(buffer.len() as u64)
                .is_some_and(|end| end <= tensor.range.end)
        });
        match (start, self.files.get(tensor.file)) {
            (Some(start), Some(file)) if inside => file.read_at(buffer, start),
            _ => Err(Error::malformed(
                &self.path,
                format!("tensor `{}`", tensor.name),
                format!("{} bytes", tensor.range.end - tensor.range.start),
                format!("a read of {} bytes at {offset}", buffer.len()),
            )),
        }
    }
}

fn starts_with_gguf_magic(path: &Path) -> Result<bool, Error> {
    let file = DataFile::open(path)?;
    let mut magic = [0; 4];
    if file.len_bytes < 4 {
        return Ok(false);
    }
    file.read_at(&mut magic, 0)?;
    Ok(&magic == b"GGUF")
}
