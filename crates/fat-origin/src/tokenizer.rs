//! Tokenizers of checkpoints, described as compact tokenizers. Whatever the sources say that the
//! compact form has no word for is refused by name; nothing is approximated. The compact form is
//! specified in `docs/format/tokenizer.md`.

pub mod gguf;
pub mod hugging_face;

/// SentencePiece's stand-in for a space.
const METASPACE: &str = "\u{2581}";

/// The bytes that a byte-level token's printable text stands for, or `None` if a character is not in
/// the alphabet of GPT-2 (its `bytes_to_unicode`): printable Latin-1 stands for itself, the other
/// bytes follow from U+0100 in ascending order.
fn bytes_of_alphabet(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of_letter).collect()
}

fn byte_of_letter(letter: char) -> Option<u8> {
    match u32::from(letter) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        // 0x00 to 0x20, then 0x7f to 0xa0, then 0xad.
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// Whether a text is a byte token's: `<0x00>` to `<0xFF>`.
fn is_byte_token(text: &str) -> bool {
    text.strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'))
        .is_some_and(|digits| {
            digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        })
}

#[cfg(test)]
mod tests {
    use super::{byte_of_letter, is_byte_token};

    #[test]
    fn the_alphabet_has_every_byte_once() {
        let mut bytes: Vec<u8> = (0..0x200)
            .filter_map(char::from_u32)
            .filter_map(byte_of_letter)
            .collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of_letter('Ġ'), Some(b' '));
        assert_eq!(byte_of_letter('Ċ'), Some(b'\n'));
        assert_eq!(byte_of_letter('▁'), None);
    }

    #[test]
    fn byte_tokens_are_told_by_their_text() {
        assert!(is_byte_token("<0x0A>"));
        assert!(!is_byte_token("<0x0>"));
        assert!(!is_byte_token("<0xZZ>"));
        assert!(!is_byte_token("x<0x0A>"));
    }
}
