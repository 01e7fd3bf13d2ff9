//! A hundred sessions through one station-wide cache. With room for every row asked (8,192), the cache moves each
//! distinct id once: the arithmetic below is the cache's behaviour, and the acceptance runs hold the row store to it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// Sessions drawn.
pub(super) const SESSIONS: usize = 100;
/// Ids fetched once before the first session: the most frequent of the mix.
pub(super) const WARM_IDS: usize = 100;
/// Tokens of a session drawn from natural texts.
pub(super) const WINDOW_TOKENS: usize = 600;
/// Seed of both draws.
pub(super) const SEED: u64 = 100;

/// Rows that crossed the wire.
#[derive(Serialize)]
pub(super) struct SharedCache {
    pub(super) sessions: usize,
    pub(super) tokens: usize,
    pub(super) warm_rows: usize,
    pub(super) cold_rows: usize,
}

/// Whole texts, one a session.
pub(super) fn draw_whole(texts: &[&[u32]]) -> SharedCache {
    let mut random = SplitMix64(SEED);
    let drawn: Vec<&[u32]> = (0..SESSIONS)
        .map(|_| texts[random.below(texts.len())])
        .collect();
    share(texts, &drawn)
}

/// Windows of [`WINDOW_TOKENS`] at a random place of a random text.
pub(super) fn draw_windows(texts: &[&[u32]]) -> SharedCache {
    let mut random = SplitMix64(SEED);
    let mut window = || {
        let text = texts[random.below(texts.len())];
        let last_start = text.len().saturating_sub(WINDOW_TOKENS);
        let start = random.below(last_start + 1);
        &text[start..text.len().min(start + WINDOW_TOKENS)]
    };
    let drawn: Vec<&[u32]> = (0..SESSIONS).map(|_| window()).collect();
    share(texts, &drawn)
}

fn share(mix: &[&[u32]], drawn: &[&[u32]]) -> SharedCache {
    let warm = most_frequent(mix);
    let asked: BTreeSet<u32> = drawn
        .iter()
        .flat_map(|session| session.iter().copied())
        .collect();
    SharedCache {
        sessions: drawn.len(),
        tokens: drawn.iter().map(|session| session.len()).sum(),
        warm_rows: warm.len(),
        cold_rows: asked.difference(&warm).count(),
    }
}

/// The [`WARM_IDS`] ids that occur most often in the mix; of equals, the lower id.
fn most_frequent(mix: &[&[u32]]) -> BTreeSet<u32> {
    let mut occurrences: BTreeMap<u32, usize> = BTreeMap::new();
    for id in mix.iter().flat_map(|text| text.iter()) {
        *occurrences.entry(*id).or_default() += 1;
    }
    let mut ranked: Vec<(u32, usize)> = occurrences.into_iter().collect();
    ranked.sort_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
    ranked
        .into_iter()
        .take(WARM_IDS)
        .map(|(id, _)| id)
        .collect()
}

/// Vigna's SplitMix64 (<https://prng.di.unimi.it/splitmix64.c>): ten lines in any language, so that the independent
/// validation draws the same sessions.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; the bias of the remainder is below 2^-50 for the bounds used here.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{SplitMix64, draw_whole};

    #[test]
    fn splitmix64_gives_its_published_first_values() {
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_row_is_counted_once_and_warm_rows_are_not_cold() {
        let text: Vec<u32> = (0..150).collect();
        let shared = draw_whole(&[&text]);
        assert_eq!(
            (shared.warm_rows, shared.cold_rows, shared.tokens),
            (100, 50, 15_000)
        );
    }
}
