//! Every family against Hugging Face transformers, on f32 and on bf16 weights.

use crate::fixture::{CASES, Fixture, Stored, largest_difference};

/// f32 sums of up to 96 products in another order than torch's, through three layers, on logits of
/// up to 25: the differences seen are below 2e-5.
const TOLERANCE: f32 = 1e-4;

/// A half is off by up to 2^-11 = 4.9e-4 of itself. Errors of the logits are of that order: 2.5e-4 to
/// 9.8e-4 over the nine models, of which the bound is twice the largest.
const HALVED_KV: f32 = 2e-3;

#[test]
fn every_family_gives_the_logits_of_transformers() {
    for case in CASES {
        let fixture = Fixture::load(case);
        for stored in [Stored::F32, Stored::Bf16] {
            let model = fixture.exact_model(stored);
            for (index, run) in fixture.runs.iter().enumerate() {
                let logits = model.logits(&run.input_ids);
                let last = &logits[logits.len() - run.logits.values.len()..];
                let difference = largest_difference(last, &run.logits.values);
                eprintln!("{case} {stored:?} run {index}: largest difference {difference:.1e}");
                assert!(
                    difference <= TOLERANCE,
                    "{case} {stored:?} run {index}: {difference}"
                );
            }
        }
    }
}

/// Keys and values as every user has them.
#[test]
fn halved_keys_and_values_stay_near_transformers() {
    for case in CASES {
        let fixture = Fixture::load(case);
        let model = fixture.model(Stored::F32);
        for (index, run) in fixture.runs.iter().enumerate() {
            let logits = model.logits(&run.input_ids);
            let last = &logits[logits.len() - run.logits.values.len()..];
            let error = relative_error(last, &run.logits.values);
            let difference = largest_difference(last, &run.logits.values);
            eprintln!("{case} run {index}: relative error {error:.1e}, largest {difference:.1e}");
            assert!(error <= HALVED_KV, "{case} run {index}: {error}");
        }
    }
}

/// Rounded weights give nearly the same answer: a fused matrix cut at the wrong row, or a scale read
/// wrongly, would not. The errors seen are a third of the bound.
#[test]
fn rounded_weights_stay_near_transformers() {
    for case in CASES {
        let fixture = Fixture::load(case);
        for (stored, bound) in [(Stored::F16, 1e-5), (Stored::Q8_0, 0.1)] {
            let model = fixture.exact_model(stored);
            let run = &fixture.runs[0];
            let logits = model.logits(&run.input_ids);
            let last = &logits[logits.len() - run.logits.values.len()..];
            let relative = relative_error(last, &run.logits.values);
            eprintln!("{case} {stored:?}: relative error {relative:.1e}");
            assert!(relative <= bound, "{case} {stored:?}: {relative}");
        }
    }
}

/// Length of the difference over the length of `expected`.
fn relative_error(found: &[f32], expected: &[f32]) -> f32 {
    let energy = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
    let error = energy(&mut found.iter().zip(expected).map(|(found, x)| found - x));
    (error / energy(&mut expected.iter().copied())).sqrt()
}

/// The tolerance means something: leaving out any one vector of a model shows.
#[test]
fn a_changed_norm_shows_in_the_logits() {
    let mut fixture = Fixture::load("gemma3");
    let name = "model.layers.1.post_feedforward_layernorm.weight";
    fixture.tensors.get_mut(name).unwrap().values.fill(0.0);
    let run = &fixture.runs[0];
    let logits = fixture.exact_model(Stored::F32).logits(&run.input_ids);
    assert!(largest_difference(&logits, &run.logits.values) > 100.0 * TOLERANCE);
}
