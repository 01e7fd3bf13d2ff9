//! What can go wrong between an asked row id and its bytes, by meaning, with the facts in fields.
//! Not the transport's own faults in detail: those are kept as sources.

use std::{fmt, io, path::PathBuf, sync::Arc};

use helix_transport::ErrorKind;

use crate::{layout::RowId, locate::Container};

/// A row could not be had, or a row file, row tree or path table is not what it claims to be.
///
/// Cloning is cheap: one failed load is told to everybody who waited for it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for a row that the matrix has not; nothing was requested.
    #[error("row {row} is outside the matrix of {rows} rows")]
    RowOutsideMatrix {
        /// The row that was asked for.
        row: RowId,
        /// Rows of the matrix.
        rows: u64,
    },
    /// A table without rows, or with rows of no bytes.
    #[error("a table of {rows} rows of {row_bytes} bytes holds nothing")]
    EmptyTable {
        /// Declared number of rows.
        rows: u64,
        /// Declared bytes of one row.
        row_bytes: u32,
    },
    /// The table's end does not fit 64 bits.
    #[error("{rows} rows of {row_bytes} bytes at offset {base_bytes} do not fit 64 bits")]
    TableOverflow {
        /// Declared offset of row 0.
        base_bytes: u64,
        /// Declared number of rows.
        rows: u64,
        /// Declared bytes of one row.
        row_bytes: u32,
    },
    /// The object ends before its table does.
    #[error("{object} has {found_bytes} bytes, its rows end at {expected_bytes}")]
    ObjectTooShort {
        /// Name of the object, without query or user information.
        object: String,
        /// Offset behind the last row or path.
        expected_bytes: u64,
        /// Length of the object.
        found_bytes: u64,
    },
    /// The object is no bare row file of this table, and begins as no container that is known.
    #[error(
        "{object} has {found_bytes} bytes, bare rows would have {expected_bytes}, and it begins with \
         {begins}: no safetensors file, index, GGUF or knot"
    )]
    NotARowSource {
        /// Name of the object, without query or user information.
        object: String,
        /// Length of the object.
        found_bytes: u64,
        /// Bytes of the table.
        expected_bytes: u64,
        /// Its first bytes, for people.
        begins: String,
    },
    /// A container's header breaks a rule of its format.
    #[error("{object} is no sound {container} file: {part}: expected {expected}, found {found}")]
    Container {
        /// Name of the object, without query or user information.
        object: String,
        /// What it begins as.
        container: Container,
        /// The part that is wrong.
        part: String,
        /// What the format asks for.
        expected: String,
        /// What the object has.
        found: String,
    },
    /// A container holds no tensor of the names that the matrix may have.
    #[error("{object} ({container}) has no tensor named {}", tried.join(", "))]
    TensorMissing {
        /// Name of the object, without query or user information.
        object: String,
        /// What it is.
        container: Container,
        /// The names that were looked for.
        tried: Vec<String>,
    },
    /// The tensor is another matrix than the one that is wanted.
    #[error("tensor {tensor} of {object} is {found}, expected {expected}")]
    TensorDiffers {
        /// Name of the object, without query or user information.
        object: String,
        /// The tensor.
        tensor: String,
        /// Shape and element type that are wanted.
        expected: String,
        /// Shape and element type of the tensor.
        found: String,
    },
    /// An index names a shard that does not lie below its folder.
    #[error(
        "{object} puts tensor {tensor} into shard {shard:?}, which is no relative path of plain names"
    )]
    ShardName {
        /// Name of the index, without query or user information.
        object: String,
        /// The tensor.
        tensor: String,
        /// The shard's name, cut at 200 characters.
        shard: String,
    },
    /// More rows than a row tree may have.
    #[error("a row tree holds 1 to {} rows, not {rows}", crate::row_tree::MAX_ROWS)]
    TreeRows {
        /// Declared number of rows.
        rows: u64,
    },
    /// A part of a row tree has not the size or number that its rows ask for.
    #[error("row tree of {rows} rows: {part} is {found}, expected {expected}")]
    TreeShape {
        /// Rows of the tree.
        rows: u64,
        /// Which part, with its unit.
        part: &'static str,
        /// What the number of rows asks for.
        expected: u64,
        /// What was given.
        found: u64,
    },
    /// The pinned nodes do not hash to the pinned root.
    #[error("pinned nodes hash to {}, expected root {}", Hex(.found), Hex(.expected))]
    TreeRoot {
        /// The root that was pinned.
        expected: [u8; 16],
        /// The root that the pinned nodes give.
        found: [u8; 16],
    },
    /// The bytes that arrived for a row are not the row that was published, twice in sequence.
    #[error(
        "row {row} of {object} does not verify: expected node {}, found {}",
        Hex(.expected), Hex(.found)
    )]
    RowIntegrity {
        /// Name of the object, without query or user information.
        object: String,
        /// The row.
        row: RowId,
        /// The pinned node above the row.
        expected: [u8; 16],
        /// The node that the row and its path give.
        found: [u8; 16],
    },
    /// The bytes could not be read; the source says why, and whether it was tried again.
    #[error("{object} could not be read")]
    Read {
        /// Name of the object, without query or user information.
        object: String,
        /// The transport's account.
        #[source]
        source: Arc<helix_transport::Error>,
    },
    /// The task that loaded rows ended without an answer: it panicked, or the runtime is stopping.
    #[error("the load of {rows} rows of {object} ended without an answer")]
    LoadStopped {
        /// Name of the object, without query or user information.
        object: String,
        /// Rows that were waited for.
        rows: usize,
    },
    /// Rows were asked for outside a tokio runtime, where nothing can be loaded.
    #[error("rows of {object} can only be loaded within a tokio runtime")]
    NoRuntime {
        /// Name of the object, without query or user information.
        object: String,
    },
    /// The bytes are no sidecar: they start with others.
    #[error("no sidecar: it starts with {}", Hex(.found))]
    SidecarMagic {
        /// Its first bytes, at most 8.
        found: Vec<u8>,
    },
    /// A sidecar of a later version, or with parts of one.
    #[error("sidecar: {part} {found} is not known to this program")]
    SidecarUnsupported {
        /// Which part.
        part: &'static str,
        /// The number that stands there.
        found: u64,
    },
    /// The bytes of a sidecar are not those that were written.
    #[error("sidecar: digest {}, expected {}", Hex(.found), Hex(.expected))]
    SidecarDigest {
        /// The digest that stands in it.
        expected: [u8; 32],
        /// The digest of its bytes.
        found: [u8; 32],
    },
    /// A part of a sidecar contradicts the others.
    #[error("sidecar: {part} is {found}, expected {expected}")]
    Sidecar {
        /// Which part, with its place and unit.
        part: String,
        /// What the other parts ask for.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A store was to have kinds of rows that no store can have.
    #[error("rows of {} for a matrix of {matrix}: {reason}", .kinds.join(", "))]
    RowKinds {
        /// Names of the kinds.
        kinds: Vec<&'static str>,
        /// Element type of the matrix.
        matrix: &'static str,
        /// The rule they break.
        reason: &'static str,
    },
    /// A row handed to a writer or tree builder has the wrong length.
    #[error("row {row} has {found_bytes} bytes, expected {expected_bytes}")]
    RowLength {
        /// The row.
        row: RowId,
        /// Bytes of one row of this table.
        expected_bytes: u64,
        /// Bytes that were given.
        found_bytes: u64,
    },
    /// A writer or tree builder was given another number of rows than it was made for.
    #[error("{found} rows were given, expected {expected}")]
    RowCount {
        /// Declared number of rows.
        expected: u64,
        /// Rows that were given.
        found: u64,
    },
    /// A row cache on disk could not be used; rows are then kept in memory alone.
    #[error("could not {action} {}", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The operating system's account.
        #[source]
        source: Arc<io::Error>,
    },
    /// A row cache on disk was made by another release and is left as it is.
    #[error(
        "{} is a row cache of version {found}, this release knows {expected}; name another directory, \
         or remove the file", path.display()
    )]
    DiskVersion {
        /// The presence map.
        path: PathBuf,
        /// The version that this code reads and writes.
        expected: u32,
        /// The version of the file.
        found: String,
    },
    /// A row file or path table could not be written; no file is left under the final name.
    #[error("{what} could not be written")]
    Write {
        /// Path of the row file, or "path table".
        what: String,
        /// The operating system's account.
        #[source]
        source: Arc<io::Error>,
    },
}

impl Error {
    /// Whose fault it is and what may help, in the transport's terms.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { source, .. } => source.kind(),
            Self::RowIntegrity { .. }
            | Self::ObjectTooShort { .. }
            | Self::Container { .. }
            | Self::TreeRoot { .. }
            | Self::SidecarMagic { .. }
            | Self::SidecarDigest { .. }
            | Self::Sidecar { .. }
            | Self::TreeShape { .. } => ErrorKind::Corrupt,
            Self::SidecarUnsupported { .. } => ErrorKind::Unsupported,
            Self::LoadStopped { .. } => ErrorKind::Transient,
            _ => ErrorKind::Config,
        }
    }

    pub(crate) fn write(what: impl Into<String>, source: io::Error) -> Self {
        Self::Write {
            what: what.into(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn write_file(path: &std::path::Path, source: io::Error) -> Self {
        Self::write(PathBuf::from(path).display().to_string(), source)
    }
}

/// Bytes as lower-case hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
