//! The greatest of many values, as greedy decoding looks for it among a vocabulary's logits. A scan
//! that compares value by value with the best so far waits for every comparison; this one takes
//! sixteen at once and looks for the place only in blocks that hold something greater.

/// Values of a block.
const BLOCK: usize = 256;
/// Values that are compared at once.
const LANES: usize = 16;

/// Where the greatest value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greatest {
    /// At this index, the lowest of equal ones.
    At(usize),
    /// The value at this index, the first of its kind, is a NaN or positive infinity: there is no
    /// order to speak of.
    Unordered(usize),
    /// There are no values.
    Nothing,
}

/// The place of the greatest of `values`.
#[must_use]
pub fn greatest(values: &[f32]) -> Greatest {
    let mut best: Option<(usize, f32)> = None;
    for (index, block) in values.chunks(BLOCK).enumerate() {
        let (largest, ordered) = of_block(block);
        if !ordered {
            let place = block.iter().position(|value| !is_ordered(*value));
            return Greatest::Unordered(index * BLOCK + place.unwrap_or(0));
        }
        if best.is_none_or(|(_, greatest)| largest > greatest) {
            let place = block.iter().position(|value| *value == largest);
            best = Some((index * BLOCK + place.unwrap_or(0), largest));
        }
    }
    best.map_or(Greatest::Nothing, |(index, _)| Greatest::At(index))
}

fn is_ordered(value: f32) -> bool {
    value < f32::INFINITY
}

/// The largest of a block, and whether all of it is ordered.
fn of_block(block: &[f32]) -> (f32, bool) {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let mut ordered = [true; LANES];
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane];
            largest[lane] = if value > largest[lane] {
                value
            } else {
                largest[lane]
            };
            ordered[lane] &= is_ordered(value);
        }
    }
    let lanes = largest.iter().chain(rest);
    let largest = lanes.fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
    let all = ordered.into_iter().all(|lane| lane) && rest.iter().all(|value| is_ordered(*value));
    (largest, all)
}

#[cfg(test)]
mod tests {
    use super::{Greatest, greatest};
    use proptest::prelude::*;

    /// Value by value.
    fn naive(values: &[f32]) -> Greatest {
        if let Some(index) = values
            .iter()
            .position(|value| value.is_nan() || *value == f32::INFINITY)
        {
            return Greatest::Unordered(index);
        }
        let mut best = None;
        for (index, value) in values.iter().enumerate() {
            if best.is_none_or(|best: usize| *value > values[best]) {
                best = Some(index);
            }
        }
        best.map_or(Greatest::Nothing, Greatest::At)
    }

    proptest! {
        /// Few distinct values, so that equal ones meet within and across blocks.
        #[test]
        fn it_is_what_a_plain_scan_finds(
            values in prop::collection::vec(-5_i8..5, 0..1200), odd in prop::option::of((0_usize..1200, any::<bool>())),
        ) {
            let mut values: Vec<f32> = values.into_iter().map(f32::from).collect();
            if let Some((at, nan)) = odd && at < values.len() {
                values[at] = if nan { f32::NAN } else { f32::INFINITY };
            }
            prop_assert_eq!(greatest(&values), naive(&values));
        }
    }

    #[test]
    fn the_ends_count_too() {
        assert_eq!(greatest(&[]), Greatest::Nothing);
        assert_eq!(greatest(&[f32::NEG_INFINITY; 300]), Greatest::At(0));
        let mut values = vec![-1.0; 1000];
        values[999] = 0.0;
        assert_eq!(greatest(&values), Greatest::At(999));
    }
}
