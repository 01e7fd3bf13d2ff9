//! Everything that can go wrong in this crate, each variant one meaning with its facts in fields.
//! Not a place for I/O failures: a [`WeightSource`](crate::WeightSource) hands those in as `Source`.

use std::fmt;

/// Why a model could not be configured, loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not JSON, or a field has another JSON type than Hugging Face gives it.
    #[error("model config is not readable as config.json")]
    ConfigSyntax(#[source] serde_json::Error),

    /// A field of the config that this family needs is absent.
    #[error("model config lacks `{field}`")]
    ConfigMissing {
        /// Hugging Face field name.
        field: &'static str,
    },

    /// A field of the config has a value that cannot be right.
    #[error("model config: `{field}` must be {expected}, found {found}")]
    ConfigValue {
        /// Hugging Face field name, with its object where it is nested.
        field: &'static str,
        /// What the field may be.
        expected: String,
        /// What it is.
        found: String,
    },

    /// The config asks for something that this crate does not implement.
    #[error("model config: `{field}` = {found} is not supported, only {supported}")]
    Unsupported {
        /// Hugging Face field name.
        field: &'static str,
        /// The value found.
        found: String,
        /// The values that would do.
        supported: &'static str,
    },

    /// The source has no tensor of this name.
    #[error("tensor `{tensor}` is absent")]
    TensorMissing {
        /// Hugging Face tensor name.
        tensor: String,
    },

    /// A pass came to a stage (a layer; the final norm behind the last) that is not there.
    #[error("stage {stage} of the decoder is not loaded")]
    StageMissing {
        /// Which stage, from 0.
        stage: usize,
    },

    /// The source holds a tensor that the config says the model does not have.
    #[error("tensor `{tensor}` is present although `{field}` is false")]
    TensorUnexpected {
        /// Hugging Face tensor name.
        tensor: String,
        /// The config field that denies it.
        field: &'static str,
    },

    /// A tensor's shape is not the one that the config implies.
    #[error("tensor `{tensor}` has shape {found:?}, expected {expected:?}")]
    TensorShape {
        /// Hugging Face tensor name.
        tensor: String,
        /// The shape that follows from the config.
        expected: Vec<usize>,
        /// The shape found.
        found: Vec<usize>,
    },

    /// A tensor's bytes don't fill its shape.
    #[error("tensor `{tensor}` has {found} bytes, expected {expected}")]
    TensorBytes {
        /// Hugging Face tensor name.
        tensor: String,
        /// Bytes that shape and dtype imply.
        expected: u64,
        /// Bytes found.
        found: u64,
    },

    /// A tensor is stored in a type that the kernels don't have.
    #[error("tensor `{tensor}` is stored as {dtype}, for which there is no kernel")]
    TensorDtype {
        /// Hugging Face tensor name.
        tensor: String,
        /// Name of the stored type.
        dtype: &'static str,
    },

    /// The caller's weight source failed.
    #[error("tensor `{tensor}` could not be read")]
    Source {
        /// Hugging Face tensor name.
        tensor: String,
        /// What the source said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A kernel refused a matrix or an activation.
    #[error("{what}")]
    Kernel {
        /// The tensor or operation concerned.
        what: What,
        /// What the kernel said.
        source: low_bit_kernels::Error,
    },

    /// An embedding row has the wrong length for its dtype.
    #[error("embedding row {row} of {dtype} has {found} bytes, expected {expected}")]
    RowBytes {
        /// Index within the batch.
        row: usize,
        /// Name of the row's dtype.
        dtype: &'static str,
        /// Bytes that `hidden_size` values of this dtype take; 0 if they don't fill whole blocks.
        expected: u64,
        /// Bytes found.
        found: u64,
        /// What the kernel said.
        source: low_bit_kernels::Error,
    },

    /// A tensor passed in has another shape, dtype or device than documented.
    #[error("{argument} must be {expected}, found {found}")]
    Argument {
        /// Which argument.
        argument: &'static str,
        /// The documented form.
        expected: String,
        /// The form found.
        found: String,
    },

    /// The sequence would outgrow the cache.
    #[error("cache holds {length} of {capacity} positions, {added} more don't fit")]
    CacheFull {
        /// Positions the cache may hold.
        capacity: usize,
        /// Positions it holds.
        length: usize,
        /// Positions asked for.
        added: usize,
    },

    /// A roll-back asked for positions that the cache never had, or has already let go.
    #[error(
        "cache cannot return to {asked} positions: it holds {length}, of which {released} are released"
    )]
    CacheRollback {
        /// Length asked for.
        asked: usize,
        /// Positions the cache has seen.
        length: usize,
        /// Leading positions that sliding-window layers have let go.
        released: usize,
    },

    /// The cache was made for another model.
    #[error("cache has [layers, kv_heads, head_dim] {found:?}, this decoder needs {expected:?}")]
    CacheMismatch {
        /// What the decoder needs.
        expected: [usize; 3],
        /// What the cache has.
        found: [usize; 3],
    },

    /// candle refused an operation.
    #[error("tensor operation refused")]
    Tensor(#[from] candle_core::Error),
}

/// The subject of a kernel's refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A named tensor could not become a matrix.
    Tensor(String),
    /// An operation of the forward pass.
    Operation(&'static str),
}

impl fmt::Display for What {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(name) => write!(formatter, "tensor `{name}` is not usable as a matrix"),
            Self::Operation(name) => write!(formatter, "{name} refused its operands"),
        }
    }
}

impl Error {
    /// The kernels refused a named tensor.
    pub(crate) fn kernel(tensor: &str, source: low_bit_kernels::Error) -> Self {
        Self::Kernel {
            what: What::Tensor(tensor.to_owned()),
            source,
        }
    }

    /// The kernels refused an operation's operands.
    pub(crate) fn operation(name: &'static str, source: low_bit_kernels::Error) -> Self {
        Self::Kernel {
            what: What::Operation(name),
            source,
        }
    }

    /// A field whose value cannot be right.
    pub(crate) fn value(
        field: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Self {
        Self::ConfigValue {
            field,
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}
