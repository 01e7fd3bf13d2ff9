//! The normaliser steps, applied to one stretch of text between added tokens. Specification:
//! `docs/format/tokenizer.md`, normaliser.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick, is_nfkc_quick};

use crate::spec::Normalise;

/// SentencePiece's stand-in for a space.
pub(crate) const METASPACE: char = '\u{2581}';

/// Where in the whole text a stretch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Start,
    Later,
}

/// The stretch after all steps; borrowed where none changed it.
pub(crate) fn apply<'a>(steps: &[Normalise], text: &'a str, position: Position) -> Cow<'a, str> {
    let mut text = Cow::Borrowed(text);
    for step in steps {
        if let Some(changed) = apply_one(*step, &text, position) {
            text = Cow::Owned(changed);
        }
    }
    text
}

fn apply_one(step: Normalise, text: &str, position: Position) -> Option<String> {
    let prepended = || format!("{METASPACE}{text}");
    let missing = !text.is_empty() && !text.starts_with(METASPACE);
    match step {
        Normalise::Nfc => {
            let normal = text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes;
            (!normal).then(|| text.nfc().collect())
        }
        Normalise::Nfkc => {
            let normal = text.is_ascii() || is_nfkc_quick(text.chars()) == IsNormalized::Yes;
            (!normal).then(|| text.nfkc().collect())
        }
        Normalise::EscapeSpaces => text
            .contains(' ')
            .then(|| text.replace(' ', METASPACE.encode_utf8(&mut [0; 4]))),
        Normalise::Prepend => (!text.is_empty()).then(prepended),
        Normalise::PrependMissing => missing.then(prepended),
        Normalise::PrependFirst => (missing && position == Position::Start).then(prepended),
    }
}

#[cfg(test)]
mod tests {
    use super::{Position, apply};
    use crate::spec::Normalise::{
        self, EscapeSpaces, Nfc, Nfkc, Prepend, PrependFirst, PrependMissing,
    };

    fn check(steps: &[Normalise], text: &str, start: &str, later: &str) {
        assert_eq!(apply(steps, text, Position::Start), start);
        assert_eq!(apply(steps, text, Position::Later), later);
    }

    #[test]
    fn each_step_does_what_its_name_says() {
        check(
            &[Nfc],
            "e\u{301}\u{fb01}",
            "\u{e9}\u{fb01}",
            "\u{e9}\u{fb01}",
        );
        check(&[Nfkc], "e\u{301}\u{fb01}", "\u{e9}fi", "\u{e9}fi");
        check(&[EscapeSpaces], " a b", "▁a▁b", "▁a▁b");
        check(&[Prepend, EscapeSpaces], " a", "▁▁a", "▁▁a");
        check(&[EscapeSpaces, PrependMissing], " a", "▁a", "▁a");
        check(&[EscapeSpaces, PrependFirst], "a", "▁a", "a");
        check(&[Prepend, PrependFirst, PrependMissing], "", "", "");
    }

    #[test]
    fn text_in_normal_form_is_not_copied() {
        for text in ["plain", "déjà vu"] {
            assert!(matches!(
                apply(&[Nfc], text, Position::Start),
                std::borrow::Cow::Borrowed(_)
            ));
        }
    }
}
