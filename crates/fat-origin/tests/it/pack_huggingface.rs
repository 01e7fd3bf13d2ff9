//! Hugging Face directories in, knots and row files out.

use columnar_embed::row_tree::RowTree;
use compact_tokenizer::AddSpecial;
use fat_origin::pack::{BlockDtype, EmbedDtype, Matrix, PackOptions};
use fat_origin::verify::verify;
use gkq_v2::{BlockBody, Dtype, SectionKind};
use serde_json::json;

use super::huggingface_source::{
    self as source, HIDDEN, ROWS, TestTensor, directory, f32_bytes, sharded, tensor, tiny_tensors,
    values,
};
use super::packed::{Packed, packed};

const EMBEDDING: &str = "model.embed_tokens.weight";

fn of<'a>(tensors: &'a [TestTensor], name: &str) -> &'a TestTensor {
    tensors.iter().find(|tensor| tensor.name == name).unwrap()
}

#[test]
fn blocks_and_rows_are_the_checkpoint_byte_for_byte() {
    let tensors = tiny_tensors();
    for dir in [directory(&tensors), sharded(&tensors)] {
        let packed = packed(dir.path(), PackOptions::default());
        assert_eq!(packed.rows, of(&tensors, EMBEDDING).bytes);
        for tensor in &tensors {
            assert_eq!(
                packed.payload(&tensor.name),
                tensor.bytes,
                "{}",
                tensor.name
            );
            assert_eq!(packed.block(&tensor.name).shape, tensor.shape);
            assert_eq!(
                packed.block(&tensor.name).blake3,
                *blake3::hash(&tensor.bytes).as_bytes()
            );
        }
        assert_eq!(
            packed.block_names(),
            [
                "model.layers.0.input_layernorm.weight",
                "model.layers.0.self_attn.q_proj.bias",
                "model.layers.0.self_attn.q_proj.weight",
                "model.layers.0.self_attn.k_proj.bias",
                "model.layers.0.self_attn.k_proj.weight",
                "model.layers.0.self_attn.v_proj.bias",
                "model.layers.0.self_attn.v_proj.weight",
                "model.layers.0.self_attn.o_proj.weight",
                "model.layers.0.post_attention_layernorm.weight",
                "model.layers.0.mlp.gate_proj.weight",
                "model.layers.0.mlp.up_proj.weight",
                "model.layers.0.mlp.down_proj.weight",
                "model.layers.1.input_layernorm.weight",
                "model.layers.1.self_attn.q_proj.bias",
                "model.layers.1.self_attn.q_proj.weight",
                "model.layers.1.self_attn.k_proj.bias",
                "model.layers.1.self_attn.k_proj.weight",
                "model.layers.1.self_attn.v_proj.bias",
                "model.layers.1.self_attn.v_proj.weight",
                "model.layers.1.self_attn.o_proj.weight",
                "model.layers.1.post_attention_layernorm.weight",
                "model.layers.1.mlp.gate_proj.weight",
                "model.layers.1.mlp.up_proj.weight",
                "model.layers.1.mlp.down_proj.weight",
                "model.norm.weight",
                EMBEDDING,
            ],
            "layers in order, the matrix last"
        );
        let end = packed.block(EMBEDDING).payload.end;
        assert_eq!(
            end,
            packed.bytes.len() as u64,
            "the matrix is the last payload"
        );
        assert!(packed.report.tied);
        let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
        assert_eq!(report.differences, []);
        assert_eq!(report.trees, 1);
    }
}

#[test]
fn packing_twice_gives_the_same_bytes() {
    let dir = directory(&tiny_tensors());
    let once = packed(dir.path(), PackOptions::default());
    let twice = packed(dir.path(), PackOptions::default());
    assert_eq!(once.bytes, twice.bytes);
}

#[test]
fn a_row_of_the_store_verifies_against_the_pinned_nodes() {
    let packed = packed(directory(&tiny_tensors()).path(), PackOptions::default());
    let columnar = packed.block(EMBEDDING).columnar.clone().unwrap();
    assert_eq!(
        (columnar.rows, columnar.row_bytes),
        (ROWS, HIDDEN as u32 * 2)
    );
    assert_eq!(columnar.rows_blake3, *blake3::hash(&packed.rows).as_bytes());
    let pinned = packed.knot.front_slice(&columnar.pinned_nodes).unwrap();
    let mut builder = columnar_embed::RowTreeBuilder::new(columnar.rows, Vec::new()).unwrap();
    for row in packed.rows.chunks(columnar.row_bytes as usize) {
        builder.push(row).unwrap();
    }
    let (tree, _): (RowTree, _) = builder.finish().unwrap();
    assert_eq!(
        (tree.root, &tree.pinned_nodes[..]),
        (columnar.tree_root, pinned)
    );
}

#[test]
fn the_texts_of_the_model_come_along() {
    let dir = directory(&tiny_tensors());
    let from_config = packed(dir.path(), PackOptions::default());
    assert_eq!(
        from_config.text(SectionKind::ModelConfig),
        source::config().to_string(),
        "verbatim"
    );
    assert_eq!(
        from_config.text(SectionKind::ChatTemplate),
        "{{ messages }}"
    );
    assert_eq!(
        from_config.json(SectionKind::TokenizerConfig),
        json!({"eos_token": "<|end|>"})
    );
    let generation = from_config.json(SectionKind::GenerationConfig);
    assert_eq!(
        generation,
        json!({"top_k": 20, "eos_token_id": [7, 256]}),
        "the union of all sources"
    );
    let tokenizer = from_config.tokenizer();
    let ids = tokenizer.encode("hi<|end|>", AddSpecial::No);
    assert_eq!(ids, [u32::from(b'h'), u32::from(b'i'), 256]);
    assert_eq!(tokenizer.decode(&ids), "hi");

    source::write(dir.path(), "chat_template.jinja", "{{ newer }}");
    let from_file = packed(dir.path(), PackOptions::default());
    assert_eq!(from_file.text(SectionKind::ChatTemplate), "{{ newer }}");
}

#[test]
fn a_head_counts_only_if_its_bytes_differ() {
    let mut tensors = tiny_tensors();
    let copy = TestTensor {
        name: "lm_head.weight".to_owned(),
        ..of(&tensors, EMBEDDING).clone()
    };
    tensors.push(copy);
    let tied = packed(directory(&tensors).path(), PackOptions::default());
    assert!(tied.report.tied && tied.knot.block("lm_head.weight").is_none());

    tensors.pop();
    tensors.push(tensor("lm_head.weight", &[ROWS, HIDDEN]));
    let dir = directory(&tensors);
    // The config is only a hint, here a wrong one.
    let mut config = source::config();
    config["tie_word_embeddings"] = json!(true);
    source::write(dir.path(), "config.json", config.to_string());
    let untied = packed(dir.path(), PackOptions::default());
    assert!(!untied.report.tied);
    assert_eq!(
        untied.payload("lm_head.weight"),
        tensors.last().unwrap().bytes
    );
    let names = untied.block_names();
    assert_eq!(names[names.len() - 2..], ["lm_head.weight", EMBEDDING]);
    assert!(!untied.block("lm_head.weight").is_columnar_eligible());
}

#[test]
fn nested_language_models_lose_their_prefix() {
    let mut tensors = tiny_tensors();
    for tensor in &mut tensors {
        tensor.name = format!("language_model.{}", tensor.name);
    }
    tensors.push(tensor("vision_tower.encoder.weight", &[4, 4]));
    let packed = packed(directory(&tensors).path(), PackOptions::default());
    assert_eq!(
        packed.knot.blocks().len(),
        tensors.len() - 1,
        "the vision tower stays out"
    );
    assert_eq!(packed.rows, tensors[1].bytes);
}

#[test]
fn embed_dtype_converts_rows_and_block_alike() {
    let tensors = tiny_tensors();
    let dir = directory(&tensors);
    let wide = packed(
        dir.path(),
        PackOptions {
            embed_dtype: EmbedDtype::F32,
            ..PackOptions::default()
        },
    );
    let exact: Vec<f32> = values(EMBEDDING, ROWS * HIDDEN)
        .iter()
        .map(|&value| half::bf16::from_f32(value).to_f32())
        .collect();
    assert_eq!(wide.rows, f32_bytes(&exact));
    assert_eq!(wide.payload(EMBEDDING), wide.rows);
    let block = wide.block(EMBEDDING);
    assert_eq!(
        (block.dtype(), block.source_dtype, block.error),
        (Dtype::F32, Dtype::Bf16, 0.0)
    );

    let half = packed(
        dir.path(),
        PackOptions {
            embed_dtype: EmbedDtype::F16,
            ..PackOptions::default()
        },
    );
    let block = half.block(EMBEDDING);
    assert_eq!(
        (block.dtype(), block.source_dtype),
        (Dtype::F16, Dtype::Bf16)
    );
    let stored = half
        .rows
        .as_chunks::<2>()
        .0
        .iter()
        .map(|bytes| half::f16::from_le_bytes(*bytes).to_f32());
    let largest = stored
        .zip(&exact)
        .map(|(stored, exact)| f64::from((stored - exact).abs()))
        .fold(0.0, f64::max);
    assert_eq!(block.error, largest);
    assert_eq!(half.report.embed_error, largest);
    assert_eq!(
        verify(&half.knot_path(), Some(&half.rows_path()))
            .unwrap()
            .differences,
        []
    );
}

#[test]
fn block_dtype_quantises_matrices_of_layers_only() {
    let packed = packed(
        directory(&tiny_tensors()).path(),
        PackOptions {
            block_dtype: BlockDtype::Q8_0,
            ..PackOptions::default()
        },
    );
    for block in packed.knot.blocks() {
        let matrix = block.name.starts_with("model.layers.") && block.shape.len() == 2;
        let expected = if matrix { Dtype::Q8_0 } else { Dtype::Bf16 };
        assert_eq!(block.dtype(), expected, "{}", block.name);
        // Values lie in [-1, 1]: a step of Q8_0 is at most 1/127, the error at most half of it, and
        // the scale's own rounding to f16 adds a little.
        assert!(
            block.error <= 0.5 / 127.0 * 1.1,
            "{}: {}",
            block.name,
            block.error
        );
        assert_eq!(block.error > 0.0, matrix, "{}", block.name);
    }
}

#[test]
fn without_matrix_the_rows_are_the_only_place() {
    let tensors = tiny_tensors();
    let packed = packed(
        directory(&tensors).path(),
        PackOptions {
            matrix: Matrix::External,
            ..PackOptions::default()
        },
    );
    let block = packed.block(EMBEDDING);
    assert!(block.is_external() && block.is_columnar_eligible());
    assert_eq!(block.payload, 0..0);
    assert_eq!(block.blake3, *blake3::hash(&packed.rows).as_bytes());
    assert_eq!(packed.rows, of(&tensors, EMBEDDING).bytes);
    assert!((packed.bytes.len() as u64) < packed.report.rows_bytes + 200_000);
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    assert_eq!((report.differences.len(), report.trees), (0, 1));
}

/// A matrix of this rank, row-major.
fn low_rank(rows: usize, cols: usize, rank: usize) -> Vec<f32> {
    let left = values("left", (rows * rank) as u64);
    let right = values("right", (rank * cols) as u64);
    product(&left, &vec![1.0; rank], &right, cols)
}

/// `U diag(s) V^T`, `[rows, cols]`.
fn product(u: &[f32], s: &[f32], vt: &[f32], cols: usize) -> Vec<f32> {
    let rank = s.len();
    let value = |row: usize, col: usize| {
        (0..rank)
            .map(|k| u[row * rank + k] * s[k] * vt[k * cols + col])
            .sum()
    };
    let rows = u.len() / rank;
    (0..rows * cols)
        .map(|index| value(index / cols, index % cols))
        .collect()
}

/// `|one - other| / |one|`, Frobenius.
fn relative_error(one: &[f32], other: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value).powi(2);
    let rest: f64 = one
        .iter()
        .zip(other)
        .map(|(one, other)| square(one - other))
        .sum();
    (rest / one.iter().map(|&value| square(value)).sum::<f64>()).sqrt()
}

const LOW_RANK: &str = "model.layers.0.mlp.up_proj.weight";
const TOLERANCE: f64 = 1e-3;

/// The tiny model with one matrix of rank 2, packed with a tolerance.
fn packed_spectral(matrix: &[f32]) -> Packed {
    let mut tensors = tiny_tensors();
    let replaced = tensors
        .iter_mut()
        .find(|tensor| tensor.name == LOW_RANK)
        .unwrap();
    *replaced = TestTensor {
        dtype: "F32",
        bytes: f32_bytes(matrix),
        ..replaced.clone()
    };
    let options = PackOptions {
        spectral_tolerance: Some(TOLERANCE),
        ..PackOptions::default()
    };
    packed(directory(&tensors).path(), options)
}

#[test]
fn a_low_rank_matrix_becomes_spectral_within_the_tolerance() {
    let cols = HIDDEN as usize;
    let matrix = low_rank(128, cols, 2);
    let packed = packed_spectral(&matrix);
    let block = packed.block(LOW_RANK);
    let BlockBody::Spectral {
        rank: 2,
        dtype: Dtype::F32,
        u,
        s,
        vt,
    } = &block.body
    else {
        panic!("{block:?}")
    };
    let payload = packed.payload(LOW_RANK);
    let floats = |range: &std::ops::Range<u64>| -> Vec<f32> {
        let bytes = &payload[range.start as usize..range.end as usize];
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    };
    let rebuilt = product(&floats(u), &floats(s), &floats(vt), cols);
    assert!(relative_error(&matrix, &rebuilt) <= TOLERANCE);
    assert!((0.0..=TOLERANCE).contains(&block.error));
    assert_eq!(
        verify(&packed.knot_path(), Some(&packed.rows_path()))
            .unwrap()
            .differences,
        []
    );
}

#[test]
fn the_spectral_report_has_a_line_for_each_matrix_that_was_tried() {
    let packed = packed_spectral(&low_rank(128, HIDDEN as usize, 2));
    let lines = &packed.report.spectral;
    assert_eq!(
        lines.len(),
        14,
        "seven matrices in each of two layers, never the embedding"
    );
    for line in lines {
        let spectral = matches!(packed.block(&line.tensor).body, BlockBody::Spectral { .. });
        assert_eq!(spectral, line.tensor == LOW_RANK, "{}", line.tensor);
        assert_eq!(line.spectral_bytes.is_some(), spectral);
        assert!(
            line.spectral_bytes
                .is_none_or(|bytes| bytes < line.dense_bytes)
        );
    }
    assert!(matches!(
        packed.block(EMBEDDING).body,
        BlockBody::Dense { .. }
    ));
}
