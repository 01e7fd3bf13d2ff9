//! What can go wrong between an asked row id and its bytes, by meaning, with the facts in fields.
//! Not the transport's own faults in detail: those are kept as sources.

use std::{fmt, io, path::PathBuf, sync::Arc};

use helix_transport::ErrorKind;

use crate::layout::RowId;

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
            | Self::TreeRoot { .. }
            | Self::TreeShape { .. } => ErrorKind::Corrupt,
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
