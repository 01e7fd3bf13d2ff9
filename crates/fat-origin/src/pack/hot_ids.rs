//! Which rows are asked for most: token ids in the order of their frequency in a text, under the
//! model's own tokenizer. Not measured on anybody's prompts, and it need not be: a list that is wrong
//! costs a station rows that it would have fetched anyway.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use compact_tokenizer::{AddSpecial, Tokenizer};

use crate::Error;

/// Most ids of a list: 128 KiB in the knot, and four times the rows that a station keeps in memory.
const MAX_IDS: usize = 32_768;

/// Most bytes of a file that says which ids are hot.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The text that is counted where nobody gives another; see its README.
const CORPUS: &str = include_str!("../../../../fixtures/hot-ids/corpus.txt");

/// Where the list of hot ids comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HotIds {
    /// Counted in a text that this program carries.
    #[default]
    Auto,
    /// No list.
    Off,
    /// A JSON array of ids, hottest first, or a text whose tokens are counted.
    File(PathBuf),
}

impl std::str::FromStr for HotIds {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::Off,
            path => Self::File(path.into()),
        })
    }
}

/// Every row of a matrix of `rows` rows once: ids by their number of occurrences in `text`, then
/// those that do not occur, by id. Vocabularies of merges number frequent tokens before rare ones, so
/// the id is the best guess where the text says nothing.
fn rank(tokenizer: &Tokenizer, rows: u64, text: &str) -> Vec<u32> {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    let mut counts = vec![0_u64; rows as usize];
    for id in tokenizer.encode(text, AddSpecial::Yes) {
        if let Some(count) = counts.get_mut(id as usize) {
            *count += 1;
        }
    }
    let mut ids: Vec<u32> = (0..rows).collect();
    // Stable: ids of equal counts stay ascending.
    ids.sort_by_key(|id| std::cmp::Reverse(counts.get(*id as usize).copied().unwrap_or(0)));
    ids
}

/// The list that goes into the knot, at most 32,768 ids; empty for none. Rows beyond the vocabulary
/// are padding that no text asks for.
pub(super) fn list(choice: &HotIds, tokenizer: &[u8], rows: u64) -> Result<Vec<u32>, Error> {
    let counted = |text: &str| {
        let tokenizer = open(tokenizer)?;
        let rows = rows.min(u64::from(tokenizer.vocabulary_len()));
        Ok(rank(&tokenizer, rows, text))
    };
    let mut ids = match choice {
        HotIds::Off => Vec::new(),
        HotIds::Auto => counted(CORPUS)?,
        HotIds::File(path) => {
            let text = read(path)?;
            if text.trim_start().starts_with('[') {
                given(path, &text, rows)?
            } else {
                counted(&text)?
            }
        }
    };
    ids.truncate(MAX_IDS);
    Ok(ids)
}

/// Ids as a user wrote them.
fn given(path: &Path, text: &str, rows: u64) -> Result<Vec<u32>, Error> {
    let refused = |reason: String| Error::Option {
        option: "--hot-ids",
        reason: format!("{}: {reason}", path.display()),
    };
    let ids: Vec<u32> = serde_json::from_str(text)
        .map_err(|error| refused(format!("expected a JSON array of token ids: {error}")))?;
    let mut seen = std::collections::HashSet::with_capacity(ids.len());
    for id in &ids {
        if u64::from(*id) >= rows {
            return Err(refused(format!(
                "id {id} is no row of a matrix of {rows} rows"
            )));
        }
        if !seen.insert(*id) {
            return Err(refused(format!("id {id} stands in the list twice")));
        }
    }
    if ids.is_empty() {
        return Err(refused(
            "the list is empty; --hot-ids none makes none".to_owned(),
        ));
    }
    Ok(ids)
}

fn read(path: &Path) -> Result<String, Error> {
    let refused = |reason: String| Error::Option {
        option: "--hot-ids",
        reason: format!("{}: {reason}", path.display()),
    };
    let failed = |error: std::io::Error| refused(error.to_string());
    // Opening a FIFO waits for a writer, hence the look before; the second look is at what was opened.
    let regular = |found: &Metadata| match found.is_file() {
        true => Ok(()),
        false => Err(refused("not a regular file".to_owned())),
    };
    regular(&path.metadata().map_err(failed)?)?;
    let file = File::open(path).map_err(failed)?;
    regular(&file.metadata().map_err(failed)?)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(refused(format!("more than {MAX_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        refused(format!("byte {valid} is not UTF-8"))
    })
}

fn open(tokenizer: &[u8]) -> Result<Tokenizer, Error> {
    Tokenizer::from_bytes(Bytes::copy_from_slice(tokenizer)).map_err(|source| Error::Tokenizer {
        path: PathBuf::from("the packed tokenizer"),
        source,
    })
}
