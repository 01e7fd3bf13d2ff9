//! Knots of columnar-eligible tensors, with a row tree built the slow and obvious way.

use gkq_v2::{BlockSpec, ColumnarSpec, Dtype, Knot, KnotDraft, Payload, SectionKind};

use crate::fields::find;
use crate::golden::EMBEDDING;
use crate::rejects::seal_front;

/// What a packer hands to the writer about a tensor's rows.
pub(crate) struct RowTree {
    pub(crate) root: [u8; 16],
    pub(crate) pinned_nodes: Vec<u8>,
    pub(crate) path_table: Vec<u8>,
}

/// The row tree over `rows`, all levels in memory.
pub(crate) fn row_tree(rows: &[u8], row_bytes: usize) -> RowTree {
    let hash = |context: &str, parts: [&[u8]; 2]| {
        let input = parts.concat();
        let digest = blake3::derive_key(context, &input);
        <[u8; 16]>::try_from(&digest[..16]).unwrap()
    };
    let count = rows.len() / row_bytes;
    let row = |(index, row): (usize, &[u8])| {
        hash("gkq row leaf v1", [&(index as u64).to_le_bytes(), row])
    };
    let mut leaves: Vec<[u8; 16]> = rows.chunks(row_bytes).enumerate().map(row).collect();
    leaves.resize(
        count.next_power_of_two(),
        hash("gkq row leaf v1", [&[], &[]]),
    );
    let mut levels = vec![leaves];
    while levels[0].len() > 1 {
        let nodes = levels[0]
            .chunks(2)
            .map(|pair| hash("gkq row node v1", [&pair[0], &pair[1]]));
        levels.insert(0, nodes.collect());
    }
    let pinned = levels
        .iter()
        .rposition(|level| level.len() <= 8_192)
        .unwrap();
    let below = || levels[pinned + 1..].iter().rev();
    let path = |index: usize| {
        below()
            .enumerate()
            .flat_map(move |(height, level)| level[(index >> height) ^ 1])
    };
    RowTree {
        root: levels[0][0],
        pinned_nodes: levels[pinned].concat(),
        path_table: (0..count).flat_map(path).collect(),
    }
}

/// A knot of one bf16 tensor of `rows` rows of 2 values, whose payload is left out or not.
fn large(rows: u64, external: bool) -> (Vec<u8>, u64, RowTree) {
    let bytes: Vec<u8> = (0..rows * 4).map(|byte| (byte * 7 % 251) as u8).collect();
    let tree = row_tree(&bytes, 4);
    let mut draft = KnotDraft::new();
    let mut spec = BlockSpec::dense(EMBEDDING, Dtype::Bf16, &[rows, 2]).columnar(ColumnarSpec {
        hot_ids: 2,
        sketch_bytes: 100,
        ..ColumnarSpec::default()
    });
    if external {
        spec = spec.external();
    }
    let block = draft.block(spec).unwrap();
    let mut plan = draft.plan().unwrap();
    let order: Vec<Payload> = plan
        .payloads()
        .iter()
        .map(|planned| planned.payload)
        .collect();
    let mut expected = vec![
        Payload::PathTable(block),
        Payload::HotIds(block),
        Payload::Sketch(block),
    ];
    if !external {
        expected.push(Payload::Block(block));
    }
    assert_eq!(order, expected, "what belongs to a tensor lies before it");
    plan.record_digest(Payload::Block(block), *blake3::hash(&bytes).as_bytes())
        .unwrap();
    let paths = *blake3::hash(&tree.path_table).as_bytes();
    plan.record_digest(Payload::PathTable(block), paths)
        .unwrap();
    plan.record_digest(Payload::HotIds(block), *blake3::hash(&[0; 8]).as_bytes())
        .unwrap();
    plan.record_digest(Payload::Sketch(block), *blake3::hash(&[1; 100]).as_bytes())
        .unwrap();
    plan.record_row_tree(block, tree.root, &tree.pinned_nodes)
        .unwrap();
    let object_bytes = plan.object_bytes();
    (plan.finish().unwrap(), object_bytes, tree)
}

#[test]
fn a_tall_tensor_needs_its_path_table() {
    let (mut front, object_bytes, _) = large(9_000, false);
    let kind = find(&front, "section[2].kind");
    front[kind].copy_from_slice(&1_000_u32.to_le_bytes());
    seal_front(&mut front);
    assert_eq!(
        Knot::parse(&front, object_bytes).unwrap_err().to_string(),
        format!(
            "section path-table of {EMBEDDING:?}: missing, but the tensor is columnar-eligible"
        )
    );
}

#[test]
fn a_tall_tensor_has_a_path_table_at_a_fixed_stride() {
    let (front, object_bytes, tree) = large(20_000, false);
    let knot = Knot::parse(&front, object_bytes).unwrap();
    let block = &knot.blocks()[0];
    let columnar = block.columnar.as_ref().unwrap();
    assert_eq!(
        (columnar.pinned_level, columnar.path_bytes_per_row),
        (13, 32)
    );
    assert_eq!(
        columnar.pinned_nodes.end - columnar.pinned_nodes.start,
        8_192 * 16
    );
    assert_eq!(
        columnar.path_table.end - columnar.path_table.start,
        20_000 * 32
    );
    assert_eq!(columnar.path_table.start, knot.front_bytes());
    assert_eq!(
        columnar
            .sketch
            .as_ref()
            .map(|range| range.end - range.start),
        Some(100)
    );
    let paths = knot.section_of(EMBEDDING, SectionKind::PathTable).unwrap();
    assert_eq!(paths.range, columnar.path_table);
    knot.verify_section(paths, &tree.path_table).unwrap();
}

#[test]
fn the_matrix_may_be_left_out() {
    let (front, object_bytes, _) = large(9_000, true);
    let knot = Knot::parse(&front, object_bytes).unwrap();
    let block = &knot.blocks()[0];
    assert!(block.is_external() && block.payload.is_empty());
    assert_eq!(block.stored_bytes(), Some(36_000));
    assert_eq!(block.columnar.as_ref().unwrap().rows_blake3, block.blake3);
}

#[test]
fn hot_ids_are_rows_and_come_once() {
    let (front, object_bytes, _) = large(9_000, false);
    let knot = Knot::parse(&front, object_bytes).unwrap();
    let columnar = knot.blocks()[0].columnar.as_ref().unwrap();
    let check = |ids: &[u32]| {
        let body: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        columnar
            .parse_hot_ids(&body)
            .map_err(|error| error.to_string())
    };
    assert_eq!(check(&[8_999, 0]), Ok(vec![8_999, 0]));
    assert_eq!(
        check(&[9_000]),
        Err("hot id 9000 at position 0 is no row of its tensor".to_owned())
    );
    assert_eq!(
        check(&[5, 6, 5]),
        Err("hot id 5 at position 2 stands in the list twice".to_owned())
    );
    assert!(
        columnar.parse_hot_ids(&[1, 2, 3]).is_err(),
        "three bytes are no id"
    );
}
