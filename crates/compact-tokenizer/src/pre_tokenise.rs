//! Cuts text into words. The patterns are a closed list matched by a small backtracking scanner: no
//! pattern is compiled at start, and no file can bring one that runs away. Each constant carries the
//! regular expression it stands for, and the tests hold it to that expression. Specification:
//! `docs/format/tokenizer.md`, pre-tokeniser.

use crate::character::{
    BLANK, LETTER, LOWER, MARK, MODIFIER, NEWLINE, NUMBER, OTHER_LETTER, SLASH, SPACE, TITLE,
    UPPER, classes,
};
use crate::normalise::METASPACE;
use crate::spec::PreTokenise;

/// A class with a repetition, greedy.
#[derive(Clone, Copy)]
struct Item {
    /// A character matches if it has one of these classes (0: any) ...
    any: u16,
    /// ... and none of these.
    none: u16,
    least: u32,
    most: u32,
}

#[derive(Clone, Copy)]
enum Tail {
    Nothing,
    /// `(?!\S)`
    NoWordAfter,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
    MaybeContraction,
}

#[derive(Clone, Copy)]
enum Alternative {
    /// `'s|'t|'re|'ve|'m|'ll|'d`, with or without regard to case.
    Contraction(Case),
    Items(&'static [Item], Tail),
}

#[derive(Clone, Copy)]
enum Case {
    Kept,
    Folded,
}

const fn one_or_more(any: u16, none: u16) -> Item {
    Item {
        any,
        none,
        least: 1,
        most: u32::MAX,
    }
}
const fn any_number(any: u16, none: u16) -> Item {
    Item {
        any,
        none,
        least: 0,
        most: u32::MAX,
    }
}
const fn maybe(any: u16, none: u16) -> Item {
    Item {
        any,
        none,
        least: 0,
        most: 1,
    }
}
const fn up_to(most: u32, any: u16) -> Item {
    Item {
        any,
        none: 0,
        least: 1,
        most,
    }
}

/// ` ?`
const MAYBE_BLANK: Item = maybe(BLANK, 0);
/// `[^\r\n\p{L}\p{N}]?`
const MAYBE_LEAD: Item = maybe(0, NEWLINE | LETTER | NUMBER);
/// `[^\s\p{L}\p{N}]+`
const SIGNS: Item = one_or_more(0, SPACE | LETTER | NUMBER);
/// `\s*[\r\n]+`
const LINE_ENDS: Alternative = Alternative::Items(
    &[any_number(SPACE, 0), one_or_more(NEWLINE, 0)],
    Tail::Nothing,
);
/// `\s+(?!\S)`
const SPACES_BEFORE_LAST: Alternative =
    Alternative::Items(&[one_or_more(SPACE, 0)], Tail::NoWordAfter);
/// `\s+`
const SPACES: Alternative = Alternative::Items(&[one_or_more(SPACE, 0)], Tail::Nothing);
/// `[^\r\n\p{L}\p{N}]?\p{L}+`
const LED_WORD: Alternative =
    Alternative::Items(&[MAYBE_LEAD, one_or_more(LETTER, 0)], Tail::Nothing);
/// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
const SIGNS_AND_LINE_ENDS: Alternative =
    Alternative::Items(&[MAYBE_BLANK, SIGNS, any_number(NEWLINE, 0)], Tail::Nothing);

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
const GPT2: &[Alternative] = &[
    Alternative::Contraction(Case::Kept),
    Alternative::Items(&[MAYBE_BLANK, one_or_more(LETTER, 0)], Tail::Nothing),
    Alternative::Items(&[MAYBE_BLANK, one_or_more(NUMBER, 0)], Tail::Nothing),
    Alternative::Items(&[MAYBE_BLANK, SIGNS], Tail::Nothing),
    SPACES_BEFORE_LAST,
    SPACES,
];

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
const LLAMA3: &[Alternative] = &[
    Alternative::Contraction(Case::Folded),
    LED_WORD,
    Alternative::Items(&[up_to(3, NUMBER)], Tail::Nothing),
    SIGNS_AND_LINE_ENDS,
    LINE_ENDS,
    SPACES_BEFORE_LAST,
    SPACES,
];

/// As [`LLAMA3`] with `\p{N}` for `\p{N}{1,3}`.
const QWEN2: &[Alternative] = &[
    Alternative::Contraction(Case::Folded),
    LED_WORD,
    Alternative::Items(&[up_to(1, NUMBER)], Tail::Nothing),
    SIGNS_AND_LINE_ENDS,
    LINE_ENDS,
    SPACES_BEFORE_LAST,
    SPACES,
];

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
const UPPERISH: u16 = UPPER | TITLE | MODIFIER | OTHER_LETTER | MARK;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
const LOWERISH: u16 = LOWER | MODIFIER | OTHER_LETTER | MARK;

/// `LEAD?U*L+C?|LEAD?U+L*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`, where
/// LEAD is `[^\r\n\p{L}\p{N}]`, U is [`UPPERISH`], L is [`LOWERISH`], C a contraction in any case.
const GPT4O: &[Alternative] = &[
    Alternative::Items(
        &[
            MAYBE_LEAD,
            any_number(UPPERISH, 0),
            one_or_more(LOWERISH, 0),
        ],
        Tail::MaybeContraction,
    ),
    Alternative::Items(
        &[
            MAYBE_LEAD,
            one_or_more(UPPERISH, 0),
            any_number(LOWERISH, 0),
        ],
        Tail::MaybeContraction,
    ),
    Alternative::Items(&[up_to(3, NUMBER)], Tail::Nothing),
    Alternative::Items(
        &[MAYBE_BLANK, SIGNS, any_number(NEWLINE | SLASH, 0)],
        Tail::Nothing,
    ),
    LINE_ENDS,
    SPACES_BEFORE_LAST,
    SPACES,
];

/// Hands the words of `text` to `word`, in order; together they are `text`.
pub(crate) fn split(steps: &[PreTokenise], text: &str, word: &mut dyn FnMut(&str)) {
    if text.is_empty() {
        return;
    }
    let Some((step, later)) = steps.split_first() else {
        word(text);
        return;
    };
    let length: fn(&str) -> usize = match step {
        PreTokenise::Gpt2 => |rest| pattern_length(GPT2, rest),
        PreTokenise::Llama3 => |rest| pattern_length(LLAMA3, rest),
        PreTokenise::Qwen2 => |rest| pattern_length(QWEN2, rest),
        PreTokenise::Gpt4o => |rest| pattern_length(GPT4O, rest),
        PreTokenise::Digits => single_digit_length,
        PreTokenise::DigitRuns => digit_run_length,
        PreTokenise::Metaspace => metaspace_length,
    };
    let mut rest = text;
    while !rest.is_empty() {
        // A length is that of whole characters and at least one, so this ends.
        let (head, tail) = rest.split_at_checked(length(rest)).unwrap_or((rest, ""));
        split(later, head, word);
        rest = tail;
    }
}

fn single_digit_length(rest: &str) -> usize {
    match rest.chars().next() {
        Some(first) if first.is_numeric() => first.len_utf8(),
        _ => rest.find(char::is_numeric).unwrap_or(rest.len()),
    }
}

fn digit_run_length(rest: &str) -> usize {
    let numeric = rest.starts_with(char::is_numeric);
    rest.find(|next: char| next.is_numeric() != numeric)
        .unwrap_or(rest.len())
}

fn metaspace_length(rest: &str) -> usize {
    let first = rest.chars().next().map_or(0, char::len_utf8);
    let after = rest.get(first..).unwrap_or_default();
    after
        .find(METASPACE)
        .map_or(rest.len(), |offset| first.saturating_add(offset))
}

/// Bytes of the first alternative that matches at the start of `rest`. Every pattern of this file
/// matches any character; one that did not would stand alone.
fn pattern_length(pattern: &[Alternative], rest: &str) -> usize {
    pattern
        .iter()
        .find_map(|alternative| match alternative {
            Alternative::Contraction(case) => contraction(rest, *case),
            Alternative::Items(items, tail) => items_length(items, *tail, rest, 0),
        })
        .unwrap_or_else(|| rest.chars().next().map_or(0, char::len_utf8))
}

/// Greedy with backtracking, as a regular expression has it. The patterns hold at most two
/// unbounded items whose classes overlap, and what follows those two never fails, so a call is
/// linear in what it reads.
fn items_length(items: &[Item], tail: Tail, text: &str, start: usize) -> Option<usize> {
    let Some((item, later)) = items.split_first() else {
        return tail_length(tail, text, start);
    };
    let rest = text.get(start..)?;
    let mut end = start;
    let mut matched = 0;
    for character in rest.chars() {
        if matched == item.most || !item.matches(character) {
            break;
        }
        matched += 1;
        end += character.len_utf8();
    }
    while matched >= item.least {
        if let Some(length) = items_length(later, tail, text, end) {
            return Some(length);
        }
        let last = text
            .get(start..end)
            .and_then(|part| part.chars().next_back())?;
        end -= last.len_utf8();
        matched -= 1;
    }
    None
}

fn tail_length(tail: Tail, text: &str, end: usize) -> Option<usize> {
    let rest = text.get(end..)?;
    match tail {
        Tail::Nothing => Some(end),
        Tail::NoWordAfter => rest
            .chars()
            .next()
            .is_none_or(char::is_whitespace)
            .then_some(end),
        Tail::MaybeContraction => Some(end + contraction(rest, Case::Folded).unwrap_or(0)),
    }
}

fn contraction(rest: &str, case: Case) -> Option<usize> {
    let after = rest.strip_prefix('\'')?;
    let mut letters = after.chars().map(|letter| match (case, letter) {
        (Case::Kept, letter) => letter,
        // The long s is the one other character that folds to a letter of these endings.
        (Case::Folded, '\u{17f}') => 's',
        (Case::Folded, letter) => letter.to_ascii_lowercase(),
    });
    match (letters.next()?, letters.next()) {
        ('s' | 't' | 'm' | 'd', _) => Some(1 + after.chars().next().map_or(0, char::len_utf8)),
        ('r' | 'v', Some('e')) | ('l', Some('l')) => Some(3),
        _ => None,
    }
}

impl Item {
    fn matches(self, character: char) -> bool {
        let classes = classes(character);
        (self.any == 0 || classes & self.any != 0) && classes & self.none == 0
    }
}

#[cfg(test)]
mod tests;
