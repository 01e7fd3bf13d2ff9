//! Low-rank weights are two products. With factors that are exact in f32 (the identity, and powers
//! of two) they must give the dense answer to the bit.

use decoder_models::{StoredTensor, Weight};
use gkq_v2::Dtype;

use crate::fixture::{Fixture, Model, Stored, Values, bits};

#[test]
fn exact_factors_give_the_dense_bits() {
    for case in ["llama-bias-linear", "phi3"] {
        let fixture = Fixture::load(case);
        let ids = &fixture.runs[0].input_ids;
        let dense = bits(&fixture.model(Stored::F32).logits(ids));
        let mut source = fixture.source(Stored::F32);
        let mut factored = 0;
        for (name, tensor) in &fixture.tensors {
            if name.ends_with("_proj.weight") {
                source.0.insert(name.clone(), identity_factors(tensor));
                factored += 1;
            }
        }
        assert!(factored >= 8, "{case}: {factored}");
        let low_rank = Model::load(fixture.config(), &source);
        assert!(bits(&low_rank.logits(ids)) == dense, "{case}");
        let by_token = bits(&low_rank.logits_in(ids, std::iter::repeat(1)));
        assert!(by_token == dense, "{case}, token by token");
    }
}

/// `W = (W / 2) diag(4) (I / 2)`.
fn identity_factors(tensor: &Values) -> Weight {
    let [rows, cols] = tensor.shape[..] else {
        panic!("not a matrix")
    };
    let u: Vec<f32> = tensor.values.iter().map(|value| value / 2.0).collect();
    let vt: Vec<f32> = (0..cols * cols)
        .map(|i| if i / cols == i % cols { 0.5 } else { 0.0 })
        .collect();
    Weight::LowRank {
        u: stored(&u, vec![rows, cols]),
        s: stored(&vec![4.0; cols], vec![cols]),
        vt: stored(&vt, vec![cols, cols]),
    }
}

fn stored(values: &[f32], shape: Vec<usize>) -> StoredTensor {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    StoredTensor {
        dtype: Dtype::F32,
        shape,
        bytes: bytes.into(),
    }
}
