//! The gated feed-forward network that all families share: `down(act(gate(x)) * up(x))`. How gate
//! and up are stored (apart, or fused as in Phi-3) is the family's affair.

use candle_core::{CpuStorage, InplaceOp2, Layout, Result as CandleResult, Tensor};

use crate::Error;
use crate::config::{Activation, DecoderConfig};
use crate::exponential::exp;
use crate::linear::{Bias, Linear};
use crate::slices::{contiguous_f32, for_rows};
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

    pub(crate) fn forward(&self, hidden: &Tensor) -> Result<Tensor, Error> {
        let rows = hidden.dims().first().copied().unwrap_or(0);
        if rows <= ROWS_AT_ONCE {
            return self.forward_rows(hidden);
        }
        let mut parts = Vec::with_capacity(rows.div_ceil(ROWS_AT_ONCE));
        for start in (0..rows).step_by(ROWS_AT_ONCE) {
            let part = hidden.narrow(0, start, ROWS_AT_ONCE.min(rows - start))?;
            parts.push(self.forward_rows(&part)?);
        }
        Ok(Tensor::cat(&parts, 0)?)
    }

    fn forward_rows(&self, hidden: &Tensor) -> Result<Tensor, Error> {
        let [gate, up] = Linear::forward_together([&self.gate_proj, &self.up_proj], hidden)?;
        // In place, and the gate let go early: these are the largest activations of a prompt.
        up.inplace_op2(&gate, &Gate(self.activation))?;
        drop(gate);
        self.down_proj.forward(&up)
    }
}

/// `up *= act(gate)`, value by value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate(pub(crate) Activation);

impl InplaceOp2 for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn cpu_fwd(
        &self,
        up_storage: &mut CpuStorage,
        up_layout: &Layout,
        gate_storage: &CpuStorage,
        gate_layout: &Layout,
    ) -> CandleResult<()> {
        let gate = contiguous_f32(gate_storage, gate_layout, self.name())?;
        let CpuStorage::F32(up) = up_storage else {
            candle_core::bail!("gate: the other operand is not f32");
        };
        let (Some((start, end)), true) = (
            up_layout.contiguous_offsets(),
            gate_layout.dims() == up_layout.dims(),
        ) else {
            candle_core::bail!(
                "gate: {:?} against {:?}",
                gate_layout.dims(),
                up_layout.dims()
            );
        };
        let width = gate_layout.dims().last().copied().unwrap_or(1).max(1);
        for_rows(&mut up[start..end], width, |index, row| {
            let gate = &gate[index * width..][..width];
            match self.0 {
                Activation::Silu => row
                    .iter_mut()
                    .zip(gate)
                    .for_each(|(up, gate)| *up *= silu(*gate)),
                Activation::GeluTanh => row
                    .iter_mut()
                    .zip(gate)
                    .for_each(|(up, gate)| *up *= gelu_tanh(*gate)),
            }
        });
        Ok(())
    }
}

/// `x sigmoid(x)`.
#[inline]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `x/2 (1 + tanh(z))` with `z = sqrt(2/pi) (x + 0.044715 x^3)`, Hendrycks and Gimpel,
/// arXiv:1606.08415; the same as `x sigmoid(2z)`.
#[inline]
fn gelu_tanh(x: f32) -> f32 {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    x / (1.0 + exp(-TWICE_SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)))
}
