//! What a GGUF stores differently (order of rotated rows, norms with their one), rows of every
//! dtype, and a head asked for some of its rows.

use candle_core::{Device, Tensor};
use decoder_models::{DecoderConfig, embed_rows};
use gkq_v2::Dtype;

use crate::fixture::{Fixture, Model, Stored, bits, largest_difference};

/// The order in which a GGUF of llama stores the rows of each head: pair by pair.
fn interleave_rows(values: &[f32], cols: usize, head_dim: usize) -> Vec<f32> {
    let half = head_dim / 2;
    let mut rows = Vec::with_capacity(values.len());
    for head in values.chunks_exact(head_dim * cols) {
        for pair in 0..half {
            for row in [pair, pair + half] {
                rows.extend_from_slice(&head[row * cols..(row + 1) * cols]);
            }
        }
    }
    rows
}

#[test]
fn interleaved_rows_give_the_same_answer() {
    let mut fixture = Fixture::load("llama-bias-linear");
    let ids = fixture.runs[0].input_ids.clone();
    let head_dim = fixture.config().head_dim;
    for (name, tensor) in &mut fixture.tensors {
        if name.contains("q_proj") || name.contains("k_proj") {
            let cols = tensor.shape.get(1).copied().unwrap_or(1);
            tensor.values = interleave_rows(&tensor.values, cols, head_dim);
        }
    }
    let halves = fixture.exact_model(Stored::F32).logits(&ids);
    assert!(
        largest_difference(&halves, &fixture.runs[0].logits.values) > 0.1,
        "the order matters"
    );
    fixture.config_json = with_gkq(&fixture.config_json, r#"{ "rope_layout": "interleaved" }"#);
    let logits = fixture.exact_model(Stored::F32).logits(&ids);
    assert!(largest_difference(&logits, &fixture.runs[0].logits.values) <= 1e-4);
}

#[test]
fn norms_that_include_their_one_give_the_same_answer() {
    let mut fixture = Fixture::load("gemma3");
    let ids = fixture.runs[0].input_ids.clone();
    for (name, tensor) in &mut fixture.tensors {
        if name.ends_with("norm.weight") {
            tensor.values.iter_mut().for_each(|value| *value += 1.0);
        }
    }
    fixture.config_json = with_gkq(
        &fixture.config_json,
        r#"{ "norm_weight_includes_one": true }"#,
    );
    let logits = fixture.exact_model(Stored::F32).logits(&ids);
    assert!(largest_difference(&logits, &fixture.runs[0].logits.values) <= 1e-4);
}

/// llama3 scaling as a GGUF carries it: one divisor per frequency.
#[test]
fn divisors_of_frequencies_stand_for_llama3_scaling() {
    let mut fixture = Fixture::load("llama3-rope");
    let run = &fixture.runs[0];
    // The rule of `_compute_llama3_parameters`, for theta 10,000, head_dim 32, factor 8 over 64.
    let divisor = |pair: usize| {
        let frequency = 10_000_f64.powf(-(2.0 * pair as f64) / 32.0);
        let turns = 64.0 * frequency / std::f64::consts::TAU;
        let smooth = ((turns - 1.0) / 3.0).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / 8.0 + smooth)
    };
    let factors: Vec<String> = (0..16).map(|pair| divisor(pair).to_string()).collect();
    let gkq = format!(r#"{{ "rope_freq_factors": [{}] }}"#, factors.join(", "));
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&fixture.config_json).unwrap();
    fields.remove("rope_scaling");
    let plain = serde_json::to_string(&fields).unwrap();
    let (ids, expected) = (run.input_ids.clone(), run.logits.values.clone());
    let compare = |fixture: &Fixture| {
        let logits = fixture.exact_model(Stored::F32).logits(&ids);
        largest_difference(&logits[logits.len() - expected.len()..], &expected)
    };
    fixture.config_json.clone_from(&plain);
    assert!(
        compare(&fixture) > 1e-2,
        "without scaling the answer is another"
    );
    fixture.config_json = with_gkq(&plain, &gkq);
    assert!(compare(&fixture) <= 1e-4);
}

/// Values that every type holds exactly, so that each must give the same hidden states.
#[test]
fn rows_of_any_dtype_become_hidden_states() {
    let config = Fixture::load("gemma3").config();
    let exact: Vec<f32> = (0..64)
        .map(|i| if i % 32 == 0 { 127.0 } else { (i % 7) as f32 })
        .collect();
    let expected: Vec<f32> = exact.iter().map(|value| value * 8.0).collect();
    for (dtype, weight_type) in [
        (Dtype::F32, low_bit_kernels::WeightType::F32),
        (Dtype::F16, low_bit_kernels::WeightType::F16),
        (Dtype::Bf16, low_bit_kernels::WeightType::Bf16),
        (Dtype::Q8_0, low_bit_kernels::WeightType::Q8_0),
    ] {
        let row = low_bit_kernels::quantise_rows(weight_type, &exact, 64).unwrap();
        let hidden = embed_rows(dtype, &[&row, &row], &config).unwrap();
        assert_eq!(hidden.dims(), [2, 64]);
        for row in hidden.to_vec2::<f32>().unwrap() {
            assert_eq!(row, expected, "{dtype}");
        }
        let short = embed_rows(dtype, &[&row[..], &row[1..]], &config)
            .unwrap_err()
            .to_string();
        let bytes = row.len();
        let named = format!(
            "embedding row 1 of {dtype} has {} bytes, expected {bytes}",
            bytes - 1
        );
        assert_eq!(short, named);
    }
}

#[test]
fn a_part_of_the_head_has_the_bits_of_the_whole() {
    for case in ["gemma3", "llama3-rope"] {
        let fixture = Fixture::load(case);
        for stored in Stored::ALL {
            let model: Model = fixture.model(stored);
            let hidden: Vec<f32> = (0..3 * 64)
                .map(|i| ((i * 37 % 101) as f32 - 50.0) / 20.0)
                .collect();
            let hidden = Tensor::from_vec(hidden, (3, 64), &Device::Cpu).unwrap();
            let whole = model.head.logits(&hidden).unwrap();
            assert_eq!(whole.len(), 3 * model.head.vocab_size());
            let part = model.head.logits_of(17..40, &hidden).unwrap();
            let cut: Vec<f32> = whole
                .chunks_exact(96)
                .flat_map(|row| row[17..40].to_vec())
                .collect();
            assert_eq!(bits(&part), bits(&cut), "{case} {stored:?}");
            let alone = model.head.logits(&hidden.narrow(0, 1, 1).unwrap()).unwrap();
            assert_eq!(bits(&alone), bits(&whole[96..192]), "{case} {stored:?}");
            assert!(
                model.head.logits_of(90..97, &hidden).is_err(),
                "beyond the vocabulary"
            );
        }
    }
}

#[test]
fn a_soft_cap_bounds_the_logits() {
    let fixture = Fixture::load("gemma3");
    let model = fixture.model(Stored::F32);
    let hidden = Tensor::full(1000.0_f32, (1, 64), &Device::Cpu).unwrap();
    let logits = model.head.logits(&hidden).unwrap();
    assert!(logits.iter().all(|logit| logit.abs() <= 20.0));
    assert!(logits.iter().any(|logit| logit.abs() > 19.0));
}

fn with_gkq(config_json: &str, gkq: &str) -> String {
    let json = config_json.trim_end().strip_suffix('}').unwrap().to_owned()
        + &format!(", \"gkq\": {gkq} }}");
    DecoderConfig::from_json(&json).unwrap();
    json
}
