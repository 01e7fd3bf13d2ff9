//! From a checkpoint to `NAME.gkq` and `NAME.rows`, in one pass over the tensors. Memory does not grow
//! with the model (a tensor that is factored apart), and nothing appears under a final name before
//! both files are whole.
//!
//! Layout of the work: `selection` decides what goes in and in which order, `requirements` asks the
//! decoder whether it could load that, `plan` declares the
//! knot, `stream` moves bytes, `convert` changes dtypes row by row,
//! `embed_mix` chooses a kind for each row of the vocabulary matrix and `mixed` encodes it, `spectral` factors,
//! `sketch` makes the stand-in for rows that cannot be had.

mod convert;
mod embed_mix;
mod hot_ids;
mod mixed;
mod output;
mod plan;
mod provenance;
mod requirements;
mod selection;
mod sketch;
mod spectral;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use compact_tokenizer::TokenizerSpec;
use gkq_v2::Dtype;
use serde::Serialize;

use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::inspect::SketchSummary;

pub use embed_mix::{EmbedMix, MixSyntax};
pub use hot_ids::HotIds;
pub use mixed::{KindReport, MixReport};
pub use spectral::SpectralReport;

/// What to make of the vocabulary matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmbedDtype {
    /// The rows of the checkpoint, byte for byte.
    #[default]
    Keep,
    /// Convert to f32.
    F32,
    /// Convert to f16.
    F16,
    /// Convert to bf16.
    Bf16,
}

/// What to make of the matrices of the layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockDtype {
    /// The blocks of the checkpoint, byte for byte.
    #[default]
    Keep,
    /// Floating-point matrices of the layers to Q8_0, where a row is whole blocks of 32.
    Q8_0,
}

/// Whether the knot holds the vocabulary matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matrix {
    /// As its last payload: stations that have no row store use it.
    #[default]
    Inside,
    /// Only shape, dtype and digest: the row file is the one place of the rows.
    External,
}

/// How to pack a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// The directory that gets both files; made if it is not there.
    pub out: PathBuf,
    /// The files' stem; the source's name if not given.
    pub name: Option<String>,
    /// The vocabulary matrix, in block, rows and tied head alike.
    pub embed_dtype: EmbedDtype,
    /// Rows of the vocabulary matrix that are stored in another kind; none if not given.
    pub embed_mix: Option<EmbedMix>,
    /// The matrices of the layers.
    pub block_dtype: BlockDtype,
    /// Largest relative error (Frobenius) of a low-rank form; without it no tensor is factored.
    pub spectral_tolerance: Option<f64>,
    /// Whether the matrix is in the knot.
    pub matrix: Matrix,
    /// The list of rows that are asked for most, which stations can fetch ahead.
    pub hot_ids: HotIds,
    /// Components of a sketch of the vocabulary matrix; none is made if not given.
    pub embed_sketch: Option<u32>,
    /// Set it to stop the work; [`Error::Interrupted`] comes back and no file stays.
    pub stop: Stop,
}

/// A flag that stops the work at the next few megabytes.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks to stop. Safe to call from any thread, also from a signal's.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// `Err` once it was asked.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }
}

/// What was packed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PackReport {
    /// The knot.
    pub knot: PathBuf,
    /// Its length.
    pub knot_bytes: u64,
    /// The row file.
    pub rows: PathBuf,
    /// Its length: `row_count * row_bytes`, or less with a mix.
    pub rows_bytes: u64,
    /// Token ids that have a row.
    pub row_count: u64,
    /// Bytes of a row of the matrix; with a mix, of a row as it is widened.
    pub row_bytes: u32,
    /// Element type of the rows.
    pub row_dtype: &'static str,
    /// BLAKE3 of the row file, in hexadecimal.
    pub rows_blake3: String,
    /// Whether the output projection is the vocabulary matrix.
    pub tied: bool,
    /// Tensors in the knot.
    pub blocks: usize,
    /// Bytes of the compact tokenizer.
    pub tokenizer_bytes: u64,
    /// The largest absolute difference that converting the matrix made; 0 where it was kept.
    pub embed_error: f64,
    /// The rows by kind, if a mix was asked for.
    pub mix: Option<MixReport>,
    /// One line for each tensor that was tried in low rank.
    pub spectral: Vec<SpectralReport>,
    /// The sketch of the vocabulary matrix, if one was asked for.
    pub sketch: Option<SketchSummary>,
}

/// Packs a Hugging Face directory or a GGUF file.
///
/// # Errors
/// Every defect of the source by name ([`Error::Malformed`], [`Error::MissingShard`],
/// [`Error::TokenizerTooWide`], ...), a model that no station could load ([`Error::MissingTensor`],
/// [`Error::UnknownTensor`], [`Error::Model`]), an option that cannot be had ([`Error::Option`]), or I/O. No
/// half-written file stays.
pub fn pack(source: &Path, options: &PackOptions) -> Result<PackReport, Error> {
    let checkpoint = Checkpoint::open(source)?;
    let selection = selection::select(&checkpoint, options)?;
    let rows = selection.embedding.shape.first().copied().unwrap_or(0);
    let tokenizer = tokenizer_bytes(&checkpoint, rows)?;
    requirements::check(&checkpoint, &selection)?;
    let output = output::Output::create(options, source)?;
    let bar = crate::progress::Progress::new("packing");
    let spectral = spectral::factor_all(&checkpoint, &selection, options, &output)?;
    let plan = plan::declare(&checkpoint, &selection, &tokenizer, &spectral, options)?;
    let written = stream::write(
        &stream::Source {
            checkpoint: &checkpoint,
            tokenizer: &tokenizer,
            spectral: &spectral,
        },
        plan,
        &output,
        &stream::Pace {
            stop: &options.stop,
            bar: &bar,
        },
    )?;
    let published = output.publish()?;
    let mix = written.mix.zip(published.sidecar);
    Ok(PackReport {
        knot: published.knot,
        rows: published.rows,
        knot_bytes: written.knot_bytes,
        rows_bytes: written.rows_bytes,
        row_count: rows,
        row_bytes: written.row_bytes,
        row_dtype: selection.embedding.target.name(),
        rows_blake3: blake3::Hash::from_bytes(written.rows_blake3)
            .to_hex()
            .to_string(),
        tied: selection.tied,
        blocks: written.blocks,
        tokenizer_bytes: tokenizer.len() as u64,
        embed_error: written.embed_error,
        mix: mix.map(|(mix, sidecar)| MixReport { sidecar, ..mix }),
        spectral: spectral.into_reports(),
        sketch: written.sketch.as_ref().map(SketchSummary::of),
    })
}

/// The compact tokenizer, if every id of it has a row. A wider matrix is common (padding) and fine.
fn tokenizer_bytes(checkpoint: &Checkpoint, rows: u64) -> Result<Vec<u8>, Error> {
    let spec: &TokenizerSpec = &checkpoint.tokenizer;
    let tokens = spec.tokens.len() as u64;
    if tokens > rows {
        return Err(Error::TokenizerTooWide {
            tokens,
            rows,
            tensor: crate::checkpoint::EMBEDDING.to_owned(),
        });
    }
    spec.to_bytes().map_err(|source| Error::Tokenizer {
        path: checkpoint.path.clone(),
        source,
    })
}

impl EmbedDtype {
    /// The word on the command line and in a knot's provenance.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// The element type of the packed matrix, for a source of this one.
    const fn target(self, source: Dtype) -> Dtype {
        match self {
            Self::Keep => source,
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
        }
    }
}

impl BlockDtype {
    /// The word on the command line and in a knot's provenance.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Q8_0 => "q8_0",
        }
    }
}
