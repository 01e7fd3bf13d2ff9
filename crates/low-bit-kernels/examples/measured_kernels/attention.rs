//! One layer's attention over halves, 9 query heads on 3 key/value heads of 64 as SmolLM2 has them: a token after a long
//! context, and a piece of a prompt.

use low_bit_kernels::attention::{AttentionShape, CacheValue, KeyValues, attend};

use super::{Case, values};

const SHAPE: AttentionShape = AttentionShape {
    heads: 9,
    kv_heads: 3,
    head_dim: 64,
    capacity: 1024,
    window: None,
    scale: 0.125,
    soft_cap: None,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("attention decode at 1000", 1, 1000),
        case("attention prefill 16 at 240", 16, 240),
    ]
}

/// `tokens` queries, the first at `start`.
fn case(name: &str, tokens: usize, start: usize) -> Case {
    let wide = values(SHAPE.kv_heads * SHAPE.capacity * SHAPE.head_dim);
    let mut cache = vec![0_u16; wide.len()];
    u16::store(&wide, &mut cache).expect("as long as what it holds");
    let q = values(tokens * SHAPE.heads * SHAPE.head_dim);
    let mut out = vec![0.0; q.len()];
    let call = move || {
        let cache = KeyValues {
            keys: &cache,
            values: &cache,
        };
        attend(&SHAPE, &q, cache, start, &mut out)
    };
    Case {
        name: name.to_owned(),
        call: Box::new(call),
    }
}
