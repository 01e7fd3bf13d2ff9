//! Knots whose tensor has a row store of several kinds of rows: the sidecar lies in the front, and
//! readers from before it load the tensor dense.

use gkq_v2::{BlockId, BlockSpec, ColumnarSpec, Dtype, Error, Knot, KnotDraft, KnotPlan, Payload};
use gkq_v2::{Place, SectionKind};

use crate::fields::find;
use crate::golden::{EMBEDDING, embedding_rows};
use crate::old_reader::frozen;
use crate::rejects::seal_front;
use crate::row_store::row_tree;

/// Any bytes will do here: a knot keeps them and does not read them.
const SIDECAR: &[u8] = b"which kind each row has";

/// The embedding of the goldens with a row store of 5 rows of 3 bytes, all but its sidecar recorded.
fn planned() -> (KnotPlan, BlockId) {
    let mut draft = KnotDraft::new();
    let spec = BlockSpec::dense(EMBEDDING, Dtype::Bf16, &[5, 4]).columnar(ColumnarSpec {
        row_sidecar_bytes: SIDECAR.len() as u64,
        ..ColumnarSpec::default()
    });
    let block = draft.block(spec).unwrap();
    let mut plan = draft.plan().unwrap();
    let digest = *blake3::hash(&embedding_rows()).as_bytes();
    plan.record_digest(Payload::Block(block), digest).unwrap();
    let stored = row_tree(&[7; 15], 3);
    plan.record_row_tree(block, stored.root, &stored.pinned_nodes)
        .unwrap();
    (plan, block)
}

fn knot() -> Vec<u8> {
    let (mut plan, block) = planned();
    plan.record_row_sidecar(block, SIDECAR).unwrap();
    let payload = plan.range(Payload::Block(block)).unwrap();
    let mut file = plan.finish().unwrap();
    assert_eq!(file.len() as u64, payload.start);
    file.extend(embedding_rows());
    file
}

#[test]
fn the_sidecar_comes_with_the_front() {
    let file = knot();
    let knot = Knot::parse(&file, file.len() as u64).unwrap();
    let columnar = knot.blocks()[0].columnar.as_ref().unwrap();
    let sidecar = columnar.row_sidecar.clone().unwrap();
    assert!(sidecar.end <= knot.front_bytes());
    assert_eq!(knot.front_slice(&sidecar).unwrap(), SIDECAR);
    let section = knot.section_of(EMBEDDING, SectionKind::RowSidecar).unwrap();
    assert_eq!(section.range, sidecar);
    assert_eq!(section.kind.to_string(), "row-sidecar");
    assert_eq!(columnar.tree_root, row_tree(&[7; 15], 3).root);
    assert_eq!(columnar.rows_blake3, knot.blocks()[0].blake3);
}

#[test]
fn a_reader_from_before_it_loads_the_block() {
    let old = frozen::load(&knot()).unwrap();
    let embedding = old.blocks.last().unwrap();
    assert_eq!(embedding.name, EMBEDDING);
    assert_eq!(embedding.payload, embedding_rows());
}

#[test]
fn a_declared_sidecar_must_be_recorded_at_its_length() {
    let (plan, _) = planned();
    assert_eq!(
        plan.finish().unwrap_err().to_string(),
        format!("section row-sidecar of {EMBEDDING:?}: the sidecar was not recorded before finish")
    );
    let (mut plan, block) = planned();
    match plan.record_row_sidecar(block, &SIDECAR[1..]) {
        Err(Error::Mismatch {
            place: Place::Section { kind, tensor },
            expected: 23,
            found: 22,
            ..
        }) => {
            assert_eq!(kind, SectionKind::RowSidecar);
            assert_eq!(tensor.as_deref(), Some(EMBEDDING));
        }
        other => panic!("{other:?}"),
    }
    let mut draft = KnotDraft::new();
    let plain = BlockSpec::dense(EMBEDDING, Dtype::Bf16, &[5, 4]).columnar(ColumnarSpec::default());
    let block = draft.block(plain).unwrap();
    let undeclared = draft.plan().unwrap().record_row_sidecar(block, SIDECAR);
    assert!(matches!(undeclared, Err(Error::NotDeclared { .. })));
}

#[test]
fn a_sidecar_belongs_to_a_columnar_eligible_block() {
    let file = knot();
    let place = find(&file, "section[2].block");
    let mut orphan = file.clone();
    orphan[place].copy_from_slice(&u32::MAX.to_le_bytes());
    seal_front(&mut orphan);
    assert_eq!(
        Knot::parse(&orphan, orphan.len() as u64)
            .unwrap_err()
            .to_string(),
        "section row-sidecar: belongs to no block"
    );
}

#[test]
fn a_changed_sidecar_is_seen_by_the_front() {
    let file = knot();
    let range = {
        let knot = Knot::parse(&file, file.len() as u64).unwrap();
        knot.section_of(EMBEDDING, SectionKind::RowSidecar)
            .unwrap()
            .range
            .clone()
    };
    let mut changed = file;
    changed[range.start as usize] ^= 1;
    seal_front(&mut changed);
    let error = Knot::parse(&changed, changed.len() as u64).unwrap_err();
    assert!(matches!(error, Error::Digest { .. }), "{error}");
}
