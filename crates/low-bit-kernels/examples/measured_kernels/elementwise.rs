//! What goes over values one by one: the gates of a layer, and the greatest of a vocabulary's logits.

use std::hint::black_box;

use low_bit_kernels::{GateFunction, apply_gate, greatest};

use super::{Case, values};

/// The intermediate size of SmolLM2.
const GATED: usize = 1536;

/// The vocabulary of SmolLM2.
const LOGITS: usize = 49_152;

pub(super) fn cases() -> Vec<Case> {
    let logits = values(LOGITS);
    let scan = move || {
        black_box(greatest(&logits));
        Ok(())
    };
    vec![
        gate("gate silu 1536", GateFunction::Silu),
        gate("gate gelu-tanh 1536", GateFunction::GeluTanh),
        Case {
            name: "greatest of 49152".to_owned(),
            call: Box::new(scan),
        },
    ]
}

fn gate(name: &str, function: GateFunction) -> Case {
    let gate = values(GATED);
    let mut up = values(GATED);
    Case {
        name: name.to_owned(),
        call: Box::new(move || apply_gate(function, &gate, &mut up)),
    }
}
