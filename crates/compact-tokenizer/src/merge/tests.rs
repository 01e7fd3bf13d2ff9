//! Scan and heap against each other and against a third way that recomputes everything.

use proptest::prelude::*;

use super::{Joiner, Merger, Rule, Symbol};
use crate::reader;
use crate::spec::{Algorithm, Merges, TokenKind, TokenSpec, TokenizerSpec};
use crate::tables::Tables;

/// A vocabulary over `a` and `b` in which every text of up to `longest` letters is a token.
fn tables(longest: u32, merges: impl FnOnce(&[TokenSpec]) -> Merges) -> Tables {
    let mut spec = TokenizerSpec::new(Algorithm::ByteLevel);
    for length in 1..=longest {
        for bits in 0..1_u32 << length {
            let text: Vec<u8> = (0..length)
                .map(|at| b'a' + u8::from(bits >> at & 1 == 1))
                .collect();
            spec.tokens.push(TokenSpec::new(text, TokenKind::Normal));
        }
    }
    spec.merges = merges(&spec.tokens);
    reader::read(spec.to_bytes().unwrap().into()).unwrap().1
}

/// Every split of every token, in an order that a seed decides.
fn listed(tokens: &[TokenSpec], seed: u64) -> Merges {
    let find = |text: &[u8]| {
        (0_u32..)
            .zip(tokens)
            .find(|(_, token)| token.text == text)
            .unwrap()
            .0
    };
    let mut merges = Vec::new();
    for (id, token) in (0_u32..).zip(tokens) {
        for cut in 1..token.text.len() {
            let (left, right) = token.text.split_at(cut);
            merges.push([find(left), find(right), id]);
        }
    }
    let shuffled = |merge: &[u32; 3]| {
        merge.iter().fold(seed, |state, &part| {
            (state ^ u64::from(part))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        })
    };
    merges.sort_by_key(shuffled);
    Merges::Listed(merges)
}

fn start(tables: &Tables, word: &[u8]) -> Vec<Symbol> {
    let id = |byte: u8| tables.find(&[byte]).unwrap();
    (0..)
        .zip(word)
        .map(|(at, &byte)| Symbol::new(id(byte), at, 1))
        .collect()
}

/// Recomputes every pair for every merge.
fn naive(joiner: Joiner<'_>, mut symbols: Vec<Symbol>) -> Vec<u32> {
    while let Some((_, left, merged)) = (1..symbols.len())
        .filter_map(|right| {
            let (rank, merged) = joiner.join(&symbols[right - 1], &symbols[right])?;
            Some((rank, right - 1, merged))
        })
        .min()
    {
        let right = symbols.remove(left + 1);
        symbols[left].id = merged;
        symbols[left].bytes += right.bytes;
    }
    symbols.iter().map(|symbol| symbol.id).collect()
}

fn check(tables: &Tables, rule: Rule, word: &[u8]) {
    let joiner = Joiner { tables, rule, word };
    let ids = |merge: fn(&mut Merger, Joiner<'_>)| {
        let mut merger = Merger {
            symbols: start(tables, word),
            ..Merger::default()
        };
        merge(&mut merger, joiner);
        merger
            .symbols
            .iter()
            .map(|symbol| symbol.id)
            .collect::<Vec<u32>>()
    };
    let expected = naive(joiner, start(tables, word));
    assert_eq!(ids(Merger::merge_by_scan), expected, "scan");
    assert_eq!(ids(Merger::merge_by_heap), expected, "heap");
    assert_eq!(ids(Merger::merge), expected, "choice between the two");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn listed_merges_agree(seed in any::<u64>(), word in prop::collection::vec(b'a'..=b'b', 0..70)) {
        check(&tables(4, |tokens| listed(tokens, seed)), Rule::Listed, &word);
    }

    #[test]
    fn scored_merges_agree(
        scores in prop::collection::vec(-6_i8..0, 30),
        word in prop::collection::vec(b'a'..=b'b', 0..70),
    ) {
        // Few distinct scores, so that ties are common.
        let scores = scores.into_iter().map(f32::from).collect();
        check(&tables(4, |_| Merges::Scored(scores)), Rule::Scored, &word);
    }
}

#[test]
fn a_text_without_words_is_not_quadratic() {
    let tables = tables(6, |tokens| listed(tokens, 7));
    let word: Vec<u8> = (0..1_000_000_u32)
        .map(|at| b'a' + (at.wrapping_mul(2_654_435_761) >> 31) as u8)
        .collect();
    let mut merger = Merger {
        symbols: start(&tables, &word),
        ..Merger::default()
    };
    merger.merge(Joiner {
        tables: &tables,
        rule: Rule::Listed,
        word: &word,
    });
    let bytes: u64 = merger
        .symbols
        .iter()
        .map(|symbol| u64::from(symbol.bytes))
        .sum();
    assert_eq!(bytes, 1_000_000);
}
