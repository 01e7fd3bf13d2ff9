//! The one error type of this crate; each variant is a meaning with its facts. It carries no
//! exit codes and no colours: those belong to the binary (`main.rs`).

use std::path::{Path, PathBuf};

use crate::publish::StoreFault;

/// What went wrong while packing, inspecting, verifying or serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation, as a verb: `open`, `read`, `rename`.
        action: &'static str,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A file does not keep to its format.
    #[error("{}: {part}: expected {expected}, found {found}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The part of it: `header`, ``tensor `a.b` ``, `metadata key`.
        part: String,
        /// What the format asks for.
        expected: String,
        /// What the file holds.
        found: String,
    },
    /// A file keeps to its format but asks for something this program does not have.
    #[error("{}: {part}: `{found}` is not supported (supported: {supported})", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What the value is: `architecture`, `dtype of tensor ...`, `tokenizer model`.
        part: String,
        /// The value.
        found: String,
        /// The values that would do.
        supported: String,
    },
    /// The source is neither a Hugging Face directory nor a GGUF file.
    #[error("`{}` is no checkpoint: {reason}", path.display())]
    NoCheckpoint {
        /// The path that was given.
        path: PathBuf,
        /// Which condition failed.
        reason: String,
    },
    /// A shard named by the index is not there.
    #[error("{}: shard `{shard}` is missing (it should hold {tensors} tensors, the first is `{first_tensor}`)", index.display())]
    MissingShard {
        /// The index file.
        index: PathBuf,
        /// The shard's name.
        shard: String,
        /// How many tensors the index places there.
        tensors: usize,
        /// One of them.
        first_tensor: String,
    },
    /// A shard's name leaves the checkpoint's directory.
    #[error("{}: shard path `{shard}` leaves the checkpoint's directory: expected a plain file name", index.display())]
    ShardPath {
        /// The index file.
        index: PathBuf,
        /// The name as the index gives it.
        shard: String,
    },
    /// The index places a tensor in a shard that does not hold it.
    #[error("{}: tensor `{tensor}` is not in shard `{shard}`", index.display())]
    AbsentTensor {
        /// The index file.
        index: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shard that should hold it.
        shard: String,
    },
    /// A tensor the model needs is nowhere in the checkpoint.
    #[error("{}: tensor `{tensor}` is missing", path.display())]
    MissingTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor, by its Hugging Face name.
        tensor: String,
    },
    /// A tensor that the model of the config does not have: leaving it out would change the answers.
    #[error(
        "{}: tensor `{tensor}` is not part of the model that the config describes ({layers} layers)",
        path.display()
    )]
    UnknownTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor, by its Hugging Face name.
        tensor: String,
        /// Layers, as the config says.
        layers: usize,
    },
    /// Config and tensors do not make a model that the decoder can load.
    #[error("{}", path.display())]
    Model {
        /// The checkpoint.
        path: PathBuf,
        /// What the decoder says.
        source: Box<decoder_models::Error>,
    },
    /// The tokenizer has ids that the vocabulary matrix has no row for.
    #[error(
        "the tokenizer is wider than the matrix: {tokens} token ids, but `{tensor}` has {rows} rows"
    )]
    TokenizerTooWide {
        /// One more than the largest token id.
        tokens: u64,
        /// Rows of the matrix.
        rows: u64,
        /// The matrix.
        tensor: String,
    },
    /// A value does not fit the dtype that was asked for.
    #[error("tensor `{tensor}`: value {value} at row {row}, column {column} overflows {dtype}")]
    ConversionOverflow {
        /// The tensor.
        tensor: String,
        /// Row of the value.
        row: u64,
        /// Column of the value.
        column: u64,
        /// The value.
        value: f32,
        /// The dtype that was asked for.
        dtype: &'static str,
    },
    /// A tensor holds NaN or an infinity where finite numbers are needed.
    #[error("tensor `{tensor}`: value {value} at row {row}, column {column} is not finite")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Row of the value.
        row: u64,
        /// Column of the value.
        column: u64,
        /// The value.
        value: f32,
    },
    /// A request that the given checkpoint cannot serve.
    #[error("{option}: {reason}")]
    Option {
        /// The option, as on the command line.
        option: &'static str,
        /// Why it cannot be done here.
        reason: String,
    },
    /// The knot's own rules were broken.
    #[error("{}", path.display())]
    Knot {
        /// The knot.
        path: PathBuf,
        /// Which rule.
        source: Box<gkq_v2::Error>,
    },
    /// The row file or its hash tree could not be written.
    #[error("{}", path.display())]
    Rows {
        /// The row file.
        path: PathBuf,
        /// The cause.
        source: Box<columnar_embed::Error>,
    },
    /// The tokenizer could not be brought into its compact form.
    #[error("tokenizer of `{}`", path.display())]
    Tokenizer {
        /// The checkpoint.
        path: PathBuf,
        /// The cause.
        source: compact_tokenizer::Error,
    },
    /// The server could not take its address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address as given.
        address: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The certificate and key do not make a TLS server.
    #[error("TLS from `{}` and `{}`: {reason}", cert.display(), key.display())]
    Tls {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
    /// The destination of a publication refused, or was not reached.
    #[error("{destination}: cannot {action} `{object}`: {reason}")]
    Store {
        /// The destination, without credentials.
        destination: String,
        /// The object's name in it.
        object: String,
        /// What was tried, as a verb: `read`, `write`, `complete the upload of`.
        action: &'static str,
        /// Whose fault it is.
        fault: StoreFault,
        /// The code and message of the reply, or the cause.
        reason: String,
    },
    /// Another process publishes to the same directory.
    #[error("{destination}: another publisher is at work there; try again when it is done")]
    Busy {
        /// The directory.
        destination: String,
    },
    /// A file that is to be published is not what the knot says.
    #[error("{}: {part} differs at offset {offset}: expected {expected}, found {found}", path.display())]
    Difference {
        /// The file.
        path: PathBuf,
        /// The part of it.
        part: String,
        /// Offset in the file.
        offset: u64,
        /// What the knot says.
        expected: String,
        /// What is there.
        found: String,
    },
    /// What was published is not read as it was sent.
    #[error(
        "{object}: {part} read back: expected {expected}, found {found}; delete it, there and in caches, \
         and publish again"
    )]
    ReadBack {
        /// The object's place.
        object: String,
        /// The part of it.
        part: String,
        /// What was sent.
        expected: String,
        /// What came back.
        found: String,
    },
    /// What was published could not be read.
    #[error("reading back what was published")]
    ReadBackFailed {
        /// What happened on the wire.
        source: Box<helix_transport::Error>,
    },
    /// Rows of what was published could not be read, or are not those of the row tree.
    #[error("reading back rows of {object}")]
    RowsBack {
        /// The row object.
        object: String,
        /// What happened.
        source: Box<columnar_embed::Error>,
    },
    /// The work was interrupted by a signal; nothing half-written stays.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An I/O error with its path; for `map_err`.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            path,
            action,
            source,
        }
    }

    /// A failed read of what was published; for `map_err`.
    pub(crate) fn read_back(source: helix_transport::Error) -> Self {
        Self::ReadBackFailed {
            source: Box::new(source),
        }
    }

    /// A broken rule of a knot with its path; for `map_err`.
    pub(crate) fn knot(path: &Path) -> impl Fn(gkq_v2::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Knot {
            path: path.clone(),
            source: Box::new(source),
        }
    }

    /// A fault of rows with the path of their file; for `map_err`.
    pub(crate) fn rows(path: &Path) -> impl Fn(columnar_embed::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Rows {
            path: path.clone(),
            source: Box::new(source),
        }
    }

    /// A defect in a file.
    pub(crate) fn malformed(
        path: &Path,
        part: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Malformed {
            path: path.to_path_buf(),
            part: part.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// A value this program does not know.
    pub(crate) fn unsupported(
        path: &Path,
        part: impl Into<String>,
        found: impl Into<String>,
        supported: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            path: path.to_path_buf(),
            part: part.into(),
            found: found.into(),
            supported: supported.into(),
        }
    }
}
