//! Numbers drawn from a seed, the same on every machine: which rows and ranges are looked at.

/// `count` numbers below `bound`; they may repeat. None where `bound` is 0.
pub(super) fn numbers(seed: u64, count: u64, bound: u64) -> impl Iterator<Item = u64> {
    let count = if bound == 0 { 0 } else { count };
    (0..count).map(move |index| {
        let mut input = [0; 16];
        input[..8].copy_from_slice(&seed.to_le_bytes());
        input[8..].copy_from_slice(&index.to_le_bytes());
        let digest = blake3::derive_key("fat-origin publish sample v1", &input);
        let mut number = [0; 8];
        number.copy_from_slice(&digest[..8]);
        // 64 random bits: the bias of the remainder is below one in a million for any real object.
        u64::from_le_bytes(number) % bound
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_below_their_bound_and_follow_the_seed() {
        let of = |seed| numbers(seed, 100, 151_936).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert!(of(1).iter().all(|&number| number < 151_936));
        assert!(
            of(1).iter().any(|&number| number > 75_968),
            "all over the range"
        );
        assert_eq!(numbers(1, 3, 0).count(), 0);
        assert_eq!(numbers(1, 3, 1).collect::<Vec<_>>(), [0, 0, 0]);
    }
}
