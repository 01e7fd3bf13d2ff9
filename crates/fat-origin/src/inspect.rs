//! What a knot holds, from its front and the first bytes of its sketch: no other payload is read, so it
//! says nothing about whether payloads are intact (that is [`verify`](crate::verify)).

mod sidecar;

use std::fmt;
use std::path::{Path, PathBuf};

use columnar_embed::Sidecar;
use gkq_v2::{Block, BlockBody, SectionKind, SketchHeader};
use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::checkpoint::HEAD;
use crate::knot_file::KnotFile;

pub use sidecar::SidecarSummary;

/// A knot's contents.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KnotSummary {
    /// The knot.
    pub knot: PathBuf,
    /// Length of the file.
    pub object_bytes: u64,
    /// Length of its front: what a station reads to open it.
    pub front_bytes: u64,
    /// BLAKE3 of the front, in hexadecimal; it identifies the knot.
    pub front_blake3: String,
    /// `model_type` of the config.
    pub model_type: Option<String>,
    /// Layers.
    pub num_hidden_layers: Option<u64>,
    /// Width of a hidden state.
    pub hidden_size: Option<u64>,
    /// Whether the output projection is the vocabulary matrix: no head of its own is there.
    pub tied: bool,
    /// What is no tensor.
    pub sections: Vec<SectionSummary>,
    /// Tensors in file order.
    pub blocks: Vec<BlockSummary>,
}

/// One section.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SectionSummary {
    /// What it holds.
    pub kind: String,
    /// The tensor it belongs to.
    pub tensor: Option<String>,
    /// First byte.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// One tensor.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BlockSummary {
    /// Hugging Face name.
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<u64>,
    /// Element type as stored.
    pub dtype: &'static str,
    /// Element type in the checkpoint.
    pub source_dtype: &'static str,
    /// What conversion or factoring cost; 0 for bytes kept as they were.
    pub error: f64,
    /// Components of a spectral block.
    pub rank: Option<u32>,
    /// First byte of the payload.
    pub offset: u64,
    /// Length of the payload; 0 if it is external.
    pub bytes: u64,
    /// BLAKE3 of the payload, in hexadecimal.
    pub blake3: String,
    /// Whether the payload is not in the knot.
    pub external: bool,
    /// What a row store of this tensor must have.
    pub columnar: Option<ColumnarSummary>,
}

/// The columnar section of a tensor.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ColumnarSummary {
    /// Rows.
    pub rows: u64,
    /// Bytes of a row of the matrix.
    pub row_bytes: u32,
    /// Bytes of all rows as the matrix has them: the row file's, where all rows are stored so.
    pub table_bytes: u64,
    /// BLAKE3 of these rows, in hexadecimal.
    pub rows_blake3: String,
    /// Root of the row tree, in hexadecimal.
    pub tree_root: String,
    /// Bytes of hashes that prove one row.
    pub path_bytes_per_row: u32,
    /// Length of the list of rows that are asked for most; 0 without one.
    pub hot_ids: u64,
    /// The kinds of its rows, where the row file has several.
    pub sidecar: Option<SidecarSummary>,
    /// The sketch that may stand in for rows that cannot be had.
    pub sketch: Option<SketchSummary>,
}

/// A sketch and how far it is from the rows.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SketchSummary {
    /// Components.
    pub rank: u32,
    /// Bytes of the whole sketch.
    pub bytes: u64,
    /// `|W - W'| / |W|`, Frobenius, over all rows.
    pub relative_error: f64,
    /// Mean over the rows of the cosine between a row and its approximation.
    pub mean_cosine: f64,
    /// The least of these cosines.
    pub worst_cosine: f32,
    /// The row that has it.
    pub worst_row: u32,
}

impl SketchSummary {
    pub(crate) fn of(header: &SketchHeader) -> Self {
        Self {
            rank: header.rank,
            bytes: header.sketch_bytes().unwrap_or(u64::MAX),
            relative_error: header.error.relative,
            mean_cosine: header.error.mean_cosine,
            worst_cosine: header.error.worst_cosine,
            worst_row: header.error.worst_row,
        }
    }
}

/// Reads the front of a knot.
///
/// # Errors
/// [`Error::Io`], or [`Error::Knot`] with the rule that the front or the sketch's header breaks.
pub fn inspect(path: &Path) -> Result<KnotSummary, Error> {
    let file = KnotFile::open(path)?;
    let knot = &file.knot;
    let config: Value = knot
        .text(SectionKind::ModelConfig)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let field = |name: &str| {
        config
            .get(name)
            .or_else(|| config.get("text_config")?.get(name))
    };
    let sections = knot.sections().iter().map(|section| SectionSummary {
        kind: section.kind.to_string(),
        tensor: section
            .block
            .and_then(|index| knot.blocks().get(index))
            .map(|block| block.name.clone()),
        offset: section.range.start,
        bytes: section.range.end - section.range.start,
    });
    Ok(KnotSummary {
        knot: path.to_path_buf(),
        object_bytes: knot.object_bytes(),
        front_bytes: knot.front_bytes(),
        front_blake3: hex(&knot.front_blake3()),
        model_type: field("model_type")
            .and_then(Value::as_str)
            .map(str::to_owned),
        num_hidden_layers: field("num_hidden_layers").and_then(Value::as_u64),
        hidden_size: field("hidden_size").and_then(Value::as_u64),
        tied: knot.block(HEAD).is_none(),
        sections: sections.collect(),
        blocks: knot
            .blocks()
            .iter()
            .map(|block| block_summary(block, &file))
            .collect::<Result<_, _>>()?,
    })
}

/// The header of a block's sketch, if it has one.
fn sketch_of(block: &Block, file: &KnotFile) -> Result<Option<SketchSummary>, Error> {
    let Some(sketch) = block.columnar.as_ref().and_then(|rows| rows.sketch.clone()) else {
        return Ok(None);
    };
    let header_bytes = SketchHeader::BYTES as u64;
    let range = sketch.start..sketch.end.min(sketch.start + header_bytes);
    let mut header = Vec::new();
    file.chunks(&range, header_bytes, |bytes| {
        header.extend_from_slice(bytes);
        Ok(())
    })?;
    let header = SketchHeader::parse(&header).map_err(Error::knot(&file.path))?;
    Ok(Some(SketchSummary::of(&header)))
}

/// What a block's sidecar says, if it has one.
fn sidecar_of(block: &Block, file: &KnotFile) -> Result<Option<SidecarSummary>, Error> {
    let range = block
        .columnar
        .as_ref()
        .and_then(|rows| rows.row_sidecar.clone());
    let Some(bytes) = range.and_then(|range| file.knot.front_slice(&range)) else {
        return Ok(None);
    };
    let sidecar = Sidecar::parse(bytes).map_err(Error::rows(&file.path))?;
    Ok(Some(SidecarSummary::of(&sidecar, bytes.len() as u64)))
}

fn block_summary(block: &Block, file: &KnotFile) -> Result<BlockSummary, Error> {
    let sketch = sketch_of(block, file)?;
    let sidecar = sidecar_of(block, file)?;
    let rank = match &block.body {
        BlockBody::Spectral { rank, .. } => Some(*rank),
        _ => None,
    };
    Ok(BlockSummary {
        name: block.name.clone(),
        shape: block.shape.clone(),
        dtype: block.dtype().name(),
        source_dtype: block.source_dtype.name(),
        error: block.error,
        rank,
        offset: block.payload.start,
        bytes: block.payload.end - block.payload.start,
        blake3: hex(&block.blake3),
        external: block.is_external(),
        columnar: block.columnar.as_ref().map(|columnar| ColumnarSummary {
            rows: columnar.rows,
            row_bytes: columnar.row_bytes,
            table_bytes: columnar.rows.saturating_mul(columnar.row_bytes.into()),
            rows_blake3: hex(&columnar.rows_blake3),
            tree_root: hex(&columnar.tree_root),
            path_bytes_per_row: columnar.path_bytes_per_row,
            hot_ids: columnar
                .hot_ids
                .as_ref()
                .map_or(0, |ids| (ids.end - ids.start) / 4),
            sidecar,
            sketch,
        }),
    })
}

impl fmt::Display for KnotSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.knot.file_name().unwrap_or_default().to_string_lossy();
        writeln!(
            out,
            "{name}: {} bytes, front {} bytes",
            self.object_bytes, self.front_bytes
        )?;
        writeln!(out, "front blake3  {}", self.front_blake3)?;
        let number = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
        writeln!(
            out,
            "model         {}, {} layers, hidden size {}, {}",
            self.model_type.as_deref().unwrap_or("?"),
            number(self.num_hidden_layers),
            number(self.hidden_size),
            if self.tied {
                "tied head"
            } else {
                "head of its own"
            },
        )?;
        writeln!(out, "\nsections")?;
        for section in &self.sections {
            write!(out, "  {:<18} {:>12} bytes", section.kind, section.bytes)?;
            match &section.tensor {
                Some(tensor) => writeln!(out, "  {tensor}")?,
                None => writeln!(out)?,
            }
        }
        writeln!(out, "\nblocks")?;
        for block in &self.blocks {
            writeln!(out, "  {block}")?;
        }
        for (name, columnar) in self
            .blocks
            .iter()
            .filter_map(|block| Some((&block.name, block.columnar.as_ref()?)))
        {
            writeln!(out, "\nrows of {name}\n{columnar}")?;
        }
        Ok(())
    }
}

impl fmt::Display for BlockSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<_> = self.shape.iter().map(u64::to_string).collect();
        write!(
            out,
            "{:<50} {:<5} {:>14} {:>12} bytes",
            self.name,
            self.dtype,
            shape.join(" x "),
            self.bytes
        )?;
        if let Some(rank) = self.rank {
            write!(out, "  spectral, rank {rank}, error {:.3e}", self.error)?;
        } else if self.source_dtype != self.dtype {
            write!(
                out,
                "  from {}, largest error {:.3e}",
                self.source_dtype, self.error
            )?;
        }
        if self.columnar.is_some() {
            write!(out, "  columnar-eligible")?;
        }
        if self.external {
            write!(out, "  external")?;
        }
        Ok(())
    }
}

impl fmt::Display for ColumnarSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "  {} rows of {} bytes, {} in all",
            self.rows, self.row_bytes, self.table_bytes
        )?;
        writeln!(out, "  blake3     {}", self.rows_blake3)?;
        write!(
            out,
            "  tree root  {}, {} bytes of hashes prove a row",
            self.tree_root, self.path_bytes_per_row
        )?;
        if self.hot_ids > 0 {
            write!(out, "\n  hot ids    {}", self.hot_ids)?;
        }
        if let Some(sidecar) = &self.sidecar {
            write!(out, "\n{sidecar}")?;
        }
        match &self.sketch {
            Some(sketch) => write!(out, "\n  {sketch}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SketchSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "sketch     rank {}, {} bytes, NOT the rows: relative error {:.3}, mean cosine {:.3}, \
             worst {:.3} (row {})",
            self.rank,
            self.bytes,
            self.relative_error,
            self.mean_cosine,
            self.worst_cosine,
            self.worst_row
        )
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
