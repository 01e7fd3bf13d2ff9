//! Angles against f64 arithmetic, scalings against their formulas, rotation against complex numbers.

use super::Rope;
use crate::config::{RopeConfig, RopeLayout, RopeScaling};

fn config(rope_theta: f64, rotary_dim: usize, scaling: RopeScaling) -> RopeConfig {
    RopeConfig {
        rope_theta,
        rotary_dim,
        scaling,
        freq_factors: None,
    }
}

fn frequencies(config: &RopeConfig) -> Vec<f32> {
    Rope::new(config, RopeLayout::Half).frequencies
}

fn assert_close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (f64::from(*found) - expected).abs() <= 3e-7 * expected.abs(),
            "{found} for {expected}"
        );
    }
}

#[test]
fn a_pair_turns_like_a_complex_number() {
    let rope = Rope::new(&config(10_000.0, 4, RopeScaling::Default), RopeLayout::Half);
    let interleaved = Rope {
        layout: RopeLayout::Interleaved,
        ..rope.clone()
    };
    let row = [0.5_f32, -1.0, 2.0, 0.25, 9.0, 8.0];
    let rotated = |rope: &Rope, position| {
        let mut turned = row;
        rope.angles(position, 1, 100_000).rotate(&mut turned, 6);
        turned
    };
    for position in [0_usize, 1, 77, 65_000] {
        let angles = [position as f64, position as f64 * 0.01];
        // (dimension, partner) of each pair in the two layouts; dimensions 4 and 5 pass through.
        for (rope, pairs) in [(&rope, [(0, 2), (1, 3)]), (&interleaved, [(0, 1), (2, 3)])] {
            let found = rotated(rope, position);
            assert_eq!(found[4..], row[4..]);
            for ((x, y), angle) in pairs.into_iter().zip(angles) {
                let (a, b) = (f64::from(row[x]), f64::from(row[y]));
                let (sin, cos) = angle.sin_cos();
                // f32 positions times f32 frequencies: an angle of 650 is off by up to 4e-5.
                assert!(
                    (f64::from(found[x]) - (a * cos - b * sin)).abs() < 2e-4,
                    "{position}"
                );
                assert!(
                    (f64::from(found[y]) - (b * cos + a * sin)).abs() < 2e-4,
                    "{position}"
                );
            }
        }
    }
}

#[test]
fn linear_and_divisors_divide() {
    let plain = [1.0, 0.1, 0.01, 0.001];
    assert_close(
        &frequencies(&config(10_000.0, 8, RopeScaling::Default)),
        &plain,
    );
    let linear = config(10_000.0, 8, RopeScaling::Linear { factor: 4.0 });
    assert_close(&frequencies(&linear), &plain.map(|f| f / 4.0));
    let divided = RopeConfig {
        freq_factors: Some(vec![1.0, 2.0, 4.0, 8.0]),
        ..config(10_000.0, 8, RopeScaling::Default)
    };
    assert_close(&frequencies(&divided), &[1.0, 0.05, 0.0025, 0.000_125]);
}

#[test]
fn llama3_keeps_blends_and_stretches() {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    let found = frequencies(&config(500_000.0, 128, scaling));
    let plain = frequencies(&config(500_000.0, 128, RopeScaling::Default));
    // Wavelengths below 2,048 are kept (pair 28 has 1,957), those above 8,192 divided by 8.
    assert_eq!(found[..29], plain[..29]);
    assert_close(
        &found[35..],
        &plain[35..]
            .iter()
            .map(|f| f64::from(*f) / 8.0)
            .collect::<Vec<_>>(),
    );
    for pair in 29..35 {
        assert!(
            found[pair] < plain[pair] && found[pair] > plain[pair] / 8.0,
            "{pair}"
        );
    }
}

#[test]
fn longrope_chooses_by_capacity_and_scales_both_parts() {
    let scaling = RopeScaling::LongRope {
        short_factor: vec![1.0, 2.0],
        long_factor: vec![4.0, 8.0],
        original_max_position_embeddings: 32,
        attention_factor: 1.25,
    };
    let rope = Rope::new(&config(10_000.0, 4, scaling), RopeLayout::Half);
    let cosines = |capacity| rope.angles(3, 1, capacity).cosines;
    let expected = |angles: [f64; 2]| angles.map(|angle| 1.25 * angle.cos());
    assert_close(&cosines(32), &expected([3.0, 0.015]));
    assert_close(&cosines(33), &expected([0.75, 0.00375]));
}

#[test]
fn yarn_keeps_fast_dimensions_and_stretches_slow_ones() {
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        original_max_position_embeddings: 32_768,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: true,
        attention_factor: 1.0,
    };
    let found = frequencies(&config(1_000_000.0, 128, scaling));
    let plain = frequencies(&config(1_000_000.0, 128, RopeScaling::Default));
    // Correction range of Qwen 2.5: dimensions 23 to 40.
    assert_eq!(found[..24], plain[..24]);
    assert_close(
        &found[40..],
        &plain[40..]
            .iter()
            .map(|f| f64::from(*f) / 4.0)
            .collect::<Vec<_>>(),
    );
    assert!(found[31] < plain[31] && found[31] > plain[31] / 4.0);
}

#[test]
fn angles_of_a_position_don_t_depend_on_their_company() {
    let rope = Rope::new(
        &config(10_000.0, 64, RopeScaling::Default),
        RopeLayout::Half,
    );
    let many = rope.angles(1000, 50, 4096);
    for index in [0, 1, 49] {
        let alone = rope.angles(1000 + index, 1, 4096);
        assert_eq!(alone.cosines, many.cosines[index * 32..][..32]);
        assert_eq!(alone.sines, many.sines[index * 32..][..32]);
    }
}
