//! Bytes from strangers: whatever comes, opening ends with a knot that keeps its promises, or with an
//! error. Never a panic.

use gkq_v2::{HEADER_BYTES, Knot};
use proptest::prelude::*;

use crate::golden::{CLEAR, SET};
use crate::hexdump::golden;
use crate::rejects::seal_front;

/// What holds for every knot that was opened.
fn check_promises(knot: &Knot) {
    let object_bytes = knot.object_bytes();
    let mut stored = Vec::new();
    for block in knot.blocks() {
        assert!(std::ptr::eq(knot.block(&block.name).unwrap(), block));
        let bytes = block.payload.end - block.payload.start;
        if block.is_external() {
            assert_eq!(bytes, 0);
        } else {
            assert_eq!(Some(bytes), block.stored_bytes());
            stored.push(block.payload.clone());
        }
        assert_eq!(block.is_columnar_eligible(), block.columnar.is_some());
        if let Some(columnar) = &block.columnar {
            assert_eq!(
                block.stored_bytes(),
                Some(columnar.rows * u64::from(columnar.row_bytes))
            );
            assert!(knot.front_slice(&columnar.pinned_nodes).is_some());
        }
    }
    stored.extend(knot.sections().iter().map(|section| section.range.clone()));
    stored.sort_by_key(|range| range.start);
    assert!(stored.iter().all(|range| range.end <= object_bytes));
    assert!(
        stored.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "{stored:?}"
    );
}

#[test]
fn every_prefix_is_an_error() {
    for name in [CLEAR, SET] {
        let file = golden(name);
        let object_bytes = file.len() as u64;
        let front_bytes = Knot::front_len(&file).unwrap() as usize;
        for cut in 0..file.len() {
            let prefix = &file[..cut];
            assert!(
                Knot::parse(prefix, cut as u64).is_err(),
                "an object of {cut} bytes"
            );
            assert_eq!(
                Knot::parse(prefix, object_bytes).is_err(),
                cut < front_bytes,
                "{cut}"
            );
            assert_eq!(
                Knot::front_len(prefix).is_err(),
                cut < HEADER_BYTES,
                "{cut}"
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_the_front_is_found() {
    let mut file = golden(SET);
    let object_bytes = file.len() as u64;
    let front_bytes = Knot::front_len(&file).unwrap() as usize;
    for byte in 0..front_bytes {
        for bit in 0..8 {
            file[byte] ^= 1 << bit;
            assert!(
                Knot::parse(&file, object_bytes).is_err(),
                "bit {bit} of byte {byte}"
            );
            file[byte] ^= 1 << bit;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn mutations_never_panic(
        columnar in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut file = golden(if columnar { SET } else { CLEAR });
        let front_bytes = Knot::front_len(&file).unwrap() as usize;
        for (place, value) in changes {
            file[place.index(front_bytes)] = value;
        }
        seal_front(&mut file);
        if let Ok(knot) = Knot::parse(&file, file.len() as u64) {
            check_promises(&knot);
        }
    }

    #[test]
    fn numbers_at_their_edges_never_panic(
        place in any::<prop::sample::Index>(),
        wide in any::<bool>(),
        value in prop::sample::select(vec![
            0, 1, 63, 64, 65, u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX - 63, u64::MAX,
        ]),
    ) {
        let mut file = golden(SET);
        let front_bytes = Knot::front_len(&file).unwrap() as usize;
        let start = place.index(front_bytes / 4 - 1) * 4;
        let width = if wide { 8 } else { 4 };
        file[start..start + width].copy_from_slice(&value.to_le_bytes()[..width]);
        seal_front(&mut file);
        if let Ok(knot) = Knot::parse(&file, file.len() as u64) {
            check_promises(&knot);
        }
    }

    #[test]
    fn noise_behind_a_good_magic_never_panics(
        noise in prop::collection::vec(any::<u8>(), 0..600),
        counts in prop::array::uniform3(0_u32..4),
    ) {
        let mut file = golden(CLEAR)[..12].to_vec();
        file.extend(noise);
        if file.len() >= HEADER_BYTES {
            file.resize(file.len().next_multiple_of(64), 0);
            let bytes = (file.len() as u64).to_le_bytes();
            file[12..96].fill(0);
            file[16..24].copy_from_slice(&bytes);
            file[24..32].copy_from_slice(&bytes);
            for (index, count) in counts.iter().enumerate() {
                file[32 + 4 * index..36 + 4 * index].copy_from_slice(&count.to_le_bytes());
            }
            seal_front(&mut file);
        }
        if let Ok(knot) = Knot::parse(&file, file.len() as u64) {
            check_promises(&knot);
        }
    }
}
