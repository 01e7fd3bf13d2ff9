//! Turns a description into the bytes of a file, and gives every step and kind its code. It checks
//! what only the describer can get wrong; the rest is checked by reading the result back.
//! Specification: `docs/format/tokenizer.md`.

use bytes::Bytes;

use crate::error::Error;
use crate::layout as at;
use crate::reader;
use crate::spec::{
    AddedMatching, AddedToken, Algorithm, Merges, Normalise, PreTokenise, TokenKind, TokenizerSpec,
    UnknownSymbol,
};

impl TokenizerSpec {
    /// The file that describes this tokenizer; equal descriptions give equal bytes.
    ///
    /// # Errors
    /// [`Error::Description`] where an id has no token, a text is not unique among the reachable
    /// ones, a merge is listed twice or joins to another text, a score is not a number, or a count
    /// does not fit the file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let lookup = self.lookup()?;
        let added = self.added_table()?;
        let (ranks_or_rows, merges) = self.merge_tables()?;
        let text_bytes: usize = self.tokens.iter().map(|token| token.text.len()).sum();

        let mut out = self.header(&Counts {
            lookup: lookup.len(),
            merges: merges.len(),
            added: added.len(),
            text_bytes,
        })?;
        let mut offset = 0_u32;
        push(&mut out, offset);
        for token in &self.tokens {
            // The sum of all lengths was found to fit when the header was made.
            offset = offset.wrapping_add(count("token text", token.text.len())?);
            push(&mut out, offset);
        }
        lookup.iter().for_each(|&id| push(&mut out, id));
        ranks_or_rows
            .iter()
            .for_each(|&entry| push(&mut out, entry));
        merges
            .iter()
            .flatten()
            .for_each(|&word| push(&mut out, word));
        added
            .iter()
            .flatten()
            .for_each(|&word| push(&mut out, word));
        self.eos_ids.iter().for_each(|&id| push(&mut out, id));
        out.extend(self.tokens.iter().map(|token| token.kind.code()));
        self.tokens
            .iter()
            .for_each(|token| out.extend_from_slice(&token.text));

        let bytes = Bytes::from(out);
        reader::read(bytes.clone())?;
        Ok(Vec::from(bytes))
    }

    fn header(&self, counts: &Counts) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        out.extend_from_slice(&at::MAGIC);
        push(&mut out, at::VERSION);
        push(
            &mut out,
            match self.algorithm {
                Algorithm::ByteLevel => at::ALGORITHM_BYTE_LEVEL,
                Algorithm::SentencePiece => at::ALGORITHM_SENTENCE_PIECE,
            },
        );
        push(&mut out, self.flags());
        push(
            &mut out,
            match self.unknown {
                UnknownSymbol::Skip => at::UNKNOWN_SKIP,
                UnknownSymbol::Barrier => at::UNKNOWN_BARRIER,
                UnknownSymbol::Each => at::UNKNOWN_EACH,
                UnknownSymbol::Fused => at::UNKNOWN_FUSED,
            },
        );
        push(&mut out, count("tokens", self.tokens.len())?);
        push(&mut out, count("reachable tokens", counts.lookup)?);
        push(&mut out, count("merges", counts.merges)?);
        push(&mut out, count("added tokens", counts.added)?);
        push(&mut out, count("end-of-sequence ids", self.eos_ids.len())?);
        for id in [self.bos_id, self.pad_id, self.unk_id] {
            push(&mut out, id.unwrap_or(at::NO_ID));
        }
        push_steps(
            &mut out,
            "normaliser",
            self.normalise.iter().map(|step| step.code()),
        )?;
        push_steps(
            &mut out,
            "pre-tokeniser",
            self.pre_tokenise.iter().map(|step| step.code()),
        )?;
        push(&mut out, count("bytes of token text", counts.text_bytes)?);
        out.resize(at::HEADER_BYTES, 0);
        Ok(out)
    }

    fn flags(&self) -> u32 {
        let scored = matches!(self.merges, Merges::Scored(_));
        let longest_first = self.added_matching == AddedMatching::LongestFirst;
        [
            (self.ignore_merges, at::FLAG_IGNORE_MERGES),
            (scored, at::FLAG_SCORED),
            (self.add_bos, at::FLAG_ADD_BOS),
            (self.add_eos, at::FLAG_ADD_EOS),
            (longest_first, at::FLAG_LONGEST_FIRST),
            (self.strip_leading_space, at::FLAG_STRIP_LEADING_SPACE),
        ]
        .into_iter()
        .fold(0, |flags, (set, bit)| if set { flags | bit } else { flags })
    }

    fn token_text(&self, part: impl Fn() -> String, id: u32) -> Result<&[u8], Error> {
        self.tokens
            .get(id as usize)
            .filter(|token| token.kind != TokenKind::Hole)
            .map(|token| token.text.as_slice())
            .ok_or_else(|| Error::description(part(), "an id that has a token", id))
    }

    fn lookup(&self) -> Result<Vec<u32>, Error> {
        let mut sorted: Vec<(&[u8], u32)> = Vec::new();
        for (id, token) in self.tokens.iter().enumerate() {
            if token.reachable {
                sorted.push((&token.text, count("tokens", id)?));
            }
        }
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            if let [(left, first), (right, second)] = pair
                && left == right
            {
                return Err(Error::description(
                    format!("token {second}"),
                    "a text of its own",
                    format!(
                        "{:?}, the text of token {first}",
                        String::from_utf8_lossy(right)
                    ),
                ));
            }
        }
        Ok(sorted.into_iter().map(|(_, id)| id).collect())
    }

    fn added_table(&self) -> Result<Vec<[u32; 2]>, Error> {
        let mut sorted = Vec::with_capacity(self.added.len());
        for token in &self.added {
            let text = self.token_text(|| "added token".to_owned(), token.id)?;
            sorted.push((text, [token.id, added_flags(token)]));
        }
        sorted.sort_unstable();
        Ok(sorted.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Ranks by id, or row starts and merges.
    fn merge_tables(&self) -> Result<(Vec<u32>, Vec<[u32; 3]>), Error> {
        match &self.merges {
            Merges::Scored(scores) => Ok((self.ranks(scores)?, Vec::new())),
            Merges::Listed(list) => self.rows(list),
        }
    }

    /// Equal scores get equal ranks: between them the leftmost merges first.
    fn ranks(&self, scores: &[f32]) -> Result<Vec<u32>, Error> {
        if scores.len() != self.tokens.len() {
            return Err(Error::description(
                "scores",
                format!("one for each of the {} tokens", self.tokens.len()),
                scores.len(),
            ));
        }
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(Error::description(
                format!("score of token {id}"),
                "a number",
                "NaN",
            ));
        }
        // Adding zero turns -0.0 into 0.0, which the reference takes for equal.
        let mut distinct: Vec<f32> = scores.iter().map(|score| score + 0.0).collect();
        distinct.sort_unstable_by(|left, right| right.total_cmp(left));
        distinct.dedup();
        scores
            .iter()
            .map(|score| {
                let above = distinct.partition_point(|other| *other > *score);
                count("scores", above)
            })
            .collect()
    }

    fn rows(&self, list: &[[u32; 3]]) -> Result<(Vec<u32>, Vec<[u32; 3]>), Error> {
        let mut sorted = Vec::with_capacity(list.len());
        for (index, &[left, right, merged]) in list.iter().enumerate() {
            let part = || format!("merge {index}");
            let joined = [self.token_text(part, left)?, self.token_text(part, right)?].concat();
            let text = self.token_text(part, merged)?;
            if joined != text {
                return Err(Error::description(
                    part(),
                    format!(
                        "a token with the text {:?}",
                        String::from_utf8_lossy(&joined)
                    ),
                    format!("token {merged}, {:?}", String::from_utf8_lossy(text)),
                ));
            }
            sorted.push((left, [right, merged, count("merges", index)?]));
        }
        sorted.sort_unstable();
        let mut starts = Vec::with_capacity(self.tokens.len().saturating_add(1));
        let mut merges: Vec<[u32; 3]> = Vec::with_capacity(sorted.len());
        let mut rest = sorted.as_slice();
        for id in 0..count("tokens", self.tokens.len())? {
            starts.push(count("merges", merges.len())?);
            let row = rest.partition_point(|(left, _)| *left == id);
            let (own, after) = rest.split_at(row);
            for (_, entry) in own {
                let twice = merges.get(starts.last().map_or(0, |&start| start as usize)..);
                if twice
                    .and_then(<[_]>::last)
                    .is_some_and(|last| last[0] == entry[0])
                {
                    let part = format!("merge {}", entry[2]);
                    return Err(Error::description(
                        part,
                        "a new pair",
                        format!("{id} {}", entry[0]),
                    ));
                }
                merges.push(*entry);
            }
            rest = after;
        }
        starts.push(count("merges", merges.len())?);
        Ok((starts, merges))
    }
}

struct Counts {
    lookup: usize,
    merges: usize,
    added: usize,
    text_bytes: usize,
}

fn count(part: &str, value: usize) -> Result<u32, Error> {
    u32::try_from(value)
        .map_err(|_too_large| Error::description(part, format!("at most {}", u32::MAX), value))
}

fn push(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn push_steps(out: &mut Vec<u8>, part: &str, codes: impl Iterator<Item = u8>) -> Result<(), Error> {
    let codes: Vec<u8> = codes.collect();
    if codes.len() > at::STEP_SLOTS {
        let expected = format!("at most {}", at::STEP_SLOTS);
        return Err(Error::description(
            format!("{part} steps"),
            expected,
            codes.len(),
        ));
    }
    out.extend_from_slice(&codes);
    out.extend(std::iter::repeat_n(0, at::STEP_SLOTS - codes.len()));
    Ok(())
}

fn added_flags(token: &AddedToken) -> u32 {
    [
        (token.special, at::ADDED_SPECIAL),
        (token.lstrip, at::ADDED_LSTRIP),
        (token.rstrip, at::ADDED_RSTRIP),
        (token.normalized, at::ADDED_NORMALIZED),
        (token.single_word, at::ADDED_SINGLE_WORD),
    ]
    .into_iter()
    .fold(0, |flags, (set, bit)| if set { flags | bit } else { flags })
}

impl TokenKind {
    /// The code in the file.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Hole => at::KIND_HOLE,
            Self::Normal => at::KIND_NORMAL,
            Self::Unknown => at::KIND_UNKNOWN,
            Self::Control => at::KIND_CONTROL,
            Self::UserDefined => at::KIND_USER_DEFINED,
            Self::Unused => at::KIND_UNUSED,
            Self::Byte => at::KIND_BYTE,
        }
    }
}

impl Normalise {
    const ALL: [(Self, u8); 6] = [
        (Self::Nfc, at::NORMALISE_NFC),
        (Self::Nfkc, at::NORMALISE_NFKC),
        (Self::EscapeSpaces, at::NORMALISE_ESCAPE_SPACES),
        (Self::Prepend, at::NORMALISE_PREPEND),
        (Self::PrependMissing, at::NORMALISE_PREPEND_MISSING),
        (Self::PrependFirst, at::NORMALISE_PREPEND_FIRST),
    ];

    fn code(self) -> u8 {
        Self::ALL
            .into_iter()
            .find(|(step, _)| *step == self)
            .map_or(0, |(_, code)| code)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, other)| *other == code)
            .map(|(step, _)| step)
    }
}

impl PreTokenise {
    const ALL: [(Self, u8); 7] = [
        (Self::Gpt2, at::PRE_TOKENISE_GPT2),
        (Self::Llama3, at::PRE_TOKENISE_LLAMA3),
        (Self::Qwen2, at::PRE_TOKENISE_QWEN2),
        (Self::Gpt4o, at::PRE_TOKENISE_GPT4O),
        (Self::Digits, at::PRE_TOKENISE_DIGITS),
        (Self::DigitRuns, at::PRE_TOKENISE_DIGIT_RUNS),
        (Self::Metaspace, at::PRE_TOKENISE_METASPACE),
    ];

    fn code(self) -> u8 {
        Self::ALL
            .into_iter()
            .find(|(step, _)| *step == self)
            .map_or(0, |(_, code)| code)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, other)| *other == code)
            .map(|(step, _)| step)
    }
}
