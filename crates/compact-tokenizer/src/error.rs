//! The one error type of this crate: what a tokenizer file or description gets wrong. Encoding and
//! decoding have no errors: every text has ids, every id list has a text.

/// Why a tokenizer file was refused, or could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin like a compact tokenizer.
    #[error("not a compact tokenizer: expected magic {expected:02x?}, found {found:02x?}")]
    Magic {
        /// The magic of the format.
        expected: [u8; 8],
        /// The first bytes, at most eight.
        found: Vec<u8>,
    },
    /// A version of the format that this reader does not know.
    #[error("compact tokenizer version {found} is not supported (supported: {supported})")]
    Version {
        /// The version this reader knows.
        supported: u32,
        /// The version of the file.
        found: u32,
    },
    /// The file ends too early, or goes on after its end.
    #[error("compact tokenizer is {found} bytes long, its header asks for {expected}")]
    Length {
        /// Length that the header's counts add up to.
        expected: u64,
        /// Length of the bytes given.
        found: u64,
    },
    /// A field or table entry breaks a rule of the format.
    #[error("compact tokenizer: {part}: expected {expected}, found {found}")]
    Malformed {
        /// The field, or the table and the index in it.
        part: String,
        /// What the format asks for.
        expected: String,
        /// What the file holds.
        found: String,
    },
    /// A description that no file can hold, or that no text could be encoded with.
    #[error("tokenizer description: {part}: expected {expected}, found {found}")]
    Description {
        /// The field of the description.
        part: String,
        /// What is asked of it.
        expected: String,
        /// What it holds.
        found: String,
    },
}

impl Error {
    pub(crate) fn malformed(
        part: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<Found>,
    ) -> Self {
        Self::Malformed {
            part: part.into(),
            expected: expected.into(),
            found: found.into().0,
        }
    }

    pub(crate) fn description(
        part: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<Found>,
    ) -> Self {
        Self::Description {
            part: part.into(),
            expected: expected.into(),
            found: found.into().0,
        }
    }
}

/// What was found, ready for the message.
pub(crate) struct Found(String);

impl From<String> for Found {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Found {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

macro_rules! found_number {
    ($($number:ty),*) => {$(
        impl From<$number> for Found {
            fn from(number: $number) -> Self {
                Self(number.to_string())
            }
        }
    )*};
}
found_number!(u8, u32, usize);
