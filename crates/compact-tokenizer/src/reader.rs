//! The one place that checks a compact tokenizer file: header, counts, then every table once. After
//! it no read can leave the file and every id that a table names exists. It copies no table.
//! Specification: `docs/format/tokenizer.md`.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use bytes::Bytes;

use crate::error::Error;
use crate::layout as at;
use crate::spec::{Algorithm, Normalise, PreTokenise, UnknownSymbol};
use crate::tables::{Places, Tables};

/// What the header says apart from the counts.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) algorithm: Algorithm,
    pub(crate) flags: u32,
    pub(crate) unknown: UnknownSymbol,
    pub(crate) bos_id: Option<u32>,
    pub(crate) pad_id: Option<u32>,
    pub(crate) unk_id: Option<u32>,
    pub(crate) normalise: Vec<Normalise>,
    pub(crate) pre_tokenise: Vec<PreTokenise>,
}

/// Checks a file and gives back its tables.
pub(crate) fn read(bytes: Bytes) -> Result<(Header, Tables), Error> {
    if !bytes.starts_with(&at::MAGIC) {
        let found = bytes.iter().take(at::MAGIC.len()).copied().collect();
        return Err(Error::Magic {
            expected: at::MAGIC,
            found,
        });
    }
    if bytes.len() < at::HEADER_BYTES {
        return Err(Error::Length {
            expected: at::HEADER_BYTES as u64,
            found: bytes.len() as u64,
        });
    }
    let mut tables = Tables {
        bytes,
        places: Places::default(),
        vocabulary_len: 0,
        lookup_len: 0,
        merge_count: 0,
        added_count: 0,
        eos_count: 0,
    };
    let version = tables.u32_at(at::VERSION_AT);
    if version != at::VERSION {
        return Err(Error::Version {
            supported: at::VERSION,
            found: version,
        });
    }
    let header = header(&tables)?;
    tables.vocabulary_len = tables.u32_at(at::VOCABULARY_LEN_AT);
    tables.lookup_len = tables.u32_at(at::LOOKUP_LEN_AT);
    tables.merge_count = tables.u32_at(at::MERGE_COUNT_AT);
    tables.added_count = tables.u32_at(at::ADDED_COUNT_AT);
    tables.eos_count = tables.u32_at(at::EOS_COUNT_AT);
    let scored = header.flags & at::FLAG_SCORED != 0;
    let text_bytes = tables.u32_at(at::TEXT_BYTES_AT);
    tables.places = places(&tables, scored, text_bytes)?;
    check_texts(&tables, text_bytes)?;
    check_lookup(&tables)?;
    if !scored {
        check_merges(&tables)?;
    }
    check_added(&tables)?;
    check_ids(&header, &tables)?;
    Ok((header, tables))
}

fn header(tables: &Tables) -> Result<Header, Error> {
    let algorithm = match tables.u32_at(at::ALGORITHM_AT) {
        at::ALGORITHM_BYTE_LEVEL => Algorithm::ByteLevel,
        at::ALGORITHM_SENTENCE_PIECE => Algorithm::SentencePiece,
        other => return Err(Error::malformed("header: algorithm", "1 or 2", other)),
    };
    let flags = tables.u32_at(at::FLAGS_AT);
    if flags & !at::FLAGS != 0 {
        return Err(Error::malformed(
            "header: flags",
            format!("no bit outside {:#x}", at::FLAGS),
            format!("{flags:#x}"),
        ));
    }
    let unknown = match tables.u32_at(at::UNKNOWN_AT) {
        at::UNKNOWN_SKIP => UnknownSymbol::Skip,
        at::UNKNOWN_BARRIER => UnknownSymbol::Barrier,
        at::UNKNOWN_EACH => UnknownSymbol::Each,
        at::UNKNOWN_FUSED => UnknownSymbol::Fused,
        other => {
            return Err(Error::malformed(
                "header: unknown-symbol policy",
                "0 to 3",
                other,
            ));
        }
    };
    let reserved = tables
        .bytes
        .get(at::RESERVED_AT..at::HEADER_BYTES)
        .unwrap_or_default();
    if reserved.iter().any(|&byte| byte != 0) {
        return Err(Error::malformed(
            "header: reserved bytes",
            "zeros",
            format!("{reserved:02x?}"),
        ));
    }
    let id = |position| Some(tables.u32_at(position)).filter(|&id| id != at::NO_ID);
    Ok(Header {
        algorithm,
        flags,
        unknown,
        bos_id: id(at::BOS_AT),
        pad_id: id(at::PAD_AT),
        unk_id: id(at::UNK_AT),
        normalise: steps(tables, at::NORMALISE_AT, "normaliser", Normalise::from_code)?,
        pre_tokenise: steps(
            tables,
            at::PRE_TOKENISE_AT,
            "pre-tokeniser",
            PreTokenise::from_code,
        )?,
    })
}

fn steps<T>(
    tables: &Tables,
    position: usize,
    part: &str,
    from_code: impl Fn(u8) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let slots = tables
        .bytes
        .get(position..)
        .unwrap_or_default()
        .iter()
        .take(at::STEP_SLOTS);
    let mut steps = Vec::new();
    let mut ended = false;
    for (index, &code) in slots.enumerate() {
        let name = || format!("header: {part} step {index}");
        match (code, ended) {
            (0, _) => ended = true,
            (_, true) => return Err(Error::malformed(name(), "zero after the last step", code)),
            (_, false) => {
                let step = from_code(code)
                    .ok_or_else(|| Error::malformed(name(), "a code of this version", code))?;
                steps.push(step);
            }
        }
    }
    Ok(steps)
}

/// Adds up the tables, which follow each other without gaps, and compares with the file's length.
fn places(tables: &Tables, scored: bool, text_bytes: u32) -> Result<Places, Error> {
    if tables.vocabulary_len == 0 || tables.vocabulary_len == at::NO_ID {
        return Err(Error::malformed(
            "header: vocabulary length",
            "1 to 4294967294",
            tables.vocabulary_len,
        ));
    }
    if scored && tables.merge_count != 0 {
        let part = "header: merge count of a scored tokenizer";
        return Err(Error::malformed(part, "0", tables.merge_count));
    }
    let ids = u64::from(tables.vocabulary_len);
    let word = at::ID_BYTES as u64;
    let rows = if scored { ids } else { ids.saturating_add(1) };
    // Seven products of a u32 and at most 12 cannot overflow a u64.
    let lengths = [
        ids.saturating_add(1).saturating_mul(word),
        u64::from(tables.lookup_len).saturating_mul(word),
        rows.saturating_mul(word),
        u64::from(tables.merge_count).saturating_mul(at::MERGE_BYTES as u64),
        u64::from(tables.added_count).saturating_mul(at::ADDED_BYTES as u64),
        u64::from(tables.eos_count).saturating_mul(word),
        ids,
        u64::from(text_bytes),
    ];
    let header = at::HEADER_BYTES as u64;
    let expected = lengths
        .iter()
        .fold(header, |sum, length| sum.saturating_add(*length));
    let found = tables.bytes.len() as u64;
    if expected != found {
        return Err(Error::Length { expected, found });
    }
    // The sum equals the length of a slice, so every prefix of it is a usize.
    let mut end = at::HEADER_BYTES;
    let mut next = lengths.iter().map(|&length| {
        let start = end;
        end = end.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        start
    });
    let mut place = || next.next().unwrap_or_default();
    Ok(Places {
        text_offsets: place(),
        lookup: place(),
        ranks_or_rows: place(),
        merges: place(),
        added: place(),
        eos: place(),
        kinds: place(),
        text: place(),
    })
}

fn check_texts(tables: &Tables, text_bytes: u32) -> Result<(), Error> {
    let mut start = tables.text_offset(0);
    if start != 0 {
        return Err(Error::malformed("text offset 0", "0", start));
    }
    for id in 0..tables.vocabulary_len {
        let end = tables.text_offset(id.saturating_add(1));
        if end < start || end > text_bytes {
            return Err(Error::malformed(
                format!("text offset {}", u64::from(id).saturating_add(1)),
                format!("{start} to {text_bytes}"),
                end,
            ));
        }
        let kind = tables.kind(id);
        if kind > at::KIND_BYTE {
            return Err(Error::malformed(
                format!("kind of token {id}"),
                "0 to 6",
                kind,
            ));
        }
        if (kind == at::KIND_HOLE) != (start == end) {
            return Err(Error::malformed(
                format!("text of token {id}"),
                "empty exactly where the token is a hole",
                format!("kind {kind} with {} bytes", end.saturating_sub(start)),
            ));
        }
        start = end;
    }
    if start != text_bytes {
        return Err(Error::malformed(
            "last text offset",
            text_bytes.to_string(),
            start,
        ));
    }
    Ok(())
}

fn check_lookup(tables: &Tables) -> Result<(), Error> {
    let mut previous: &[u8] = &[];
    for index in 0..tables.lookup_len as usize {
        let id = tables.lookup_id(index);
        check_id(tables, id, || format!("lookup entry {index}"))?;
        let text = tables.text(id);
        if text <= previous {
            return Err(Error::malformed(
                format!("lookup entry {index}"),
                "texts in strictly ascending order",
                format!("{} after {}", shown(text), shown(previous)),
            ));
        }
        previous = text;
    }
    Ok(())
}

fn check_merges(tables: &Tables) -> Result<(), Error> {
    let mut start = 0;
    for left in 0..tables.vocabulary_len {
        let row = tables.merge_row(left);
        if row.start != start || row.end < start || row.end > tables.merge_count as usize {
            return Err(Error::malformed(
                format!("merge row {left}"),
                format!("to begin at {start} and end by {}", tables.merge_count),
                format!("{row:?}"),
            ));
        }
        start = row.end;
        let mut previous = None;
        for index in row {
            let [right, merged, _] = tables.merge_at(index);
            check_id(tables, right, || format!("right id of merge {index}"))?;
            check_id(tables, merged, || format!("merged id of merge {index}"))?;
            if previous.is_some_and(|previous| right <= previous) {
                let part = format!("right id of merge {index}");
                return Err(Error::malformed(
                    part,
                    "strictly ascending ids in a row",
                    right,
                ));
            }
            previous = Some(right);
        }
    }
    if start != tables.merge_count as usize {
        return Err(Error::malformed(
            "end of merge rows",
            tables.merge_count.to_string(),
            start,
        ));
    }
    Ok(())
}

fn check_added(tables: &Tables) -> Result<(), Error> {
    let mut previous: &[u8] = &[];
    for index in 0..tables.added_count as usize {
        let entry = tables.added_at(index);
        check_id(tables, entry.id, || format!("added token {index}"))?;
        if entry.flags & !at::ADDED_FLAGS != 0 {
            return Err(Error::malformed(
                format!("flags of added token {index}"),
                format!("no bit outside {:#x}", at::ADDED_FLAGS),
                format!("{:#x}", entry.flags),
            ));
        }
        let text = tables.text(entry.id);
        if text <= previous {
            return Err(Error::malformed(
                format!("added token {index}"),
                "texts in strictly ascending order",
                format!("{} after {}", shown(text), shown(previous)),
            ));
        }
        if std::str::from_utf8(text).is_err() {
            let part = format!("text of added token {index}");
            return Err(Error::malformed(part, "UTF-8", shown(text)));
        }
        previous = text;
    }
    Ok(())
}

fn check_ids(header: &Header, tables: &Tables) -> Result<(), Error> {
    for index in 0..tables.eos_count as usize {
        let id = tables.eos_at(index);
        check_id(tables, id, || format!("end-of-sequence entry {index}"))?;
    }
    let named = [
        ("begin-of-sequence", header.bos_id),
        ("padding", header.pad_id),
        ("unknown", header.unk_id),
    ];
    for (name, id) in named {
        if let Some(id) = id {
            check_id(tables, id, || format!("header: {name} id"))?;
        }
    }
    let needs = [
        (
            header.flags & at::FLAG_ADD_BOS != 0,
            header.bos_id.is_some(),
            "begin-of-sequence id",
        ),
        (
            header.flags & at::FLAG_ADD_EOS != 0,
            tables.eos_count > 0,
            "end-of-sequence id",
        ),
        (
            matches!(header.unknown, UnknownSymbol::Each | UnknownSymbol::Fused),
            header.unk_id.is_some(),
            "unknown id",
        ),
    ];
    for (needed, present, name) in needs {
        if needed && !present {
            return Err(Error::malformed(
                format!("header: {name}"),
                "an id, because a flag or policy uses it",
                "none",
            ));
        }
    }
    Ok(())
}

fn check_id(tables: &Tables, id: u32, part: impl Fn() -> String) -> Result<(), Error> {
    if id >= tables.vocabulary_len {
        let expected = format!("an id below {}", tables.vocabulary_len);
        return Err(Error::malformed(part(), expected, id));
    }
    if tables.kind(id) == at::KIND_HOLE {
        return Err(Error::malformed(
            part(),
            "an id that has a token",
            format!("{id}, a hole"),
        ));
    }
    Ok(())
}

/// The start of a text for an error message, however long the text is.
fn shown(text: &[u8]) -> String {
    let start: Vec<u8> = text.iter().take(32).copied().collect();
    format!(
        "{:?} ({} bytes)",
        String::from_utf8_lossy(&start),
        text.len()
    )
}
