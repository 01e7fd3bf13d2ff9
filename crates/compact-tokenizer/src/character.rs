//! Character classes as bit sets, so that a pattern item is one mask test. Tables are the
//! `unicode-properties` crate's; the patterns that use the classes are in `pre_tokenise.rs`.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// `\p{Lu}`
pub(crate) const UPPER: u16 = 1;
/// `\p{Lt}`
pub(crate) const TITLE: u16 = 1 << 1;
/// `\p{Ll}`
pub(crate) const LOWER: u16 = 1 << 2;
/// `\p{Lm}`
pub(crate) const MODIFIER: u16 = 1 << 3;
/// `\p{Lo}`
pub(crate) const OTHER_LETTER: u16 = 1 << 4;
/// `\p{M}`
pub(crate) const MARK: u16 = 1 << 5;
/// `\p{N}`
pub(crate) const NUMBER: u16 = 1 << 6;
/// `\s`: the property `White_Space`
pub(crate) const SPACE: u16 = 1 << 7;
/// `[\r\n]`; always together with [`SPACE`]
pub(crate) const NEWLINE: u16 = 1 << 8;
/// U+0020; always together with [`SPACE`]
pub(crate) const BLANK: u16 = 1 << 9;
/// `/`
pub(crate) const SLASH: u16 = 1 << 10;
/// Everything else.
pub(crate) const REST: u16 = 1 << 11;
/// `\p{L}`
pub(crate) const LETTER: u16 = UPPER | TITLE | LOWER | MODIFIER | OTHER_LETTER;

const ASCII: [u16; 128] = {
    let mut table = [REST; 128];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = match byte {
            b'A'..=b'Z' => UPPER,
            b'a'..=b'z' => LOWER,
            b'0'..=b'9' => NUMBER,
            b' ' => SPACE | BLANK,
            b'\n' | b'\r' => SPACE | NEWLINE,
            b'\t' | 0x0b | 0x0c => SPACE,
            b'/' => SLASH,
            _ => REST,
        };
        byte += 1;
    }
    table
};

/// The classes of a character; never zero.
pub(crate) fn classes(character: char) -> u16 {
    if let Some(&known) = ASCII.get(character as usize) {
        return known;
    }
    if character.is_whitespace() {
        return SPACE;
    }
    match character.general_category() {
        GeneralCategory::UppercaseLetter => UPPER,
        GeneralCategory::TitlecaseLetter => TITLE,
        GeneralCategory::LowercaseLetter => LOWER,
        GeneralCategory::ModifierLetter => MODIFIER,
        GeneralCategory::OtherLetter => OTHER_LETTER,
        GeneralCategory::NonspacingMark
        | GeneralCategory::SpacingMark
        | GeneralCategory::EnclosingMark => MARK,
        GeneralCategory::DecimalNumber
        | GeneralCategory::LetterNumber
        | GeneralCategory::OtherNumber => NUMBER,
        _ => REST,
    }
}

/// `\w` as UTS #18 defines it: alphabetic, mark, decimal digit, connector or joiner.
pub(crate) fn is_word(character: char) -> bool {
    character.is_alphabetic()
        || matches!(character, '\u{200c}' | '\u{200d}')
        || matches!(
            character.general_category(),
            GeneralCategory::NonspacingMark
                | GeneralCategory::SpacingMark
                | GeneralCategory::EnclosingMark
                | GeneralCategory::DecimalNumber
                | GeneralCategory::ConnectorPunctuation
        )
}
