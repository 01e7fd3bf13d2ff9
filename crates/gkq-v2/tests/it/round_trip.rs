//! Whatever the writer accepts, the reader gives back.

use gkq_v2::{BlockBody, BlockSpec, Dtype, Knot, KnotDraft, Payload, SectionKind};
use proptest::prelude::*;

/// A block as declared.
#[derive(Clone, Debug)]
struct Declared {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    rank: Option<u32>,
    source: Dtype,
    digest: [u8; 32],
    error: f64,
}

fn any_block() -> impl Strategy<Value = Declared> {
    let dtypes = prop::sample::select(Dtype::ALL.to_vec());
    let shape = prop::collection::vec(1_u64..6, 1..=4);
    let rank = prop::option::of(1_u32..4);
    (
        ".{1,20}",
        dtypes.clone(),
        shape,
        rank,
        dtypes,
        any::<[u8; 32]>(),
        0.0..1.0_f64,
    )
        .prop_map(|(name, dtype, mut shape, rank, source, digest, error)| {
            let rank = rank.filter(|_| dtype.is_float());
            if rank.is_some() {
                shape = vec![3 + shape[0], 4 + shape[0]];
            } else {
                *shape.last_mut().unwrap() *= dtype.values_per_block();
            }
            let kept = rank.is_none() && source == dtype;
            let error = if kept { 0.0 } else { error };
            Declared {
                name,
                dtype,
                shape,
                rank,
                source,
                digest,
                error,
            }
        })
}

proptest! {
    #[test]
    fn a_knot_comes_back_as_declared(
        mut declared in prop::collection::vec(any_block(), 0..8),
        config in "\\PC{0,40}",
        tokenizer_bytes in 0_u64..200,
    ) {
        for (index, block) in declared.iter_mut().enumerate() {
            block.name.push_str(&index.to_string());
        }
        let mut draft = KnotDraft::new();
        if !config.is_empty() {
            draft.front_section(SectionKind::ModelConfig, config.clone().into_bytes()).unwrap();
        }
        let tokenizer = (tokenizer_bytes > 0).then(|| {
            draft.payload_section(SectionKind::Tokenizer, tokenizer_bytes).unwrap()
        });
        let mut ids = Vec::new();
        for block in &declared {
            let spec = match (block.rank, block.shape.as_slice()) {
                (Some(rank), &[rows, cols]) => {
                    BlockSpec::spectral(&block.name, block.dtype, [rows, cols], rank)
                }
                _ => BlockSpec::dense(&block.name, block.dtype, &block.shape),
            };
            ids.push(draft.block(spec.converted_from(block.source)).unwrap());
        }
        let mut plan = draft.plan().unwrap();
        if let Some(tokenizer) = tokenizer {
            plan.record_digest(Payload::Section(tokenizer), [7; 32]).unwrap();
        }
        for (id, block) in ids.iter().zip(&declared) {
            plan.record_digest(Payload::Block(*id), block.digest).unwrap();
            plan.record_error(*id, block.error).unwrap();
        }
        let object_bytes = plan.object_bytes();
        let planned = plan.payloads().to_vec();
        let front = plan.finish().unwrap();
        let knot = Knot::parse(&front, object_bytes).unwrap();

        prop_assert_eq!(knot.front_bytes(), front.len() as u64);
        prop_assert_eq!(knot.text(SectionKind::ModelConfig).unwrap_or_default(), config);
        prop_assert_eq!(knot.section(SectionKind::Tokenizer).is_some(), tokenizer.is_some());
        prop_assert_eq!(knot.blocks().len(), declared.len());
        for ((id, block), found) in ids.iter().zip(&declared).zip(knot.blocks()) {
            prop_assert_eq!(&found.name, &block.name);
            prop_assert_eq!(&found.shape, &block.shape);
            prop_assert_eq!((found.dtype(), found.source_dtype), (block.dtype, block.source));
            prop_assert_eq!((found.blake3, found.error), (block.digest, block.error));
            let rank = match &found.body {
                BlockBody::Spectral { rank, .. } => Some(*rank),
                _ => None,
            };
            prop_assert_eq!(rank, block.rank);
            let place = planned.iter().find(|planned| planned.payload == Payload::Block(*id));
            prop_assert_eq!(Some(&found.payload), place.map(|planned| &planned.range));
            prop_assert_eq!(found.payload.start % 64, 0);
        }
    }
}
