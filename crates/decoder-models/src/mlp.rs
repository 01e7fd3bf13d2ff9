//! The gated feed-forward network that all families share: `down(act(gate(x)) * up(x))`. How gate
//! and up are stored (apart, or fused as in Phi-3) is the family's affair.

use low_bit_kernels::{GateFunction, apply_gate};
use rayon::prelude::*;

use crate::Error;
use crate::buffers::{Buffers, sized};
use crate::config::{Activation, DecoderConfig};
use crate::linear::{Bias, Linear};
use crate::slices::PARALLEL_VALUES;
use crate::weights::WeightSource;

/// Rows taken at once: gate and up of a whole prompt chunk would be a station's largest
/// activations, and a row's bits don't depend on how many come along.
const ROWS_AT_ONCE: usize = 128;

/// `[rows, hidden]` to `[rows, hidden]` by way of `[rows, intermediate]`.
#[derive(Debug)]
pub(crate) struct GatedMlp {
    pub(crate) gate_proj: Linear,
    pub(crate) up_proj: Linear,
    pub(crate) down_proj: Linear,
    pub(crate) activation: Activation,
}

impl GatedMlp {
    /// Loads `{prefix}.mlp.{gate,up,down}_proj`.
    pub(crate) fn load(
        config: &DecoderConfig,
        source: &dyn WeightSource,
        prefix: &str,
        bias: Bias,
    ) -> Result<Self, Error> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        Ok(Self {
            gate_proj: Linear::load(
                source,
                &format!("{prefix}.mlp.gate_proj"),
                [inner, hidden],
                bias,
            )?,
            up_proj: Linear::load(
                source,
                &format!("{prefix}.mlp.up_proj"),
                [inner, hidden],
                bias,
            )?,
            down_proj: Linear::load(
                source,
                &format!("{prefix}.mlp.down_proj"),
                [hidden, inner],
                bias,
            )?,
            activation: config.hidden_act,
        })
    }

    /// `buffers.normed` to `buffers.out`, `[rows, hidden]` both.
    pub(crate) fn forward(&self, rows: usize, buffers: &mut Buffers) -> Result<(), Error> {
        let (hidden, inner) = (self.down_proj.out_features(), self.up_proj.out_features());
        let Buffers {
            normed,
            out,
            gate,
            up,
            ..
        } = buffers;
        let out = sized(out, rows * hidden);
        let parts = normed.chunks(ROWS_AT_ONCE * hidden);
        for (input, out) in parts.zip(out.chunks_mut(ROWS_AT_ONCE * hidden)) {
            let rows = input.len() / hidden;
            let (gate, up) = (sized(gate, rows * inner), sized(up, rows * inner));
            let parts = [(&self.gate_proj, &mut *gate), (&self.up_proj, &mut *up)];
            Linear::apply_together(parts, input, rows)?;
            self.activation.gate(gate, up, inner)?;
            self.down_proj.apply(up, rows, out)?;
        }
        Ok(())
    }
}

impl Activation {
    /// `up *= act(gate)`, value by value, in rows of `width`.
    pub(crate) fn gate(self, gate: &[f32], up: &mut [f32], width: usize) -> Result<(), Error> {
        let function = match self {
            Self::Silu => GateFunction::Silu,
            Self::GeluTanh => GateFunction::GeluTanh,
        };
        let failed = |source| Error::operation("gate", source);
        if up.len() < PARALLEL_VALUES {
            return apply_gate(function, gate, up).map_err(failed);
        }
        let rows = up.par_chunks_mut(width).zip(gate.par_chunks(width));
        rows.try_for_each(|(up, gate)| apply_gate(function, gate, up))
            .map_err(failed)
    }
}
