//! The golden knots: written here from a fixed model, kept in `fixtures/gkq-v2/v2`, and read back.
//! `GKQ_V2_REGENERATE=1 cargo test -p gkq-v2` writes them and the fuzz seeds anew; only a new version
//! of the format may change them.

use std::path::Path;

use gkq_v2::{
    BlockBody, BlockSpec, ColumnarSpec, Dtype, Knot, KnotDraft, Payload, RowTreeShape, SectionKind,
};

use crate::hexdump::{fixtures, golden, print, read_fixture};
use crate::row_store::{RowTree, row_tree};

pub(crate) const CLEAR: &str = "columnar-clear.hex";
pub(crate) const SET: &str = "columnar-set.hex";
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";

const CONFIG: &str = r#"{"model_type":"llama","hidden_size":4,"vocab_size":5}"#;
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }}{% endfor %}";
const HOT_IDS: [u32; 3] = [2, 0, 4];

/// Little-endian f32 values `start, start + step, ..`.
pub(crate) fn f32_bytes(start: f32, step: f32, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|index| (start + step * index as f32).to_le_bytes())
        .collect()
}

/// The golden embedding: 5 rows of 4 bf16 values, row `i` is `i + [0, 0.25, 0.5, 0.75]`.
pub(crate) fn embedding_rows() -> Vec<u8> {
    f32_bytes(0.0, 0.25, 20)
        .chunks(4)
        .flat_map(|value| [value[2], value[3]])
        .collect()
}

/// A `[4, 8]` tensor of rank 2, as factors at their places in the payload.
fn spectral_payload() -> Vec<u8> {
    let mut payload = f32_bytes(1.0, 0.5, 8); // u [4, 2]
    payload.resize(64, 0);
    payload.extend(f32_bytes(2.0, -1.0, 2)); // s [2]
    payload.resize(128, 0);
    payload.extend(f32_bytes(-1.0, 0.125, 16)); // vt [2, 8]
    payload
}

/// Two Q8_0 rows of 32 values: scale 0.5 as f16, then the integers.
fn q8_0_payload() -> Vec<u8> {
    let row = |first: u8| [0x00, 0x38].into_iter().chain((first..).take(32));
    row(1).chain(row(200 - 32)).collect()
}

/// The golden model, with the columnar bit of its embedding set or clear.
pub(crate) fn build(columnar: bool) -> Vec<u8> {
    let mut draft = KnotDraft::new();
    draft
        .front_section(SectionKind::ModelConfig, CONFIG.into())
        .unwrap();
    draft
        .front_section(SectionKind::ChatTemplate, TEMPLATE.into())
        .unwrap();
    let tokenizer_bytes = b"a tokenizer is opaque here";
    let tokenizer = draft
        .payload_section(SectionKind::Tokenizer, tokenizer_bytes.len() as u64)
        .unwrap();
    let down = "model.layers.0.mlp.down_proj.weight";
    let down = draft
        .block(BlockSpec::spectral(down, Dtype::F32, [4, 8], 2))
        .unwrap();
    let up = BlockSpec::dense("model.layers.0.mlp.up_proj.weight", Dtype::Q8_0, &[2, 32]);
    let up = draft.block(up.converted_from(Dtype::Bf16)).unwrap();
    let norm = draft
        .block(BlockSpec::dense("model.norm.weight", Dtype::F32, &[4]))
        .unwrap();
    let mut embedding = BlockSpec::dense(EMBEDDING, Dtype::Bf16, &[5, 4]);
    if columnar {
        embedding = embedding.columnar(ColumnarSpec {
            hot_ids: 3,
            ..ColumnarSpec::default()
        });
    }
    let embedding = draft.block(embedding).unwrap();

    let mut payloads = vec![
        (Payload::Section(tokenizer), tokenizer_bytes.to_vec()),
        (Payload::Block(down), spectral_payload()),
        (Payload::Block(up), q8_0_payload()),
        (Payload::Block(norm), f32_bytes(1.0, 0.0, 4)),
        (Payload::Block(embedding), embedding_rows()),
    ];
    let mut plan = draft.plan().unwrap();
    plan.record_error(down, 0.015_625).unwrap();
    plan.record_error(up, 0.001_953_125).unwrap();
    if columnar {
        let RowTree {
            root, pinned_nodes, ..
        } = row_tree(&embedding_rows(), 8);
        plan.record_row_tree(embedding, root, &pinned_nodes)
            .unwrap();
        let hot_ids = HOT_IDS.iter().flat_map(|id| id.to_le_bytes()).collect();
        payloads.push((Payload::HotIds(embedding), hot_ids));
    }
    let mut file = vec![0; plan.object_bytes() as usize];
    for (payload, bytes) in &payloads {
        plan.record_digest(*payload, *blake3::hash(bytes).as_bytes())
            .unwrap();
        let range = plan.range(*payload).unwrap();
        file[range.start as usize..range.end as usize].copy_from_slice(bytes);
    }
    let front = plan.finish().unwrap();
    file[..front.len()].copy_from_slice(&front);
    file
}

#[track_caller]
fn check_golden(name: &str, title: &str, columnar: bool) {
    let file = build(columnar);
    let dump = print(title, &file);
    let seed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus/open")
        .join(name.replace(".hex", ".gkq"));
    if std::env::var_os("GKQ_V2_REGENERATE").is_some() {
        std::fs::write(fixtures().join("v2").join(name), &dump).unwrap();
        std::fs::write(&seed, &file).unwrap();
    }
    assert!(
        golden(name) == file,
        "{name}: the writer no longer writes the golden bytes"
    );
    assert!(
        std::fs::read(seed).unwrap() == file,
        "{name}: the fuzz seed is another knot"
    );
    assert!(
        read_fixture(&format!("v2/{name}")) == dump,
        "{name}: the comments of the dump are not those of its fields"
    );
}

#[test]
fn the_writer_writes_the_golden_with_the_bit_clear() {
    check_golden(
        CLEAR,
        "A knot whose embedding is a plain dense block.",
        false,
    );
}

#[test]
fn the_writer_writes_the_golden_with_the_bit_set() {
    let title = "The same knot with the columnar-eligible bit of its embedding set,\n\
                 and so with the sections columnar, pinned-nodes and hot-ids.";
    check_golden(SET, title, true);
}

#[test]
fn the_goldens_open_from_their_front_alone() {
    for name in [CLEAR, SET] {
        let file = golden(name);
        let front_bytes = Knot::front_len(&file[..gkq_v2::HEADER_BYTES]).unwrap() as usize;
        let knot = Knot::parse(&file[..front_bytes], file.len() as u64).unwrap();
        assert_eq!(knot.text(SectionKind::ModelConfig), Some(CONFIG));
        assert_eq!(knot.text(SectionKind::ChatTemplate), Some(TEMPLATE));
        assert_eq!(
            knot.text(SectionKind::Tokenizer),
            None,
            "the tokenizer is no text"
        );
        let at = |range: &std::ops::Range<u64>| &file[range.start as usize..range.end as usize];
        for block in knot.blocks() {
            knot.verify_payload(block, at(&block.payload)).unwrap();
        }
        for gap in knot.padding() {
            assert!((1..64).contains(&(gap.end - gap.start)), "{gap:?}");
            assert!(at(&gap).iter().all(|&byte| byte == 0), "{gap:?}");
        }
        for section in knot.sections() {
            knot.verify_section(section, at(&section.range)).unwrap();
        }
        let up = knot.block("model.layers.0.mlp.up_proj.weight").unwrap();
        assert_eq!((up.dtype(), up.source_dtype), (Dtype::Q8_0, Dtype::Bf16));
        assert_eq!(up.error, 0.001_953_125);
        let BlockBody::Spectral { rank, u, s, vt, .. } = &knot.blocks()[0].body else {
            panic!("the first block is spectral");
        };
        assert_eq!(
            (*rank, u.clone(), s.clone(), vt.clone()),
            (2, 0..32, 64..72, 128..192)
        );
        assert_eq!(knot.blocks().last().unwrap().payload.end, file.len() as u64);
    }
}

#[test]
fn the_set_bit_brings_the_facts_of_a_row_store() {
    let file = golden(SET);
    let knot = Knot::parse(&file, file.len() as u64).unwrap();
    let block = knot.block(EMBEDDING).unwrap();
    let columnar = block.columnar.as_ref().unwrap();
    let tree = row_tree(&embedding_rows(), 8);
    assert_eq!(
        (columnar.rows, columnar.row_bytes, columnar.dtype),
        (5, 8, Dtype::Bf16)
    );
    assert_eq!(columnar.rows_blake3, block.blake3);
    assert_eq!(columnar.tree_root, tree.root);
    assert_eq!(
        knot.front_slice(&columnar.pinned_nodes),
        Some(tree.pinned_nodes.as_slice())
    );
    assert_eq!(
        columnar.pinned_level,
        RowTreeShape::new(5).unwrap().pinned_level
    );
    assert!(
        columnar.path_table.is_empty(),
        "the leaves of five rows are pinned themselves"
    );
    let hot_ids = columnar.hot_ids.as_ref().unwrap();
    let hot_ids = &file[hot_ids.start as usize..hot_ids.end as usize];
    assert_eq!(columnar.parse_hot_ids(hot_ids).unwrap(), HOT_IDS);

    let file = golden(CLEAR);
    let knot = Knot::parse(&file, file.len() as u64).unwrap();
    let block = knot.block(EMBEDDING).unwrap();
    assert!(!block.is_columnar_eligible() && block.columnar.is_none());
}
