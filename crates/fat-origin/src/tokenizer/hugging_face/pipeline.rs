//! Recognises the parts of a `tokenizer.json` pipeline: normaliser, pre-tokeniser, post-processor
//! and decoder. Each known part becomes a step of the compact form; anything else is an error that
//! names it.

use std::path::Path;

use compact_tokenizer::{Algorithm, Normalise, PreTokenise, TokenizerSpec};
use serde_json::Value;

use super::super::METASPACE;
use super::{AddedTokenJson, TokenizerJson};
use crate::Error;

/// Patterns as checkpoints spell them.
const PATTERNS: [(&str, PreTokenise); 7] = [
    (
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        PreTokenise::Gpt2,
    ),
    (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        PreTokenise::Gpt2,
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        PreTokenise::Llama3,
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        PreTokenise::Qwen2,
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        PreTokenise::Gpt4o,
    ),
    (r"\p{N}", PreTokenise::Digits),
    (r"\p{N}+", PreTokenise::DigitRuns),
];

/// Reads the pipeline into an otherwise empty description; `bos_id`, `eos_ids` and what is added
/// come from the post-processor.
pub(super) fn read(path: &Path, json: &TokenizerJson) -> Result<TokenizerSpec, Error> {
    let pre_tokenisers = parts(json.pre_tokenizer.as_ref(), "pretokenizers");
    let byte_level = pre_tokenisers.iter().any(|part| kind(part) == "ByteLevel");
    let algorithm = match (byte_level, json.model.byte_fallback) {
        (true, false) => Algorithm::ByteLevel,
        (false, true) => Algorithm::SentencePiece,
        (true, true) => {
            return Err(Error::unsupported(
                path,
                "model.byte_fallback",
                "true",
                "false with ByteLevel",
            ));
        }
        (false, false) => {
            let supported = "BPE with a ByteLevel pre_tokenizer, or with byte_fallback";
            let found = "BPE with neither";
            return Err(Error::unsupported(path, "model", found, supported));
        }
    };
    let mut spec = TokenizerSpec::new(algorithm);
    for part in parts(json.normalizer.as_ref(), "normalizers") {
        normaliser(path, part, &mut spec)?;
    }
    for part in pre_tokenisers {
        pre_tokeniser(path, part, &mut spec)?;
    }
    for part in parts(json.post_processor.as_ref(), "processors") {
        post_processor(path, part, &mut spec)?;
    }
    decoder(path, json.decoder.as_ref(), &mut spec)?;
    Ok(spec)
}

/// Added tokens that are looked for in normalised text must be the same before and after it.
pub(super) fn check_added<'a>(
    path: &Path,
    spec: &TokenizerSpec,
    mut added: impl Iterator<Item = &'a AddedTokenJson>,
) -> Result<(), Error> {
    let prepends = spec.normalise.iter().any(|step| {
        matches!(
            step,
            Normalise::Prepend | Normalise::PrependMissing | Normalise::PrependFirst
        )
    });
    let escapes = spec.normalise.contains(&Normalise::EscapeSpaces);
    let composes = spec
        .normalise
        .iter()
        .any(|step| matches!(step, Normalise::Nfc | Normalise::Nfkc));
    let changed = added.find(|token| {
        token.normalized
            && (prepends
                || escapes && token.content.contains(' ')
                || composes && !token.content.is_ascii())
    });
    match changed {
        None => Ok(()),
        Some(token) => Err(Error::unsupported(
            path,
            format!("added token {}", token.id),
            format!("normalized `{}`", token.content),
            "normalized tokens that the normalizer leaves as they are",
        )),
    }
}

/// A part, or the parts of a sequence, at any depth.
fn parts<'a>(value: Option<&'a Value>, list: &str) -> Vec<&'a Value> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Vec::new();
    };
    match value.get(list).and_then(Value::as_array) {
        Some(inner) if kind(value) == "Sequence" => inner
            .iter()
            .flat_map(|part| parts(Some(part), list))
            .collect(),
        _ => vec![value],
    }
}

fn kind(part: &Value) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn text<'a>(part: &'a Value, field: &str) -> &'a str {
    part.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A boolean field with the value the reference gives it where it is absent.
fn flag(part: &Value, field: &str, absent: bool) -> bool {
    part.get(field).and_then(Value::as_bool).unwrap_or(absent)
}

fn pattern<'a>(part: &'a Value, kind: &str) -> Option<&'a str> {
    part.get("pattern")?.get(kind)?.as_str()
}

fn refused(path: &Path, place: &str, part: &Value, supported: &str) -> Error {
    Error::unsupported(path, place, part.to_string(), supported)
}

fn normaliser(path: &Path, part: &Value, spec: &mut TokenizerSpec) -> Result<(), Error> {
    let escapes = pattern(part, "String") == Some(" ") && text(part, "content") == METASPACE;
    let step = match kind(part) {
        "NFC" => Normalise::Nfc,
        "NFKC" => Normalise::Nfkc,
        "Replace" if escapes => Normalise::EscapeSpaces,
        "Prepend" if text(part, "prepend") == METASPACE => Normalise::Prepend,
        _ => {
            let supported = "NFC, NFKC, Replace of a space with U+2581, Prepend of U+2581";
            return Err(refused(path, "normalizer", part, supported));
        }
    };
    spec.normalise.push(step);
    Ok(())
}

fn pre_tokeniser(path: &Path, part: &Value, spec: &mut TokenizerSpec) -> Result<(), Error> {
    match kind(part) {
        "ByteLevel" if !flag(part, "add_prefix_space", true) => {
            if flag(part, "use_regex", true) {
                spec.pre_tokenise.push(PreTokenise::Gpt2);
            }
            return Ok(());
        }
        "Digits" => {
            let single = flag(part, "individual_digits", false);
            let step = if single {
                PreTokenise::Digits
            } else {
                PreTokenise::DigitRuns
            };
            spec.pre_tokenise.push(step);
            return Ok(());
        }
        "Split" => {
            // Both keep every match as a word; the patterns leave nothing between matches, except
            // the digit ones, whose gaps are words too only if isolated.
            let isolated = text(part, "behavior") == "Isolated" && !flag(part, "invert", false);
            let removed = text(part, "behavior") == "Removed" && flag(part, "invert", false);
            let known = pattern(part, "Regex")
                .and_then(|regex| PATTERNS.iter().find(|(known, _)| *known == regex))
                .map(|(_, step)| *step);
            let digits = [Some(PreTokenise::Digits), Some(PreTokenise::DigitRuns)].contains(&known);
            if let Some(step) = known.filter(|_| isolated || removed && !digits) {
                spec.pre_tokenise.push(step);
                return Ok(());
            }
            // Gemma cuts at spaces that its normaliser has already replaced.
            let no_spaces = spec.normalise.contains(&Normalise::EscapeSpaces);
            if pattern(part, "String") == Some(" ") && no_spaces {
                return Ok(());
            }
        }
        "Metaspace" if text(part, "replacement") == METASPACE => {
            return metaspace(path, part, spec);
        }
        _ => {}
    }
    let supported = "ByteLevel without add_prefix_space, Digits, Metaspace, Split by the pattern of \
                     GPT-2, Llama 3, Qwen 2 or GPT-4o";
    Err(refused(path, "pre_tokenizer", part, supported))
}

fn metaspace(path: &Path, part: &Value, spec: &mut TokenizerSpec) -> Result<(), Error> {
    let step = match (
        text(part, "prepend_scheme"),
        flag(part, "add_prefix_space", true),
    ) {
        ("always", _) | ("", true) => Some(Normalise::PrependMissing),
        ("first", _) => Some(Normalise::PrependFirst),
        ("never", _) | ("", false) => None,
        _ => {
            return Err(refused(
                path,
                "pre_tokenizer",
                part,
                "always, first or never",
            ));
        }
    };
    spec.normalise.push(Normalise::EscapeSpaces);
    spec.normalise.extend(step);
    if flag(part, "split", true) {
        spec.pre_tokenise.push(PreTokenise::Metaspace);
    }
    Ok(())
}

fn post_processor(path: &Path, part: &Value, spec: &mut TokenizerSpec) -> Result<(), Error> {
    match kind(part) {
        "ByteLevel" => Ok(()),
        "TemplateProcessing" => template(path, part, spec),
        _ => Err(refused(
            path,
            "post_processor",
            part,
            "ByteLevel, TemplateProcessing",
        )),
    }
}

/// A template of the form `[begin] text [end]`.
fn template(path: &Path, part: &Value, spec: &mut TokenizerSpec) -> Result<(), Error> {
    let refuse = || {
        refused(
            path,
            "post_processor",
            part,
            "at most one special token on each side of the text",
        )
    };
    let single = part
        .get("single")
        .and_then(Value::as_array)
        .ok_or_else(refuse)?;
    let mut text_seen = false;
    for piece in single {
        if piece.get("Sequence").is_some() {
            if text_seen {
                return Err(refuse());
            }
            text_seen = true;
            continue;
        }
        let name = piece
            .get("SpecialToken")
            .map(|token| text(token, "id"))
            .ok_or_else(refuse)?;
        let ids = part
            .get("special_tokens")
            .and_then(|all| all.get(name))
            .and_then(|token| token.get("ids"));
        let id = match ids.and_then(Value::as_array).map(Vec::as_slice) {
            Some([id]) => id
                .as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(refuse)?,
            _ => return Err(refuse()),
        };
        let taken = if text_seen {
            spec.add_eos
        } else {
            spec.add_bos
        };
        if taken {
            return Err(refuse());
        }
        if text_seen {
            spec.add_eos = true;
            spec.eos_ids = vec![id];
        } else {
            spec.add_bos = true;
            spec.bos_id = Some(id);
        }
    }
    if text_seen { Ok(()) } else { Err(refuse()) }
}

fn decoder(path: &Path, value: Option<&Value>, spec: &mut TokenizerSpec) -> Result<(), Error> {
    let all = parts(value, "decoders");
    let supported = match spec.algorithm {
        Algorithm::ByteLevel => "ByteLevel",
        Algorithm::SentencePiece => {
            "Replace of U+2581 with a space, ByteFallback, Fuse, Strip of one leading space, Metaspace"
        }
    };
    for part in &all {
        let unescapes = pattern(part, "String") == Some(METASPACE) && text(part, "content") == " ";
        let number = |field: &str| part.get(field).and_then(Value::as_u64).unwrap_or(0);
        match (spec.algorithm, kind(part)) {
            (Algorithm::ByteLevel, "ByteLevel")
            | (Algorithm::SentencePiece, "ByteFallback" | "Fuse") => {}
            (Algorithm::SentencePiece, "Replace") if unescapes => {}
            (Algorithm::SentencePiece, "Strip")
                if text(part, "content") == " " && number("stop") == 0 && number("start") <= 1 =>
            {
                spec.strip_leading_space = number("start") == 1;
            }
            (Algorithm::SentencePiece, "Metaspace") if text(part, "replacement") == METASPACE => {
                spec.strip_leading_space = text(part, "prepend_scheme") != "never";
            }
            _ => return Err(refused(path, "decoder", part, supported)),
        }
    }
    if all.is_empty() {
        return Err(Error::unsupported(path, "decoder", "none", supported));
    }
    Ok(())
}
