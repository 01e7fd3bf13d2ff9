//! Activations on their way through a layer. They are taken once for a pass and serve every layer:
//! fresh ones for each operation would be given back to the system and zeroed page by page again
//! (65,000 page faults in a prompt of 634 tokens, a quarter of its time on two threads).

use crate::rope::RopeAngles;

/// All that a pass works in. A cache keeps it for the next token, which then takes no memory.
#[derive(Debug, Default)]
pub(crate) struct PassBuffers {
    pub(crate) layer: Buffers,
    pub(crate) angles: RopeAngles,
    /// Of layers with a sliding window, where those have a rotary embedding of their own.
    pub(crate) local_angles: RopeAngles,
}

/// The buffers of a layer. Each holds what it was last given, `[rows, ...]`.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// What a module reads: normed hidden states.
    pub(crate) normed: Vec<f32>,
    /// What a module leaves, to be added to the hidden states.
    pub(crate) out: Vec<f32>,
    pub(crate) query: Vec<f32>,
    pub(crate) key: Vec<f32>,
    pub(crate) value: Vec<f32>,
    /// Values as attention has mixed them.
    pub(crate) mixed: Vec<f32>,
    pub(crate) gate: Vec<f32>,
    pub(crate) up: Vec<f32>,
}

/// A buffer at this length, with whatever it holds.
pub(crate) fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.resize(len, 0.0);
    buffer
}
