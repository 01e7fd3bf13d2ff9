//! What a knot holds, from its front alone: no payload is read, so it says nothing about whether
//! payloads are intact (that is [`verify`](crate::verify)).

use std::fmt;
use std::path::{Path, PathBuf};

use gkq_v2::{Block, BlockBody, SectionKind};
use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::checkpoint::HEAD;
use crate::knot_file::KnotFile;

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
    /// Bytes of a row.
    pub row_bytes: u32,
    /// Bytes of the whole row file.
    pub table_bytes: u64,
    /// BLAKE3 of the row file, in hexadecimal.
    pub rows_blake3: String,
    /// Root of the row tree, in hexadecimal.
    pub tree_root: String,
    /// Bytes of hashes that prove one row.
    pub path_bytes_per_row: u32,
}

/// Reads the front of a knot.
///
/// # Errors
/// [`Error::Io`], or [`Error::Knot`] with the rule that the front breaks.
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
        blocks: knot.blocks().iter().map(block_summary).collect(),
    })
}

fn block_summary(block: &Block) -> BlockSummary {
    let rank = match &block.body {
        BlockBody::Spectral { rank, .. } => Some(*rank),
        _ => None,
    };
    BlockSummary {
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
        }),
    }
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
        )
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
