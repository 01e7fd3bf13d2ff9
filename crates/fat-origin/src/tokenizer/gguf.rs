//! The tokenizer that lies in a GGUF file's metadata, with the behaviour llama.cpp gives it:
//! `gpt2` (byte-level BPE) and `llama` (SentencePiece: merges follow from the scores). Other models,
//! and pre-tokenisers whose pattern is not known, are refused by name.

use std::collections::HashMap;

use compact_tokenizer::{
    AddedMatching, AddedToken, Algorithm, Merges, Normalise, PreTokenise, TokenKind, TokenSpec,
    TokenizerSpec, UnknownSymbol,
};

use super::bytes_of_alphabet;
use crate::Error;
use crate::checkpoint::gguf::{GgufArray, GgufFile};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
const PADDING: &str = "tokenizer.ggml.padding_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

/// Further keys that name an id at which a model stops.
const MORE_ENDS: [&str; 2] = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
/// Texts of tokens that end a turn or a document, which llama.cpp stops at whatever the keys say.
const END_TEXTS: [&str; 13] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "</s>",
];

/// The chat template, where the file has one.
///
/// # Errors
/// [`Error::Malformed`] where the key holds no string.
pub fn chat_template(file: &GgufFile) -> Result<Option<&str>, Error> {
    file.string(CHAT_TEMPLATE)
}

/// Describes the file's tokenizer.
///
/// # Errors
/// [`Error::Malformed`] naming the metadata key that is missing or contradicts another,
/// [`Error::Unsupported`] for a tokenizer model or pre-tokeniser that is not covered.
pub fn read(file: &GgufFile) -> Result<TokenizerSpec, Error> {
    let vocabulary = Vocabulary::read(file)?;
    let mut spec = match required(file, MODEL, file.string(MODEL)?)? {
        "gpt2" => byte_level(file, &vocabulary)?,
        "llama" => sentence_piece(file, &vocabulary)?,
        other => {
            return Err(Error::unsupported(
                file.path(),
                part(MODEL),
                other,
                "gpt2, llama",
            ));
        }
    };
    spec.added_matching = AddedMatching::LongestFirst;
    spec.added = added(file, &vocabulary)?;
    spec.pad_id = vocabulary.id(file, PADDING)?;
    spec.eos_ids = ends(file, &vocabulary, spec.eos_ids.first().copied())?;
    spec.add_bos = file.bool(ADD_BOS)?.unwrap_or(spec.add_bos) && spec.bos_id.is_some();
    spec.add_eos = file.bool(ADD_EOS)?.unwrap_or(false) && !spec.eos_ids.is_empty();
    Ok(spec)
}

/// The token texts and kinds, equally many.
struct Vocabulary<'a> {
    texts: &'a [String],
    kinds: Vec<TokenKind>,
}

impl<'a> Vocabulary<'a> {
    fn read(file: &'a GgufFile) -> Result<Self, Error> {
        let texts = match required(file, TOKENS, file.array(TOKENS)?)? {
            GgufArray::String(texts) if !texts.is_empty() => texts,
            other => return Err(wrong_array(file, TOKENS, "strings, at least one", other)),
        };
        let kinds = match file.array(TYPES)? {
            None => vec![TokenKind::Normal; texts.len()],
            Some(GgufArray::I32(codes)) if codes.len() == texts.len() => {
                let kinds = codes
                    .iter()
                    .enumerate()
                    .map(|(id, code)| kind(file, id, *code));
                kinds.collect::<Result<_, _>>()?
            }
            Some(other) => {
                let expected = format!("{} i32, one for each token", texts.len());
                return Err(wrong_array(file, TYPES, &expected, other));
            }
        };
        Ok(Self { texts, kinds })
    }

    /// An id under a key, checked against the vocabulary.
    fn id(&self, file: &GgufFile, key: &str) -> Result<Option<u32>, Error> {
        let Some(id) = file.unsigned(key)? else {
            return Ok(None);
        };
        u32::try_from(id)
            .ok()
            .filter(|&id| (id as usize) < self.texts.len())
            .map(Some)
            .ok_or_else(|| {
                let expected = format!("a token id below {}", self.texts.len());
                Error::malformed(file.path(), part(key), expected, id.to_string())
            })
    }

    fn entries(&self) -> impl Iterator<Item = (&'a str, TokenKind)> {
        self.texts
            .iter()
            .map(String::as_str)
            .zip(self.kinds.iter().copied())
    }
}

fn kind(file: &GgufFile, id: usize, code: i32) -> Result<TokenKind, Error> {
    match code {
        // llama.cpp takes an undefined type for a normal token.
        0 | 1 => Ok(TokenKind::Normal),
        2 => Ok(TokenKind::Unknown),
        3 => Ok(TokenKind::Control),
        4 => Ok(TokenKind::UserDefined),
        5 => Ok(TokenKind::Unused),
        6 => Ok(TokenKind::Byte),
        other => {
            let part = format!("{} entry {id}", part(TYPES));
            Err(Error::malformed(
                file.path(),
                part,
                "a type from 0 to 6",
                other.to_string(),
            ))
        }
    }
}

/// Control, unknown and user-defined tokens are found in the text before anything else.
fn added(file: &GgufFile, vocabulary: &Vocabulary<'_>) -> Result<Vec<AddedToken>, Error> {
    // llama.cpp strips white space after the markers of Phi-3, told by the model's name.
    let name = file
        .string("general.name")?
        .unwrap_or_default()
        .to_lowercase();
    let phi3 = name.contains("phi-3") || name.contains("phi3");
    Ok((0..)
        .zip(vocabulary.entries())
        .filter(|(_, (text, _))| !text.is_empty())
        .filter_map(|(id, (text, kind))| {
            let special = match kind {
                TokenKind::Control | TokenKind::Unknown => true,
                TokenKind::UserDefined => false,
                _ => return None,
            };
            let rstrip = phi3 && !matches!(text, "<unk>" | "<s>" | "<|endoftext|>");
            Some(AddedToken {
                special,
                rstrip,
                ..AddedToken::plain(id)
            })
        })
        .collect())
}

/// Every id that ends a text, `first` in front.
fn ends(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
    first: Option<u32>,
) -> Result<Vec<u32>, Error> {
    let mut ids: Vec<u32> = first.into_iter().collect();
    for key in MORE_ENDS {
        ids.extend(vocabulary.id(file, key)?);
    }
    ids.extend(
        (0..)
            .zip(vocabulary.entries())
            .filter_map(|(id, (text, kind))| {
                let marker = matches!(kind, TokenKind::Control | TokenKind::UserDefined);
                (marker && END_TEXTS.contains(&text)).then_some(id)
            }),
    );
    let mut seen = std::collections::HashSet::new();
    ids.retain(|id| seen.insert(*id));
    Ok(ids)
}

fn byte_level(file: &GgufFile, vocabulary: &Vocabulary<'_>) -> Result<TokenizerSpec, Error> {
    let mut spec = TokenizerSpec::new(Algorithm::ByteLevel);
    let name = required(file, PRE, file.string(PRE)?)?;
    let pre = PreTokeniser::named(name).ok_or_else(|| {
        let known = "gpt-2, phi-2, smollm, starcoder, refact, command-r, llama3, llama-v3, \
                     llama-bpe, falcon3, qwen2, deepseek-r1-qwen, gpt-4o, llama4";
        Error::unsupported(file.path(), part(PRE), name, known)
    })?;
    spec.pre_tokenise = pre.steps.to_vec();
    spec.ignore_merges = pre.llama3;
    spec.add_bos = pre.llama3;
    spec.unknown = UnknownSymbol::Barrier;
    spec.tokens = vocabulary
        .entries()
        .map(|(text, kind)| match (kind, bytes_of_alphabet(text)) {
            _ if text.is_empty() => TokenSpec::hole(),
            (TokenKind::Normal, Some(bytes)) => TokenSpec::new(bytes, TokenKind::Normal),
            (kind, _) => TokenSpec::added_only(text, kind),
        })
        .collect();
    spec.merges = Merges::Listed(listed_merges(file, vocabulary)?);
    spec.bos_id = vocabulary.id(file, BOS)?;
    spec.eos_ids = vocabulary.id(file, EOS)?.into_iter().collect();
    spec.unk_id = vocabulary.id(file, UNKNOWN)?;
    Ok(spec)
}

/// The merges by id. llama.cpp would keep a merge whose parts or result are no tokens; such a file
/// is refused, because those symbols have no ids.
fn listed_merges(file: &GgufFile, vocabulary: &Vocabulary<'_>) -> Result<Vec<[u32; 3]>, Error> {
    let lines = match required(file, MERGES, file.array(MERGES)?)? {
        GgufArray::String(lines) => lines,
        other => return Err(wrong_array(file, MERGES, "strings", other)),
    };
    let ids: HashMap<&str, u32> = (0..)
        .zip(vocabulary.texts)
        .map(|(id, text)| (text.as_str(), id))
        .collect();
    let mut merges = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        let part = || format!("{} entry {index}", part(MERGES));
        let first = line.chars().next().map_or(0, char::len_utf8);
        let split = line
            .get(first..)
            .and_then(|rest| rest.find(' '))
            .map(|space| first + space);
        let pair = split.and_then(|space| Some((line.get(..space)?, line.get(space + 1..)?)));
        let Some((left, right)) = pair else {
            return Err(Error::malformed(
                file.path(),
                part(),
                "two texts with a space between",
                format!("{line:?}"),
            ));
        };
        let id = |text: &str| {
            ids.get(text).copied().ok_or_else(|| {
                Error::malformed(
                    file.path(),
                    part(),
                    format!("`{text}` to be a token"),
                    format!("{line:?}"),
                )
            })
        };
        merges.push([id(left)?, id(right)?, id(&format!("{left}{right}"))?]);
    }
    Ok(merges)
}

/// What a name under `tokenizer.ggml.pre` stands for in llama.cpp.
struct PreTokeniser {
    steps: &'static [PreTokenise],
    llama3: bool,
}

impl PreTokeniser {
    fn named(name: &str) -> Option<Self> {
        let steps: &[PreTokenise] = match name {
            "gpt-2" | "phi-2" => &[PreTokenise::Gpt2],
            "smollm" | "starcoder" | "refact" | "command-r" => {
                &[PreTokenise::Digits, PreTokenise::Gpt2]
            }
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" => {
                return Some(Self {
                    steps: &[PreTokenise::Llama3],
                    llama3: true,
                });
            }
            "qwen2" | "deepseek-r1-qwen" => &[PreTokenise::Qwen2],
            "gpt-4o" | "llama4" => &[PreTokenise::Gpt4o],
            _ => return None,
        };
        Some(Self {
            steps,
            llama3: false,
        })
    }
}

fn sentence_piece(file: &GgufFile, vocabulary: &Vocabulary<'_>) -> Result<TokenizerSpec, Error> {
    let mut spec = TokenizerSpec::new(Algorithm::SentencePiece);
    let scores = match required(file, SCORES, file.array(SCORES)?)? {
        GgufArray::F32(scores) if scores.len() == vocabulary.texts.len() => scores,
        other => {
            let expected = format!("{} f32, one for each token", vocabulary.texts.len());
            return Err(wrong_array(file, SCORES, &expected, other));
        }
    };
    let prefix = file.bool(ADD_SPACE_PREFIX)?.unwrap_or(true);
    spec.merges = Merges::Scored(scores.clone());
    spec.normalise = vec![Normalise::EscapeSpaces];
    if prefix {
        spec.normalise.push(Normalise::Prepend);
    }
    spec.strip_leading_space = prefix;
    spec.tokens = vocabulary
        .entries()
        .map(|(text, kind)| {
            if text.is_empty() {
                TokenSpec::hole()
            } else {
                TokenSpec::new(text, kind)
            }
        })
        .collect();
    // What llama.cpp takes where the keys are absent.
    spec.add_bos = true;
    spec.bos_id = Some(vocabulary.id(file, BOS)?.unwrap_or(1));
    spec.eos_ids = vec![vocabulary.id(file, EOS)?.unwrap_or(2)];
    spec.unk_id = Some(vocabulary.id(file, UNKNOWN)?.unwrap_or(0));
    spec.unknown = UnknownSymbol::Each;
    Ok(spec)
}

fn part(key: &str) -> String {
    format!("metadata key `{key}`")
}

fn required<T>(file: &GgufFile, key: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| {
        Error::malformed(file.path(), part(key), "a tokenizer's value", "no such key")
    })
}

fn wrong_array(file: &GgufFile, key: &str, expected: &str, found: &GgufArray) -> Error {
    let found = format!("{} {}", found.len(), found.element_type());
    Error::malformed(file.path(), part(key), expected, found)
}

#[cfg(test)]
mod tests;
