//! Every family against Hugging Face transformers, on f32 and on bf16 weights.

use crate::fixture::{CASES, Fixture, Stored, largest_difference};

/// f32 sums of up to 96 products in another order than torch's, through three layers, on logits of
/// up to 25: the differences seen are below 2e-5.
const TOLERANCE: f32 = 1e-4;

#[test]
fn every_family_gives_the_logits_of_transformers() {
    for case in CASES {
        let fixture = Fixture::load(case);
        for stored in [Stored::F32, Stored::Bf16] {
            let model = fixture.model(stored);
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

/// Rounded weights give nearly the same answer: a fused matrix cut at the wrong row, or a scale read
/// wrongly, would not. The errors seen are a third of the bound.
#[test]
fn rounded_weights_stay_near_transformers() {
    for case in CASES {
        let fixture = Fixture::load(case);
        for (stored, bound) in [(Stored::F16, 1e-5), (Stored::Q8_0, 0.1)] {
            let model = fixture.model(stored);
            let run = &fixture.runs[0];
            let logits = model.logits(&run.input_ids);
            let last = &logits[logits.len() - run.logits.values.len()..];
            let energy = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
            let error = energy(&mut last.iter().zip(&run.logits.values).map(|(l, r)| l - r));
            let relative = (error / energy(&mut run.logits.values.iter().copied())).sqrt();
            eprintln!("{case} {stored:?}: relative error {relative:.1e}");
            assert!(relative <= bound, "{case} {stored:?}: {relative}");
        }
    }
}

/// The tolerance means something: leaving out any one vector of a model shows.
#[test]
fn a_changed_norm_shows_in_the_logits() {
    let mut fixture = Fixture::load("gemma3");
    let name = "model.layers.1.post_feedforward_layernorm.weight";
    fixture.tensors.get_mut(name).unwrap().values.fill(0.0);
    let run = &fixture.runs[0];
    let logits = fixture.model(Stored::F32).logits(&run.input_ids);
    assert!(largest_difference(&logits, &run.logits.values) > 100.0 * TOLERANCE);
}
