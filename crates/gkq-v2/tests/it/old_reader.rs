//! The frozen old reader of `fixtures/gkq-v2/old-reader` against knots written today.

#[path = "../../../../fixtures/gkq-v2/old-reader/old_reader.rs"]
pub(crate) mod frozen;

use gkq_v2::{BlockSpec, ColumnarSpec, Dtype, KnotDraft, Payload};

use crate::golden::{CLEAR, EMBEDDING, SET, embedding_rows};
use crate::hexdump::golden;
use crate::row_store::row_tree;

#[test]
fn it_loads_both_goldens_dense_with_equal_bytes() {
    let (clear, set) = (frozen::load(&golden(CLEAR)), frozen::load(&golden(SET)));
    let (clear, set) = (clear.unwrap(), set.unwrap());
    assert_eq!(clear.blocks.len(), 4);
    assert_eq!(
        clear, set,
        "the bit and its sections change nothing that an old reader sees"
    );
    let embedding = clear.blocks.last().unwrap();
    assert_eq!((embedding.name.as_str(), embedding.kind), (EMBEDDING, 1));
    assert_eq!(
        (embedding.dtype, embedding.shape.as_slice()),
        (30, [5, 4].as_slice())
    );
    assert_eq!(embedding.payload, embedding_rows());
}

#[test]
fn it_refuses_a_knot_without_its_matrix_by_name() {
    let mut draft = KnotDraft::new();
    let spec = BlockSpec::dense(EMBEDDING, Dtype::Bf16, &[5, 4]);
    let block = draft
        .block(spec.columnar(ColumnarSpec::default()).external())
        .unwrap();
    let mut plan = draft.plan().unwrap();
    let rows = embedding_rows();
    plan.record_digest(Payload::Block(block), *blake3::hash(&rows).as_bytes())
        .unwrap();
    let tree = row_tree(&rows, 8);
    plan.record_row_tree(block, tree.root, &tree.pinned_nodes)
        .unwrap();
    let error = frozen::load(&plan.finish().unwrap()).unwrap_err();
    assert_eq!(
        error,
        format!("required flags 0x00010000 of {EMBEDDING} are not known")
    );
}
