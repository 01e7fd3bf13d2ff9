//! Which tensors go into a knot, in which order and dtype. Layers first, in the order a forward pass
//! reads them, so that a station computes while the rest arrives; the vocabulary matrix last, because
//! many stations never fetch it.

use gkq_v2::Dtype;

use super::{BlockDtype, PackOptions};
use crate::Error;
use crate::checkpoint::{Checkpoint, EMBEDDING, HEAD, Tensor};

/// A tensor on its way into the knot.
#[derive(Clone, Debug)]
pub(super) struct Selected {
    pub(super) tensor: Tensor,
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    pub(super) source: Dtype,
    pub(super) target: Dtype,
}

/// All of a knot's tensors.
#[derive(Debug)]
pub(super) struct Selection {
    /// Layers in order, the final norm, the head of an untied model.
    pub(super) body: Vec<Selected>,
    pub(super) embedding: Selected,
    pub(super) tied: bool,
}

/// Chunk of the comparison between head and embedding.
const COMPARE_BYTES: u64 = 4 << 20;

pub(super) fn select(checkpoint: &Checkpoint, options: &PackOptions) -> Result<Selection, Error> {
    let embedding = checkpoint.tensor(EMBEDDING)?;
    let source = checkpoint.dtype(embedding)?;
    let selected = selected(checkpoint, embedding, options.embed_dtype.target(source))?;
    if selected.shape.len() != 2 {
        return Err(Error::malformed(
            &checkpoint.path,
            format!("tensor `{EMBEDDING}`"),
            "two dimensions",
            format!("shape {:?}", selected.shape),
        ));
    }
    let tied = match checkpoint.tensors.get(HEAD) {
        None => true,
        Some(head) => same_values(checkpoint, embedding, head, options)?,
    };
    let mut body = Vec::new();
    for tensor in checkpoint.tensors.values() {
        if tensor.name == EMBEDDING || (tensor.name == HEAD && tied) {
            continue;
        }
        let source = checkpoint.dtype(tensor)?;
        body.push(self::selected(
            checkpoint,
            tensor,
            body_target(tensor, source, options.block_dtype),
        )?);
    }
    body.sort_by_cached_key(|selected| order(&selected.name));
    Ok(Selection {
        body,
        embedding: selected,
        tied,
    })
}

fn selected(checkpoint: &Checkpoint, tensor: &Tensor, target: Dtype) -> Result<Selected, Error> {
    let source = checkpoint.dtype(tensor)?;
    // A scalar is a vector of one: a knot's tensors have at least one dimension.
    let shape = if tensor.shape.is_empty() {
        vec![1]
    } else {
        tensor.shape.clone()
    };
    let stored = tensor.range.end - tensor.range.start;
    if source.tensor_bytes(&shape) != Some(stored) {
        return Err(Error::malformed(
            &checkpoint.path,
            format!("tensor `{}`", tensor.name),
            format!("whole rows of {source} in shape {shape:?}"),
            format!("{stored} bytes"),
        ));
    }
    Ok(Selected {
        tensor: tensor.clone(),
        name: tensor.name.clone(),
        shape,
        source,
        target,
    })
}

/// Matrices of the layers whose rows are whole blocks are quantised; norms, biases, a head of its own
/// and what is quantised already stay as they are.
fn body_target(tensor: &Tensor, source: Dtype, wanted: BlockDtype) -> Dtype {
    let is_layer_matrix = tensor.name.starts_with("model.layers.") && tensor.shape.len() == 2;
    let cols = tensor.shape.last().copied().unwrap_or(0);
    let whole = Dtype::Q8_0.row_bytes(cols).is_some_and(|bytes| bytes > 0);
    match wanted {
        BlockDtype::Q8_0 if is_layer_matrix && source.is_float() && whole => Dtype::Q8_0,
        BlockDtype::Q8_0 | BlockDtype::Keep => source,
    }
}

/// Whether the head is the embedding once more: that is decided by the tensors. Configs say
/// `tie_word_embeddings` wrongly in both directions.
fn same_values(
    checkpoint: &Checkpoint,
    embedding: &Tensor,
    head: &Tensor,
    options: &PackOptions,
) -> Result<bool, Error> {
    let len = embedding.range.end - embedding.range.start;
    if embedding.shape != head.shape
        || embedding.dtype != head.dtype
        || head.range.end - head.range.start != len
    {
        return Ok(false);
    }
    let mut offset = 0;
    while offset < len {
        options.stop.check()?;
        let chunk = usize::try_from(COMPARE_BYTES.min(len - offset)).unwrap_or(0);
        let (mut one, mut other) = (vec![0; chunk], vec![0; chunk]);
        checkpoint.read(embedding, offset, &mut one)?;
        checkpoint.read(head, offset, &mut other)?;
        if one != other {
            return Ok(false);
        }
        offset += chunk as u64;
    }
    Ok(true)
}

/// Sort key: layers by number, inside a layer by the order of use, then what follows the layers.
fn order(name: &str) -> (u8, u32, usize, String) {
    const IN_LAYER: [&str; 16] = [
        "input_layernorm",
        "self_attn.qkv_proj",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.q_norm",
        "self_attn.k_norm",
        "self_attn.o_proj",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "mlp.gate_up_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
        "post_feedforward_layernorm",
        "",
    ];
    let layer = name
        .strip_prefix("model.layers.")
        .and_then(|rest| rest.split_once('.'));
    if let Some((number, module)) = layer
        && let Ok(number) = number.parse()
    {
        let rank = IN_LAYER
            .iter()
            .position(|known| module.starts_with(known))
            .unwrap_or(IN_LAYER.len());
        return (0, number, rank, name.to_owned());
    }
    let rank = if name == HEAD { 2 } else { 1 };
    (rank, 0, 0, name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn layers_come_in_numeric_order_and_the_head_last() {
        let mut names = vec![
            "lm_head.weight",
            "model.norm.weight",
            "model.layers.10.input_layernorm.weight",
            "model.layers.2.mlp.down_proj.weight",
            "model.layers.2.self_attn.q_proj.weight",
            "model.layers.2.self_attn.q_proj.bias",
            "model.layers.2.input_layernorm.weight",
        ];
        names.sort_by_cached_key(|name| order(name));
        assert_eq!(
            names,
            [
                "model.layers.2.input_layernorm.weight",
                "model.layers.2.self_attn.q_proj.bias",
                "model.layers.2.self_attn.q_proj.weight",
                "model.layers.2.mlp.down_proj.weight",
                "model.layers.10.input_layernorm.weight",
                "model.norm.weight",
                "lm_head.weight",
            ]
        );
    }
}
