//! `tokenize`: the ids of a text under the tokenizer of a knot, a checkpoint or a compact tokenizer
//! file. It exists so that ids can be compared with other implementations', and to see what a text
//! costs; it adds no begin or end of sequence unless asked.

use std::path::{Path, PathBuf};

use compact_tokenizer::{AddSpecial, Tokenizer, layout};
use gkq_v2::SectionKind;

use crate::checkpoint::gguf::GgufFile;
use crate::checkpoint::{DataFile, plain_file};
use crate::knot_file::KnotFile;
use crate::{Error, tokenizer};

/// Bytes of a knot read at once.
const READ_BYTES: u64 = 4 << 20;

/// Flags of `tokenize`.
#[derive(Debug, clap::Args)]
pub struct TokenizeArgs {
    /// A knot, a GGUF file, a Hugging Face directory, a tokenizer.json or a compact tokenizer
    pub source: PathBuf,
    /// The text, UTF-8, taken to its last byte (at most 16 MiB)
    #[arg(long, value_name = "TEXT")]
    pub file: PathBuf,
    /// Add the ids that the tokenizer puts around a text
    #[arg(long)]
    pub special: bool,
    /// Print one JSON object: `{"ids": [..], "text_bytes": .., "vocabulary_len": ..}`
    #[arg(long)]
    pub json: bool,
}

/// The ids of a text as one line without its end: spaces between them, or a JSON object.
///
/// # Errors
/// What opening the source meets, [`Error::Malformed`] where the text is no UTF-8, [`Error::Io`]
/// where a file cannot be read.
pub fn run(arguments: &TokenizeArgs) -> Result<String, Error> {
    let tokenizer = open(&arguments.source)?;
    let path = &arguments.file;
    let bytes = plain_file::read(path, plain_file::MAX_TEXT_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let found = format!(
            "an invalid byte after {} valid ones",
            error.utf8_error().valid_up_to()
        );
        Error::malformed(path, "text", "UTF-8", found)
    })?;
    let special = if arguments.special {
        AddSpecial::Yes
    } else {
        AddSpecial::No
    };
    let ids = tokenizer.encode(&text, special);
    Ok(if arguments.json {
        let vocabulary_len = tokenizer.vocabulary_len();
        serde_json::json!({ "ids": ids, "text_bytes": text.len(), "vocabulary_len": vocabulary_len }).to_string()
    } else {
        ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
    })
}

/// The tokenizer of a source, told apart by content.
///
/// # Errors
/// The first thing that is wrong with the source; [`Error::NoCheckpoint`] for one that is none of
/// the known kinds.
pub fn open(source: &Path) -> Result<Tokenizer, Error> {
    let refused = |error| Error::Tokenizer {
        path: source.to_path_buf(),
        source: error,
    };
    let metadata = source.metadata().map_err(Error::io(source, "open"))?;
    let spec = if metadata.is_dir() {
        tokenizer::hugging_face::read(source)?
    } else {
        let file = DataFile::open(source)?;
        let mut start = [0; 8];
        let known = file.len_bytes.min(start.len() as u64);
        file.read_at(
            start
                .get_mut(..usize::try_from(known).unwrap_or(0))
                .unwrap_or_default(),
            0,
        )?;
        match &start {
            [b'G', b'G', b'U', b'F', ..] => tokenizer::gguf::read(&GgufFile::open(source)?)?,
            _ if start == layout::MAGIC => {
                let bytes = plain_file::read(source, plain_file::MAX_TOKENIZER_BYTES)?;
                return Tokenizer::from_bytes(bytes.into()).map_err(refused);
            }
            [0x89, b'G', b'K', b'Q', ..] => return from_knot(source),
            [b'{', ..] => {
                let config = source.with_file_name(tokenizer::hugging_face::CONFIG_FILE);
                let config = config.exists().then_some(config);
                tokenizer::hugging_face::read_files(source, config.as_deref())?
            }
            _ => {
                return Err(Error::NoCheckpoint {
                    path: source.to_path_buf(),
                    reason: "expected a knot, a GGUF file, a tokenizer.json, a compact tokenizer or a directory"
                        .to_owned(),
                });
            }
        }
    };
    Tokenizer::from_bytes(spec.to_bytes().map_err(refused)?.into()).map_err(refused)
}

fn from_knot(source: &Path) -> Result<Tokenizer, Error> {
    let file = KnotFile::open(source)?;
    let section = file
        .knot
        .section(SectionKind::Tokenizer)
        .ok_or_else(|| Error::malformed(source, "knot", "a tokenizer section", "none"))?;
    let mut bytes = Vec::new();
    file.chunks(&section.range, READ_BYTES, |chunk| {
        bytes.extend_from_slice(chunk);
        Ok(())
    })?;
    file.knot
        .verify_section(section, &bytes)
        .map_err(Error::knot(source))?;
    Tokenizer::from_bytes(bytes.into()).map_err(|error| Error::Tokenizer {
        path: source.to_path_buf(),
        source: error,
    })
}

#[cfg(test)]
mod tests {
    use compact_tokenizer::{Algorithm, TokenKind, TokenSpec, TokenizerSpec};

    use super::{TokenizeArgs, run};

    fn arguments(source: &[u8], text: &[u8], json: bool) -> (tempfile::TempDir, TokenizeArgs) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("source"), source).unwrap();
        std::fs::write(path("text"), text).unwrap();
        let arguments = TokenizeArgs {
            source: path("source"),
            file: path("text"),
            special: true,
            json,
        };
        (directory, arguments)
    }

    fn bytes() -> Vec<u8> {
        let mut spec = TokenizerSpec::new(Algorithm::ByteLevel);
        spec.tokens = (0..=255_u8)
            .map(|byte| TokenSpec::new([byte], TokenKind::Normal))
            .collect();
        spec.bos_id = Some(1);
        spec.add_bos = true;
        spec.to_bytes().unwrap()
    }

    #[test]
    fn ids_are_printed_as_a_line_or_as_json() {
        let (_kept, plain) = arguments(&bytes(), b"hi\n", false);
        assert_eq!(run(&plain).unwrap(), "1 104 105 10");
        let (_kept, json) = arguments(&bytes(), b"hi", true);
        assert_eq!(
            run(&json).unwrap(),
            r#"{"ids":[1,104,105],"text_bytes":2,"vocabulary_len":256}"#
        );
    }

    #[test]
    fn bad_input_is_named() {
        let error = |source: &[u8], text: &[u8]| {
            let (_kept, arguments) = arguments(source, text, false);
            run(&arguments).unwrap_err().to_string()
        };
        assert!(
            error(&bytes(), b"ab\xff")
                .contains("text: expected UTF-8, found an invalid byte after 2 valid ones")
        );
        assert!(error(b"what?", b"").contains("is no checkpoint: expected a knot, a GGUF file"));
        assert!(error(b"GGUF", b"").contains("version at byte 4: expected 4 bytes"));
        assert!(error(b"\x89GKQ\r\n\x1a\n", b"").contains("source"));
        assert!(error(&bytes()[..50], b"").contains("source"));
    }
}
