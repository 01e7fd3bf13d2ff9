//! Finds the rows of a matrix in whatever object was named: a bare row file, a safetensors file, the
//! index of a sharded one, or a GGUF, told apart by content. It reads headers by range and never a
//! payload; knots and manifests are recognised, and resolved by the caller, who knows those formats.
//! Specification: docs/format/row-store.md, "Rows without conversion"; the formats' own pages are the
//! README of the safetensors project and the GGUF page of the ggml project.

mod assumed;
mod element;
mod gguf;
mod safetensors;
mod sharded_index;
mod tensor_map;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use helix_transport::{ByteRange, RangeSource, ReadOptions};

use crate::{Error, layout::RowLayout};
use assumed::First;
use element::Element;

/// First read of an object that nothing is known of. The header of a checkpoint with 300 tensors
/// takes 35 KB, so that one request opens it; a longer one costs exactly its rest.
const PREFIX_BYTES: u64 = 64 * 1024;

/// First bytes of a knot (docs/format/gkq-v2.md).
const KNOT_MAGIC: &[u8] = b"\x89GKQ\r\n\x1a\n";

/// Names that embeddings have in published checkpoints, the most frequent first: Llama and its kin,
/// two generations of multimodal wrappers, GGUF, GPT-2, GPT-NeoX, InternLM, Falcon, OPT, BERT.
pub const EMBEDDING_NAMES: [&str; 14] = [
    "model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "model.text_model.embed_tokens.weight",
    "embed_tokens.weight",
    "token_embd.weight",
    "transformer.wte.weight",
    "wte.weight",
    "gpt_neox.embed_in.weight",
    "model.tok_embeddings.weight",
    "tok_embeddings.weight",
    "transformer.word_embeddings.weight",
    "model.decoder.embed_tokens.weight",
    "embeddings.word_embeddings.weight",
];

/// The matrix that is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Names it may have, the best first; for a vocabulary [`EMBEDDING_NAMES`].
    pub names: Vec<String>,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of one row.
    pub row_bytes: u32,
    /// Element type as `gkq-v2` names it: `bf16`, `q8_0`.
    pub dtype: String,
}

/// Where whoever packed the model saw the matrix: a guess that saves reading headers.
///
/// A wrong one is harmless where rows are verified: no row of it passes, and the headers are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationHint {
    /// Name of the file, without folder.
    pub file: String,
    /// Length of that file in bytes.
    pub object_bytes: u64,
    /// Offset of row 0 in it.
    pub base_bytes: u64,
}

/// What an object turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// Rows and nothing else.
    Bare,
    /// One safetensors file.
    Safetensors,
    /// The index of a sharded checkpoint; the rows are in one of its shards.
    ShardedIndex,
    /// A GGUF file.
    Gguf,
    /// A knot with its matrix inside.
    Knot,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bare => "bare rows",
            Self::Safetensors => "safetensors",
            Self::ShardedIndex => "sharded safetensors",
            Self::Gguf => "GGUF",
            Self::Knot => "knot",
        })
    }
}

/// How sure a location is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The object's length is exactly that of the table.
    Length,
    /// The container's header was read and names this matrix with this shape and element type.
    Header,
    /// Nothing was read: the name, or a hint, suggested it. The first reply tells the length, and a
    /// row that verifies tells the rest.
    Assumed,
}

/// A table of rows, found.
#[derive(Debug, Clone)]
pub struct Located {
    /// The object the rows are in: the one that was named, or a shard.
    pub source: Arc<dyn RangeSource>,
    /// Where they lie in it.
    pub layout: RowLayout,
    /// What the object that was named is.
    pub container: Container,
    /// Why this is believed.
    pub evidence: Evidence,
}

/// What [`locate`] came to.
#[derive(Debug, Clone)]
pub enum Found {
    /// The rows.
    Rows(Located),
    /// The object begins as a knot; a reader of knots finds the matrix.
    Knot,
    /// The object is a manifest, of which this is the text; a reader of manifests finds the row file.
    Manifest(Bytes),
}

/// Opens a shard by its name, which was checked to be relative and to stay below the index's folder.
pub type OpenShard =
    dyn Fn(&str) -> Result<Arc<dyn RangeSource>, helix_transport::Error> + Send + Sync;

/// What accompanies a search.
pub struct LocateOptions<'a> {
    /// Where its traffic is counted, and its patience.
    pub read: &'a ReadOptions,
    /// A guess to try first. Give none where rows are not verified.
    pub hint: Option<&'a LocationHint>,
    /// Opens the shards of an index.
    pub open_shard: &'a OpenShard,
}

impl fmt::Debug for LocateOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocateOptions")
            .field("hint", &self.hint)
            .finish_non_exhaustive()
    }
}

/// Where the rows of an unread object probably are, judged by its `file_name` alone, so that the
/// first batch of rows can be the first request. `None`: the name suggests a container that nothing
/// is known of, and [`locate`] has to look.
///
/// The returned source fails every read as soon as a reply tells another length than was assumed
/// ([`helix_transport::Error::Changed`]), so that no row of a wrong guess is looked at.
///
/// # Errors
/// [`Error::EmptyTable`] or [`Error::TableOverflow`] for a table that cannot be.
pub fn assume(
    source: &Arc<dyn RangeSource>,
    file_name: &str,
    wanted: &Wanted,
    hint: Option<&LocationHint>,
) -> Result<Option<Located>, Error> {
    if let Some(hint) = hint.filter(|hint| hint.file == file_name) {
        return assumed::at_hint(source, wanted, hint).map(Some);
    }
    let lower = file_name.to_ascii_lowercase();
    let containers = [".safetensors", ".gguf", ".json", ".gkq"];
    if containers.iter().any(|ending| lower.ends_with(ending)) {
        return Ok(None);
    }
    // The names of `fat-origin pack` and `publish`.
    let first = if lower.ends_with(".rows") || lower.starts_with("rows-") {
        First::Batch
    } else {
        First::Alone
    };
    assumed::bare(source, wanted, first).map(Some)
}

/// The object behind `source`, which must have `object_bytes` bytes: every read of it fails as soon
/// as a reply tells another length ([`helix_transport::Error::Changed`]).
#[must_use]
pub fn expect_length(source: &Arc<dyn RangeSource>, object_bytes: u64) -> Arc<dyn RangeSource> {
    assumed::of_length(source, object_bytes)
}

/// Finds the rows of `wanted` in the object behind `source`, by content. Costs nothing where the
/// object's length is known and is the table's; else one read of 64 KiB, and what its header takes
/// beyond that.
///
/// # Errors
/// [`Error::NotARowSource`] for an object that is nothing of what is known, [`Error::Container`] for
/// a defective header, [`Error::TensorMissing`] and [`Error::TensorDiffers`] where the matrix is not
/// in it or is another one, [`Error::ShardName`] for a shard outside the index's folder,
/// [`Error::Read`] where bytes could not be had.
pub async fn locate(
    source: &Arc<dyn RangeSource>,
    wanted: &Wanted,
    options: &LocateOptions<'_>,
) -> Result<Found, Error> {
    if let Some(located) = by_length(source, wanted, options)? {
        return Ok(Found::Rows(located));
    }
    let front = Front::open(source, options.read).await?;
    if let Some(located) = by_length(source, wanted, options)? {
        return Ok(Found::Rows(located));
    }
    if front.prefix.starts_with(KNOT_MAGIC) {
        return Ok(Found::Knot);
    }
    if front.prefix.starts_with(gguf::MAGIC) {
        let base = gguf::find(&front, wanted).await?;
        return located(source, base, wanted, Container::Gguf);
    }
    if safetensors::looks_like(&front.prefix, front.len_bytes) {
        let base = safetensors::find(&front, wanted).await?;
        return located(source, base, wanted, Container::Safetensors);
    }
    if sharded_index::looks_like(&front.prefix) {
        return sharded_index::find(&front, wanted, options).await;
    }
    Err(Error::NotARowSource {
        object: source.name().to_owned(),
        found_bytes: front.len_bytes,
        expected_bytes: wanted.table_bytes()?,
        begins: beginning(&front.prefix),
    })
}

/// Decides without a header, where the object's length is known: it is the table's, or the hint's.
fn by_length(
    source: &Arc<dyn RangeSource>,
    wanted: &Wanted,
    options: &LocateOptions<'_>,
) -> Result<Option<Located>, Error> {
    let Some(version) = source.version() else {
        return Ok(None);
    };
    if version.len_bytes == wanted.table_bytes()? {
        return Ok(Some(Located {
            source: Arc::clone(source),
            layout: wanted.layout(0)?,
            container: Container::Bare,
            evidence: Evidence::Length,
        }));
    }
    match options.hint {
        Some(hint) if hint.object_bytes == version.len_bytes => {
            assumed::at_hint(source, wanted, hint).map(Some)
        }
        _ => Ok(None),
    }
}

fn located(
    source: &Arc<dyn RangeSource>,
    base_bytes: u64,
    wanted: &Wanted,
    container: Container,
) -> Result<Found, Error> {
    Ok(Found::Rows(Located {
        source: Arc::clone(source),
        layout: wanted.layout(base_bytes)?,
        container,
        evidence: Evidence::Header,
    }))
}

impl Wanted {
    /// The vocabulary matrix of `rows` rows, under any of its usual names.
    #[must_use]
    pub fn vocabulary(rows: u64, row_bytes: u32, dtype: &str) -> Self {
        Self {
            names: EMBEDDING_NAMES.map(str::to_owned).to_vec(),
            rows,
            row_bytes,
            dtype: dtype.to_owned(),
        }
    }

    fn layout(&self, base_bytes: u64) -> Result<RowLayout, Error> {
        RowLayout::new(base_bytes, self.rows, self.row_bytes)
    }

    fn table_bytes(&self) -> Result<u64, Error> {
        Ok(self.layout(0)?.table_bytes())
    }

    /// The best of the names that `has` knows.
    fn choose<'a, T>(&self, has: impl Fn(&str) -> Option<&'a T>) -> Option<(&str, &'a T)> {
        let mut names = self.names.iter();
        names.find_map(|name| has(name).map(|tensor| (name.as_str(), tensor)))
    }

    fn missing(&self, object: &str, container: Container) -> Error {
        Error::TensorMissing {
            object: object.to_owned(),
            container,
            tried: self.names.clone(),
        }
    }

    /// Checks that a tensor of this shape, outermost dimension first, and element type is the matrix.
    fn check(&self, object: &str, tensor: &str, shape: &[u64], dtype: &str) -> Result<(), Error> {
        let cols = Element::named(&self.dtype).and_then(|element| element.cols(self.row_bytes));
        if let (Some(cols), &[rows, found_cols]) = (cols, shape)
            && dtype == self.dtype
            && (rows, found_cols) == (self.rows, cols)
        {
            return Ok(());
        }
        let cols = cols.map_or_else(|| "?".to_owned(), |cols| cols.to_string());
        Err(Error::TensorDiffers {
            object: object.to_owned(),
            tensor: tensor.to_owned(),
            expected: format!("[{}, {cols}] {}", self.rows, self.dtype),
            found: format!("{shape:?} {dtype}"),
        })
    }
}

/// The beginning of an object, and the way to its rest.
struct Front<'a> {
    source: &'a dyn RangeSource,
    options: &'a ReadOptions,
    prefix: Bytes,
    len_bytes: u64,
}

impl<'a> Front<'a> {
    async fn open(
        source: &'a Arc<dyn RangeSource>,
        options: &'a ReadOptions,
    ) -> Result<Self, Error> {
        let source = source.as_ref();
        let read = source.read_prefix(PREFIX_BYTES, options).await;
        options.meter.add_waves(1);
        let prefix = read.map_err(|error| read_error(source, error))?;
        let len_bytes = source
            .version()
            .map_or(prefix.len() as u64, |version| version.len_bytes);
        Ok(Self {
            source,
            options,
            prefix,
            len_bytes,
        })
    }

    fn name(&self) -> &str {
        self.source.name()
    }

    /// Bytes `start..end`, which lie inside the object.
    async fn read(&self, start: u64, end: u64) -> Result<Bytes, Error> {
        let range = ByteRange { start, end };
        let read = self.source.read(range, self.options).await;
        self.options.meter.add_waves(1);
        read.map_err(|error| read_error(self.source, error))
    }

    /// The first `end` bytes: the prefix, and exactly what is missing of them.
    async fn up_to(&self, end: u64) -> Result<Bytes, Error> {
        let have = self.prefix.len() as u64;
        if end <= have {
            // It fits: it is at most a length in memory.
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            return Ok(self.prefix.slice(..end.min(self.prefix.len())));
        }
        let rest = self.read(have, end).await?;
        Ok([self.prefix.clone(), rest].concat().into())
    }

    fn malformed(
        &self,
        container: Container,
        part: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::Container {
            object: self.name().to_owned(),
            container,
            part: part.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}

fn read_error(source: &dyn RangeSource, error: helix_transport::Error) -> Error {
    Error::Read {
        object: source.name().to_owned(),
        source: Arc::new(error),
    }
}

/// The first bytes for people: as text where they are one.
fn beginning(prefix: &[u8]) -> String {
    let first = prefix.get(..prefix.len().min(16)).unwrap_or_default();
    match std::str::from_utf8(first) {
        Ok(text) => format!("{text:?}"),
        Err(_not_text) => format!("{first:02x?}"),
    }
}

/// Boxed, so that an index can lead to another search without an endless type.
type Searching<'a, T> = BoxFuture<'a, Result<T, Error>>;
