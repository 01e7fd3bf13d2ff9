//! The tokenizer of a Hugging Face directory: `tokenizer.json`, with `tokenizer_config.json` for
//! the ids that frame a text and for added tokens that the former lacks. Its pipeline is recognised
//! part by part (`hugging_face/pipeline.rs`); a part that is not known is refused by name.
//!
//! `truncation` and `padding` are not the tokenizer's: they are left out, as transformers does.

mod pipeline;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use compact_tokenizer::{
    AddedToken, Algorithm, Merges, TokenKind, TokenSpec, TokenizerSpec, UnknownSymbol,
};
use serde::Deserialize;
use serde_json::Value;

use super::{bytes_of_alphabet, is_byte_token};
use crate::Error;
use crate::checkpoint::plain_file;

/// File names as Hugging Face has them.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// The configuration beside it.
pub const CONFIG_FILE: &str = "tokenizer_config.json";

/// Ids may leave holes, but not so many that a small file asks for a huge vocabulary.
const MOST_HOLES: usize = 65_536;

#[derive(Deserialize)]
struct TokenizerJson {
    #[serde(default)]
    added_tokens: Vec<AddedTokenJson>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    model: ModelJson,
}

#[derive(Clone, Deserialize)]
struct AddedTokenJson {
    #[serde(default)]
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct ModelTypeJson {
    model: TypeJson,
}

#[derive(Deserialize)]
struct TypeJson {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelJson {
    #[serde(rename = "type")]
    _kind: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<MergeJson>,
    unk_token: Option<String>,
    dropout: Option<f32>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MergeJson {
    Line(String),
    Pair([String; 2]),
}

#[derive(Default, Deserialize)]
struct ConfigJson {
    bos_token: Option<NamedToken>,
    eos_token: Option<NamedToken>,
    pad_token: Option<NamedToken>,
    unk_token: Option<NamedToken>,
    #[serde(default)]
    added_tokens_decoder: BTreeMap<u32, AddedTokenJson>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NamedToken {
    Text(String),
    Token { content: String },
}

impl NamedToken {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Token { content: text } => text,
        }
    }
}

/// Describes the tokenizer of a directory.
///
/// # Errors
/// [`Error::Io`] where `tokenizer.json` cannot be read, [`Error::Malformed`] where a file is no
/// JSON of the expected shape or contradicts itself, [`Error::Unsupported`] naming the part of the
/// pipeline that the compact form does not have.
pub fn read(directory: &Path) -> Result<TokenizerSpec, Error> {
    let config = directory.join(CONFIG_FILE);
    let config = config.exists().then_some(config);
    read_files(&directory.join(TOKENIZER_FILE), config.as_deref())
}

/// As [`read`], for files that lie elsewhere.
///
/// # Errors
/// As [`read`].
pub fn read_files(tokenizer: &Path, config: Option<&Path>) -> Result<TokenizerSpec, Error> {
    let text = plain_file::read(tokenizer, plain_file::MAX_TOKENIZER_BYTES)?;
    let kind = parse::<ModelTypeJson>(tokenizer, &text)?.model.kind;
    if kind.as_deref().is_some_and(|kind| kind != "BPE") {
        let found = kind.unwrap_or_default();
        return Err(Error::unsupported(tokenizer, "model type", found, "BPE"));
    }
    let json: TokenizerJson = parse(tokenizer, &text)?;
    drop(text);
    let config = match config {
        None => ConfigJson::default(),
        Some(path) => parse(path, &plain_file::read(path, plain_file::MAX_TEXT_BYTES)?)?,
    };
    Reader {
        path: tokenizer,
        json,
        config,
    }
    .spec()
}

fn parse<'a, T: Deserialize<'a>>(path: &Path, text: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| {
        let part = format!("line {}, column {}", error.line(), error.column());
        Error::malformed(path, part, "a tokenizer's JSON", error.to_string())
    })
}

struct Reader<'a> {
    path: &'a Path,
    json: TokenizerJson,
    config: ConfigJson,
}

impl Reader<'_> {
    fn spec(&self) -> Result<TokenizerSpec, Error> {
        self.check_model()?;
        let added = self.added()?;
        let mut spec = pipeline::read(self.path, &self.json)?;
        let pipeline_adds_bos = spec.bos_id;
        spec.tokens = self.tokens(spec.algorithm, &added)?;
        spec.merges = Merges::Listed(self.merges()?);
        spec.ignore_merges = self.json.model.ignore_merges;
        spec.unknown = match (&self.json.model.unk_token, self.json.model.fuse_unk) {
            (None, _) => UnknownSymbol::Skip,
            (Some(_), false) => UnknownSymbol::Each,
            (Some(_), true) => UnknownSymbol::Fused,
        };
        let id = |name: &Option<NamedToken>| self.id(name.as_ref().map(NamedToken::text), &added);
        spec.bos_id = pipeline_adds_bos.or(id(&self.config.bos_token)?);
        spec.pad_id = id(&self.config.pad_token)?;
        spec.unk_id = match &self.json.model.unk_token {
            Some(text) => self.id(Some(text), &added)?,
            None => id(&self.config.unk_token)?,
        };
        if let Some(eos) = id(&self.config.eos_token)?
            && !spec.eos_ids.contains(&eos)
        {
            spec.eos_ids.push(eos);
        }
        pipeline::check_added(self.path, &spec, added.values())?;
        spec.added = added
            .values()
            .map(|token| AddedToken {
                id: token.id,
                special: token.special,
                lstrip: token.lstrip,
                rstrip: token.rstrip,
                normalized: token.normalized,
                single_word: token.single_word,
            })
            .collect();
        Ok(spec)
    }

    /// Fields of the model that change its ids in ways the compact form does not have.
    fn check_model(&self) -> Result<(), Error> {
        let model = &self.json.model;
        let refuse = |part: &str, found: &dyn std::fmt::Debug| {
            Err(Error::unsupported(
                self.path,
                format!("model.{part}"),
                format!("{found:?}"),
                "none",
            ))
        };
        if let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0) {
            return refuse("dropout", &dropout);
        }
        let affixes = [
            (
                "continuing_subword_prefix",
                &model.continuing_subword_prefix,
            ),
            ("end_of_word_suffix", &model.end_of_word_suffix),
        ];
        for (part, affix) in affixes {
            if let Some(text) = affix.as_ref().filter(|text| !text.is_empty()) {
                return refuse(part, text);
            }
        }
        Ok(())
    }

    /// Added tokens by id: those of `tokenizer.json`, then what only the configuration has.
    fn added(&self) -> Result<BTreeMap<u32, AddedTokenJson>, Error> {
        let mut added = BTreeMap::new();
        let configured = self.config.added_tokens_decoder.iter().map(|(&id, token)| {
            let mut token = token.clone();
            token.id = id;
            token
        });
        for token in self.json.added_tokens.iter().cloned().chain(configured) {
            let part = || format!("added token {}", token.id);
            if token.content.is_empty() {
                return Err(Error::malformed(
                    self.path,
                    part(),
                    "a text",
                    "an empty one",
                ));
            }
            let ordinary = self.json.model.vocab.get(&token.content);
            if let Some(id) = ordinary.filter(|id| **id != token.id) {
                let found = format!("`{}`, which the vocabulary has as {id}", token.content);
                return Err(Error::malformed(
                    self.path,
                    part(),
                    "the vocabulary's id",
                    found,
                ));
            }
            let known = added.entry(token.id).or_insert_with(|| token.clone());
            if known.content != token.content {
                let expected = format!("`{}` in both places", known.content);
                return Err(Error::malformed(
                    self.path,
                    part(),
                    expected,
                    format!("`{}`", token.content),
                ));
            }
        }
        Ok(added)
    }

    fn tokens(
        &self,
        algorithm: Algorithm,
        added: &BTreeMap<u32, AddedTokenJson>,
    ) -> Result<Vec<TokenSpec>, Error> {
        let vocab = &self.json.model.vocab;
        let count = vocab.len() + added.len();
        let largest = vocab
            .values()
            .copied()
            .chain(added.keys().copied())
            .max()
            .unwrap_or(0);
        if largest as usize > count.saturating_mul(2) + MOST_HOLES {
            let expected = format!("ids near the {count} tokens");
            return Err(Error::malformed(
                self.path,
                "largest token id",
                expected,
                largest.to_string(),
            ));
        }
        let mut tokens = vec![TokenSpec::hole(); largest as usize + 1];
        for (text, &id) in vocab {
            let added = added.get(&id);
            let token = self.token(algorithm, text, id, added)?;
            let Some(slot) = tokens.get_mut(id as usize) else {
                continue;
            };
            if slot.kind != TokenKind::Hole {
                let part = format!("token id {id}");
                return Err(Error::malformed(
                    self.path,
                    part,
                    "one text",
                    format!("another, `{text}`"),
                ));
            }
            *slot = token;
        }
        for (&id, token) in added {
            let Some(slot) = tokens.get_mut(id as usize) else {
                continue;
            };
            let kind = added_kind(token);
            if slot.kind == TokenKind::Hole {
                *slot = TokenSpec::added_only(token.content.as_str(), kind);
            } else if slot.text == token.content.as_bytes() {
                slot.kind = kind;
            } else {
                let expected = format!("`{}`, the added token's text", token.content);
                let found = String::from_utf8_lossy(&slot.text).into_owned();
                return Err(Error::malformed(
                    self.path,
                    format!("token id {id}"),
                    expected,
                    found,
                ));
            }
        }
        Ok(tokens)
    }

    fn token(
        &self,
        algorithm: Algorithm,
        text: &str,
        id: u32,
        added: Option<&AddedTokenJson>,
    ) -> Result<TokenSpec, Error> {
        if text.is_empty() {
            let part = format!("token id {id}");
            return Err(Error::malformed(self.path, part, "a text", "an empty one"));
        }
        Ok(match algorithm {
            Algorithm::ByteLevel => match bytes_of_alphabet(text) {
                Some(bytes) => TokenSpec::new(bytes, TokenKind::Normal),
                // No word is ever spelt with it: only as an added token can it be found.
                None => TokenSpec::added_only(text, TokenKind::Normal),
            },
            Algorithm::SentencePiece if added.is_none() && is_byte_token(text) => {
                TokenSpec::new(text, TokenKind::Byte)
            }
            Algorithm::SentencePiece => TokenSpec::new(text, TokenKind::Normal),
        })
    }

    /// The merges by id; of a pair listed twice the later counts, as in the reference.
    fn merges(&self) -> Result<Vec<[u32; 3]>, Error> {
        let model = &self.json.model;
        let mut merges = Vec::with_capacity(model.merges.len());
        let mut places: HashMap<[u32; 2], usize> = HashMap::with_capacity(model.merges.len());
        for (index, merge) in model.merges.iter().enumerate() {
            let part = || format!("merge {index}");
            let (left, right) = match merge {
                MergeJson::Pair([left, right]) => (left.as_str(), right.as_str()),
                MergeJson::Line(line) => line
                    .split_once(' ')
                    .filter(|(_, right)| !right.contains(' '))
                    .ok_or_else(|| {
                        let expected = "two texts with one space between";
                        Error::malformed(self.path, part(), expected, format!("{line:?}"))
                    })?,
            };
            let id = |text: &str| {
                model.vocab.get(text).copied().ok_or_else(|| {
                    let expected = format!("`{text}` to be in the vocabulary");
                    Error::malformed(self.path, part(), expected, "no such token")
                })
            };
            let (left, right, merged) = (id(left)?, id(right)?, id(&format!("{left}{right}"))?);
            if let Some(earlier) = places.insert([left, right], index)
                && let Some(slot) = merges.get_mut(earlier)
            {
                *slot = None;
            }
            merges.push(Some([left, right, merged]));
        }
        Ok(merges.into_iter().flatten().collect())
    }

    /// The id of a token that a configuration names.
    fn id(
        &self,
        text: Option<&str>,
        added: &BTreeMap<u32, AddedTokenJson>,
    ) -> Result<Option<u32>, Error> {
        let Some(text) = text else { return Ok(None) };
        added
            .values()
            .find(|token| token.content == text)
            .map(|token| token.id)
            .or_else(|| self.json.model.vocab.get(text).copied())
            .map(Some)
            .ok_or_else(|| {
                let part = format!("special token `{text}`");
                Error::malformed(self.path, part, "a token of that text", "none")
            })
    }
}

fn added_kind(token: &AddedTokenJson) -> TokenKind {
    if token.special {
        TokenKind::Control
    } else {
        TokenKind::UserDefined
    }
}

#[cfg(test)]
mod tests;
