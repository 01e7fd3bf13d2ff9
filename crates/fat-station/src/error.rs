//! Everything that can end a station's work, each with the thing it concerns and an exit code.
//! Texts never carry a query string or credentials: places are shown through `Locator`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Characters of an error's line; what is longer was not written for people.
const SHOWN_CHARS: usize = 2000;

/// What went wrong in the station.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Flags, files or a knot that cannot work together as asked.
    #[error("{message}")]
    Config {
        /// What cannot work, and what would.
        message: String,
    },
    /// One parameter of a request is out of its range or of a wrong type.
    #[error("{message}")]
    Request {
        /// The parameter's name in the API.
        parameter: &'static str,
        /// What was expected and found.
        message: String,
    },
    /// No knot was named and none was found beside the rows.
    #[error(
        "no knot found; give --knot, or put one beside the rows. tried:{}",
        list(tried)
    )]
    NoKnot {
        /// Every place that was tried, with what came of it.
        tried: Vec<String>,
    },
    /// A Hugging Face hub could not be asked about a repository.
    #[error("{reference} at {endpoint}: {advice}")]
    Hub {
        /// Repository, revision and path.
        reference: String,
        /// The hub's address.
        endpoint: String,
        /// What an operator can do.
        advice: &'static str,
        /// What happened on the wire.
        source: Box<helix_transport::Error>,
    },
    /// A knot's bytes are not a knot this station can read.
    #[error("knot {object}")]
    Knot {
        /// The knot's place.
        object: String,
        /// What is wrong with it.
        source: Box<gkq_v2::Error>,
    },
    /// A read from an origin or file did not succeed.
    #[error("reading {object}")]
    Origin {
        /// The object's place.
        object: String,
        /// What happened on the wire.
        source: Box<helix_transport::Error>,
    },
    /// The row store could not answer.
    #[error("embedding rows of {object}")]
    Rows {
        /// The row file's place.
        object: String,
        /// What happened.
        source: Box<columnar_embed::Error>,
    },
    /// A block's bytes do not match the digest in the knot's table.
    #[error("block {block} of {object} has BLAKE3 {found}, its table says {expected}")]
    Digest {
        /// The knot's place.
        object: String,
        /// The block's name.
        block: String,
        /// Digest of the table, hexadecimal.
        expected: String,
        /// Digest of the bytes, hexadecimal.
        found: String,
    },
    /// An object is not the one that the manifest names.
    #[error("{object}: {fact} is {found}, manifest {manifest} says {expected}")]
    Published {
        /// The manifest's place.
        manifest: String,
        /// The object's place.
        object: String,
        /// What differs.
        fact: &'static str,
        /// What the manifest says.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Neither the row store nor the knot has a tensor.
    #[error("tensor {tensor} can be had from neither place: row store: {store}; knot: {knot}")]
    NoWay {
        /// The tensor's name.
        tensor: String,
        /// Why the row store does not have it.
        store: String,
        /// Why the knot does not have it.
        knot: String,
    },
    /// The model could not be built or run.
    #[error("model")]
    Model(#[source] Box<decoder_models::Error>),
    /// The head could not be loaded; every request that waits for it gets this.
    #[error("loading the head")]
    Head {
        /// What kept it.
        source: std::sync::Arc<Error>,
    },
    /// The layers could not be loaded; every request that waits for them gets this.
    #[error("loading the layers")]
    Layers {
        /// What kept them.
        source: std::sync::Arc<Error>,
    },
    /// The tokenizer section is damaged.
    #[error("tokenizer of {object}")]
    Tokenizer {
        /// The knot's place.
        object: String,
        /// What is wrong with it.
        source: Box<compact_tokenizer::Error>,
    },
    /// The chat template does not parse, or refused the messages.
    #[error("chat template: {message}")]
    Template {
        /// The template engine's account, with the line.
        message: String,
    },
    /// The prompt leaves no room for a single token.
    #[error("the prompt has {prompt_tokens} tokens, the context holds {context}")]
    ContextOverflow {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens that the context holds, prompt and answer together.
        context: usize,
    },
    /// The prompt is so long that its tokens are not counted.
    #[error(
        "the prompt has {prompt_bytes} bytes, a context of {context} tokens takes {limit_bytes} at most"
    )]
    PromptLength {
        /// Bytes of the prompt.
        prompt_bytes: usize,
        /// Most bytes that are tokenised.
        limit_bytes: usize,
        /// Tokens that the context holds, prompt and answer together.
        context: usize,
    },
    /// A token id that the model does not have.
    #[error("token id {id} is outside the model's vocabulary of {vocabulary} tokens")]
    TokenId {
        /// The id.
        id: u32,
        /// Number of rows of the vocabulary matrix.
        vocabulary: u64,
    },
    /// A logit that nothing can be chosen by.
    #[error("logit {index} is {value}: the model's numbers are broken")]
    Logits {
        /// Position in the vocabulary.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A file of this machine could not be read or written.
    #[error("{}", crate::locator::redacted(&path.to_string_lossy()))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The address could not be listened on, or the server's socket failed.
    #[error("listening on {address}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The result could not be written.
    #[error("writing the result")]
    Output(#[source] std::io::Error),
    /// A thread of the station ended without an answer.
    #[error("{what} ended without an answer")]
    Lost {
        /// The work that was lost.
        what: &'static str,
    },
    /// The work was asked to end.
    #[error("interrupted")]
    Cancelled,
}

impl From<decoder_models::Error> for Error {
    fn from(source: decoder_models::Error) -> Self {
        Self::Model(Box::new(source))
    }
}

impl Error {
    pub(crate) fn knot(object: &(impl ToString + ?Sized), source: gkq_v2::Error) -> Self {
        Self::Knot {
            object: object.to_string(),
            source: Box::new(source),
        }
    }

    pub(crate) fn origin(
        object: &(impl ToString + ?Sized),
        source: helix_transport::Error,
    ) -> Self {
        Self::Origin {
            object: object.to_string(),
            source: Box::new(source),
        }
    }

    pub(crate) fn rows(object: &(impl ToString + ?Sized), source: columnar_embed::Error) -> Self {
        Self::Rows {
            object: object.to_string(),
            source: Box::new(source),
        }
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config {
            message: message.into(),
        }
    }

    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }

    /// The process's exit code: the list in `--help`.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.class().code())
    }

    /// What kind of failure it is, for the exit code and the API's status.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Config { .. }
            | Self::Request { .. }
            | Self::NoKnot { .. }
            | Self::NoWay { .. }
            | Self::Tokenizer { .. }
            | Self::Template { .. }
            | Self::ContextOverflow { .. }
            | Self::PromptLength { .. }
            | Self::TokenId { .. } => FailureClass::Config,
            Self::Knot { source, .. } => knot_class(source),
            Self::Model(source) => model_class(source),
            Self::Digest { .. } | Self::Published { .. } => FailureClass::Integrity,
            // A directory or a device was named where a file belongs.
            Self::File { source, .. } if is_no_file(source) => FailureClass::Config,
            Self::Origin { source, .. } | Self::Hub { source, .. } => {
                transport_class(source.kind())
            }
            Self::Rows { source, .. } => transport_class(source.kind()),
            Self::Head { source } | Self::Layers { source } => source.class(),
            _ => FailureClass::Other,
        }
    }

    /// The error and its causes in one line. Each layer names the object it concerns, for those that
    /// hold it alone; here it is named once.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let object = self.object();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let full = error.to_string();
            let after = object.and_then(|object| full.strip_prefix(object));
            match after.map(|rest| rest.strip_prefix(": ").unwrap_or(rest)) {
                // What an inner layer adds to the object it has in common with the outer one.
                Some("" | " could not be read") => {}
                Some(rest) => {
                    text.push_str(": ");
                    text.push_str(rest.trim_start());
                }
                None => {
                    text.push_str(": ");
                    text.push_str(&full);
                }
            }
            cause = error.source();
        }
        text
    }

    /// [`Error::chain`] for a terminal: what came from elsewhere cannot steer it, begin a line of its own
    /// or fill it.
    #[must_use]
    pub fn line(&self) -> String {
        let chain = self.chain();
        match self {
            // The line breaks are ours: each place was shown on its own.
            Self::NoKnot { .. } => chain.split('\n').map(shown).collect::<Vec<_>>().join("\n"),
            _ => shown(&chain),
        }
    }

    /// The object this error's own text names, where its causes may name it again.
    fn object(&self) -> Option<&str> {
        match self {
            Self::Origin { object, .. } | Self::Rows { object, .. } => Some(object),
            _ => None,
        }
    }
}

/// Kind of failure, as far as a caller acts on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// None of the others.
    Other,
    /// Flags, files or knots that cannot work as asked.
    Config,
    /// The object is missing or the wire failed.
    Unreachable,
    /// Bytes that do not match.
    Integrity,
    /// The origin refused the credentials.
    Auth,
}

impl FailureClass {
    fn code(self) -> u8 {
        match self {
            Self::Other => 1,
            Self::Config => 64,
            Self::Unreachable => 65,
            Self::Integrity => 66,
            Self::Auth => 67,
        }
    }
}

/// An object that does not even begin as a knot is the wrong object, not a damaged one.
fn knot_class(error: &gkq_v2::Error) -> FailureClass {
    match (error, error.kind()) {
        (gkq_v2::Error::NotAKnot { .. }, _) => FailureClass::Config,
        (_, gkq_v2::ErrorKind::Corrupt) => FailureClass::Integrity,
        _ => FailureClass::Config,
    }
}

/// A config or tensors that do not go together; the rest is of the computation.
fn model_class(error: &decoder_models::Error) -> FailureClass {
    use decoder_models::Error;
    match error {
        Error::ConfigSyntax(_)
        | Error::ConfigMissing { .. }
        | Error::ConfigValue { .. }
        | Error::Unsupported { .. }
        | Error::TensorMissing { .. }
        | Error::TensorUnexpected { .. }
        | Error::TensorShape { .. }
        | Error::TensorBytes { .. }
        | Error::TensorDtype { .. } => FailureClass::Config,
        _ => FailureClass::Other,
    }
}

fn is_no_file(source: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        source.kind(),
        ErrorKind::IsADirectory | ErrorKind::InvalidInput | ErrorKind::NotADirectory
    )
}

fn transport_class(kind: helix_transport::ErrorKind) -> FailureClass {
    use helix_transport::ErrorKind;
    match kind {
        ErrorKind::Transient | ErrorKind::NotFound => FailureClass::Unreachable,
        ErrorKind::Changed | ErrorKind::Corrupt => FailureClass::Integrity,
        ErrorKind::Auth => FailureClass::Auth,
        ErrorKind::Unsupported | ErrorKind::Config => FailureClass::Config,
        _ => FailureClass::Other,
    }
}

fn list(tried: &[String]) -> String {
    let places = tried.iter().map(|place| format!("\n  {}", shown(place)));
    places.collect()
}

/// `text` with its control characters escaped, cut where it is too long to be read.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(SHOWN_CHARS));
    for (at, character) in text.chars().enumerate() {
        if at == SHOWN_CHARS {
            shown.push('\u{2026}');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_once() {
        let object = "http://h/m.rows";
        let ignored = || helix_transport::Error::RangeIgnored {
            object: object.to_owned(),
            range: helix_transport::ByteRange::new(64, 128).unwrap(),
            offered_bytes: Some(640),
        };
        let said = "range 64..128 ignored: the origin offers the whole object instead; serve it from one \
                    that answers ranges with 206";
        let read = columnar_embed::Error::Read {
            object: object.to_owned(),
            source: std::sync::Arc::new(ignored()),
        };
        assert_eq!(
            Error::rows(object, read).chain(),
            format!("embedding rows of {object}: {said}")
        );
        let tried = helix_transport::Error::GaveUp {
            object: object.to_owned(),
            attempts: 3,
            reason: helix_transport::error::GaveUp::Attempts,
            last: Box::new(ignored()),
        };
        assert_eq!(
            Error::origin(object, tried).chain(),
            format!("reading {object}: gave up after 3 attempts: attempts used up: {said}")
        );
        // Another object's name stays: a shard, or where a redirect led.
        assert_eq!(
            Error::origin("http://h/index", ignored()).chain(),
            format!("reading http://h/index: {object}: {said}")
        );
    }

    #[test]
    fn what_a_server_says_does_not_steer_a_terminal() {
        let evil = "\u{1b}]0;owned\u{7}\nfat-station: all is well\u{9b}é";
        let said = r"\u{1b}]0;owned\u{7}\nfat-station: all is well\u{9b}é";
        assert_eq!(Error::config(evil).line(), said);
        let tried = vec![evil.to_owned(), "b".to_owned()];
        let line = Error::NoKnot { tried }.line();
        assert!(line.ends_with(&format!("\n  {said}\n  b")), "{line}");
        let long = Error::config("é".repeat(2001)).line();
        assert_eq!(long, "é".repeat(2000) + "…");
        assert_eq!(Error::config("é".repeat(2000)).line(), "é".repeat(2000));
    }

    #[test]
    fn a_damaged_knot_is_not_a_wrong_one() {
        let class = |source| Error::knot("k", source).class();
        let damaged = gkq_v2::Error::Truncated {
            needed_bytes: 2,
            found_bytes: 1,
        };
        assert_eq!(class(damaged), FailureClass::Integrity);
        let newer = gkq_v2::Error::UnsupportedVersion {
            found: 3,
            supported: 2,
        };
        assert_eq!(class(newer), FailureClass::Config);
        let other = gkq_v2::Error::NotAKnot { found: vec![0; 8] };
        assert_eq!(class(other), FailureClass::Config);
        let config = decoder_models::DecoderConfig::from_json("{").unwrap_err();
        assert_eq!(Error::from(config).class(), FailureClass::Config);
        let directory = std::fs::read("/").map_err(Error::file(Path::new("/")));
        assert_eq!(directory.unwrap_err().class(), FailureClass::Config);
    }
}
