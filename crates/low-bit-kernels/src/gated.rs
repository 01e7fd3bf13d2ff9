//! The gates of feed-forward networks, `up *= act(gate)`, value by value. The same text is compiled for
//! every width of vectors and fuses nothing, so the bits are the same on all of them.

use crate::exponential::exp;
use crate::matrix::expect_length;
use crate::{Error, InstructionSet};

/// The function that a gate goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateFunction {
    /// `x sigmoid(x)`.
    Silu,
    /// `x/2 (1 + tanh(z))` with `z = sqrt(2/pi) (x + 0.044715 x^3)`, Hendrycks and Gimpel,
    /// arXiv:1606.08415.
    GeluTanh,
}

/// `up[i] *= function(gate[i])`.
///
/// # Errors
/// [`Error::Length`] if the two are not equally long.
pub fn apply_gate(function: GateFunction, gate: &[f32], up: &mut [f32]) -> Result<(), Error> {
    expect_length("gate (values)", (1, up.len()), gate.len())?;
    run(InstructionSet::current(), function, gate, up);
    Ok(())
}

fn run(set: InstructionSet, function: GateFunction, gate: &[f32], up: &mut [f32]) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 | InstructionSet::AvxVnni => {
            crate::simd::gate_avx2(function, gate, up);
        }
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => crate::simd::gate_avx512(function, gate, up),
        _ => gate_in(function, gate, up),
    }
}

/// The text of every path.
#[inline(always)]
pub(crate) fn gate_in(function: GateFunction, gate: &[f32], up: &mut [f32]) {
    match function {
        GateFunction::Silu => {
            for (up, gate) in up.iter_mut().zip(gate) {
                *up *= silu(*gate);
            }
        }
        GateFunction::GeluTanh => {
            for (up, gate) in up.iter_mut().zip(gate) {
                *up *= gelu_tanh(*gate);
            }
        }
    }
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// As `x sigmoid(2z)`, which is the same.
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    x / (1.0 + exp(-TWICE_SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)))
}

#[cfg(test)]
mod tests {
    use super::{GateFunction, apply_gate, run};
    use crate::InstructionSet;

    #[test]
    fn functions_are_their_formulas_and_saturate() {
        let inputs = [-200.0_f32, -20.0, -3.0, -0.5, 0.0, 0.25, 1.0, 4.0, 90.0];
        let values = |function| {
            let mut out = [1.0; 9];
            apply_gate(function, &inputs, &mut out).unwrap();
            out
        };
        let (silu, gelu) = (values(GateFunction::Silu), values(GateFunction::GeluTanh));
        for ((x, silu), gelu) in inputs.iter().map(|x| f64::from(*x)).zip(silu).zip(gelu) {
            let expected = x / (1.0 + (-x).exp());
            assert!(
                (f64::from(silu) - expected).abs() < 1e-6 * (1.0 + expected.abs()),
                "silu of {x}: {silu}"
            );
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            let expected = 0.5 * x * (1.0 + inner.tanh());
            assert!(
                (f64::from(gelu) - expected).abs() < 1e-6 * (1.0 + expected.abs()),
                "gelu of {x}: {gelu}"
            );
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let gate: Vec<f32> = (0..1013_u16)
            .map(|i| (f32::from(i) - 500.0) / 7.0)
            .collect();
        for function in [GateFunction::Silu, GateFunction::GeluTanh] {
            let bits = |set| {
                let mut up: Vec<f32> = gate.iter().map(|x| 1.5 - x).collect();
                run(set, function, &gate, &mut up);
                up.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let plain = bits(InstructionSet::Portable);
            for set in InstructionSet::ALL
                .into_iter()
                .filter(|set| set.is_available())
            {
                assert_eq!(bits(set), plain, "{set}");
            }
        }
    }

    #[test]
    fn unequal_lengths_are_refused() {
        let refused = apply_gate(GateFunction::Silu, &[1.0; 3], &mut [1.0; 4]);
        assert!(refused.is_err());
    }
}
