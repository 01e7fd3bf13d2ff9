//! Each pattern against the regular expression it stands for, matched by a regular-expression crate.

use std::sync::LazyLock;

use fancy_regex::Regex;
use proptest::prelude::*;

use super::split;
use crate::spec::PreTokenise;

const SPELLED: [(PreTokenise, &str); 4] = [
    (
        PreTokenise::Gpt2,
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    ),
    (
        PreTokenise::Llama3,
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        PreTokenise::Qwen2,
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        PreTokenise::Gpt4o,
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

fn words(steps: &[PreTokenise], text: &str) -> Vec<String> {
    let mut words = Vec::new();
    split(steps, text, &mut |word| words.push(word.to_owned()));
    words
}

fn check_against_regex(text: &str) {
    static REGEXES: LazyLock<[(PreTokenise, Regex); 4]> =
        LazyLock::new(|| SPELLED.map(|(step, spelled)| (step, Regex::new(spelled).unwrap())));
    for (step, regex) in REGEXES.iter() {
        let expected: Vec<&str> = regex
            .find_iter(text)
            .map(|found| found.unwrap().as_str())
            .collect();
        assert_eq!(expected.concat(), text, "the pattern leaves nothing out");
        assert_eq!(words(&[*step], text), expected, "{step:?} on {text:?}");
    }
}

/// Text in which the classes of the patterns meet often.
fn tangled_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "a", "B", "é", "ß", "ǅ", "ʰ", "中", "ᄀ", "\u{301}", "\u{fe0f}", "1", "٣", "½", "Ⅷ", " ", "  ",
            "\t", "\n", "\r", "\r\n", "\u{85}", "\u{a0}", "\u{3000}", "\u{200d}", "'", "'s", "'S", "'re", "'VE",
            "'ll", "'ſ", "’s", "/", "//", "!", "?!", "_", "€", "😀", "👩\u{200d}💻", "\u{0}", "\u{e000}",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn patterns_are_their_regular_expressions(text in tangled_text()) {
        // Both sides have their own Unicode tables: characters assigned between the two versions
        // may differ and say nothing about the patterns.
        prop_assume!(text.chars().all(agreed));
        check_against_regex(&text);
    }

    #[test]
    fn steps_cut_without_losing_a_byte(text in tangled_text()) {
        for steps in [
            &[PreTokenise::Digits, PreTokenise::Gpt2][..],
            &[PreTokenise::DigitRuns, PreTokenise::Qwen2],
            &[PreTokenise::Metaspace],
            &[],
        ] {
            let words = words(steps, &text);
            prop_assert_eq!(words.concat(), text.as_str());
            prop_assert!(words.iter().all(|word| !word.is_empty()));
        }
    }
}

fn agreed(character: char) -> bool {
    static CLASSES: LazyLock<[(u16, Regex); 3]> = LazyLock::new(|| {
        [
            (super::LETTER, Regex::new(r"\p{L}").unwrap()),
            (super::NUMBER, Regex::new(r"\p{N}").unwrap()),
            (super::MARK, Regex::new(r"\p{M}").unwrap()),
        ]
    });
    let mut buffer = [0; 4];
    let text = character.encode_utf8(&mut buffer);
    CLASSES.iter().all(|(class, regex)| {
        regex.is_match(text).unwrap() == (super::classes(character) & class != 0)
    })
}

#[test]
fn digits_and_words_stand_apart() {
    let steps = [PreTokenise::Digits, PreTokenise::Gpt2];
    assert_eq!(
        words(&steps, "in 2026, it's"),
        ["in", " ", "2", "0", "2", "6", ",", " it", "'s"]
    );
    assert_eq!(
        words(&[PreTokenise::DigitRuns], "a12b½"),
        ["a", "12", "b", "½"]
    );
    assert_eq!(
        words(&[PreTokenise::Metaspace], "a▁b▁▁c"),
        ["a", "▁b", "▁", "▁c"]
    );
}

/// A run of one class is scanned a bounded number of times, not once for each of its characters.
#[test]
fn long_runs_are_linear() {
    for run in [
        " ", "\t", "\n", "a", "A", "1", "!", "中", "\u{301}", "'", "/",
    ] {
        let text = run.repeat(200_000);
        for (step, _) in SPELLED {
            assert_eq!(words(&[step], &text).concat().len(), text.len());
        }
    }
}
