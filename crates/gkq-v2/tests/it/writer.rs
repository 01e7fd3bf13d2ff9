//! The writer: what it refuses, and what it must be given before there is a front.

use gkq_v2::{
    BlockSpec, ColumnarSpec, Dtype, Error, ErrorKind, Knot, KnotDraft, Payload, SectionKind,
};

#[track_caller]
fn check<T: std::fmt::Debug>(result: Result<T, Error>, expect: &str) {
    assert_eq!(result.unwrap_err().to_string(), expect);
}

#[test]
fn sections_must_be_what_their_kind_says() {
    let mut draft = KnotDraft::new();
    check(
        draft.front_section(SectionKind::ModelConfig, vec![0xFF]),
        "section model-config: not valid utf-8",
    );
    check(
        draft.front_section(SectionKind::ModelConfig, Vec::new()),
        "section model-config: body_bytes may not be zero",
    );
    check(
        draft.front_section(SectionKind::Tokenizer, vec![1]),
        "section tokenizer: does not lie in the front",
    );
    check(
        draft.payload_section(SectionKind::ModelConfig, 1),
        "section model-config: is no payload",
    );
    check(
        draft.payload_section(SectionKind::HotIds, 1),
        "section hot-ids: is declared with its block",
    );
    draft.payload_section(SectionKind::Tokenizer, 1).unwrap();
    check(
        draft.payload_section(SectionKind::Tokenizer, 1),
        "section tokenizer: there are two of it",
    );
}

#[test]
fn blocks_must_be_possible() {
    let mut draft = KnotDraft::new();
    let mut refuse = |spec, expect: &str| check(draft.block(spec), expect);
    let long = "x".repeat(513);
    refuse(
        BlockSpec::dense("", Dtype::F32, &[1]),
        r#"block "": name_bytes may not be zero"#,
    );
    refuse(
        BlockSpec::dense(&long, Dtype::F32, &[1]),
        &format!("block {long:?}: name_bytes is 513, the limit is 512"),
    );
    refuse(
        BlockSpec::dense("w", Dtype::F32, &[]),
        r#"block "w": dims may not be zero"#,
    );
    refuse(
        BlockSpec::dense("w", Dtype::F32, &[2, 0]),
        r#"block "w": a dimension may not be zero"#,
    );
    refuse(
        BlockSpec::dense("w", Dtype::F32, &[1; 5]),
        r#"block "w": dims is 5, the limit is 4"#,
    );
    refuse(
        BlockSpec::dense("w", Dtype::Q4K, &[2, 640]),
        "block \"w\": shape [2, 640] is not possible for q4_k: a row is no whole number of \
         quantisation blocks",
    );
    refuse(
        BlockSpec::spectral("w", Dtype::Q8_0, [64, 64], 2),
        "block \"w\": shape [64, 64] is not possible for q8_0: spectral factors are f32, f16 or bf16",
    );
    refuse(
        BlockSpec::spectral("w", Dtype::F16, [64, 32], 33),
        "block \"w\": shape [64, 32] is not possible for f16: the rank is from 1 to the smaller \
         dimension",
    );
    refuse(
        BlockSpec::dense("w", Dtype::F32, &[4]).columnar(ColumnarSpec::default()),
        r#"block "w": a columnar-eligible tensor has two dimensions"#,
    );
    refuse(
        BlockSpec::dense("w", Dtype::F32, &[4, 4]).external(),
        r#"block "w": an external payload can only be had from a row store"#,
    );
    assert_eq!(draft.plan().unwrap().payloads(), [], "nothing was declared");
}

#[test]
fn two_blocks_of_one_name_are_refused() {
    let mut draft = KnotDraft::new();
    for _ in 0..2 {
        draft
            .block(BlockSpec::dense("w", Dtype::F32, &[1]))
            .unwrap();
    }
    check(draft.plan(), r#"two blocks are named "w""#);
}

#[test]
fn an_object_longer_than_64_bits_is_refused() {
    let mut draft = KnotDraft::new();
    for name in ["a", "b", "c"] {
        draft
            .block(BlockSpec::dense(name, Dtype::F32, &[1 << 31, 1 << 30]))
            .unwrap();
        draft
            .block(BlockSpec::dense(
                format!("{name}2"),
                Dtype::F32,
                &[1 << 31, 1 << 30],
            ))
            .unwrap();
    }
    assert!(matches!(draft.plan(), Err(Error::RangeOverflow { .. })));
}

#[test]
fn a_front_needs_everything_recorded() {
    let mut draft = KnotDraft::new();
    let tokenizer = draft.payload_section(SectionKind::Tokenizer, 3).unwrap();
    let spec = BlockSpec::dense("w", Dtype::F16, &[2, 2]).converted_from(Dtype::F32);
    let block = draft.block(spec.columnar(ColumnarSpec::default())).unwrap();
    let mut plan = draft.plan().unwrap();
    let missing = |plan: &gkq_v2::KnotPlan, expect: &str| {
        let error = plan.clone().finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(error.to_string(), expect);
    };
    missing(
        &plan,
        r#"block "w": the digest of the payload was not recorded before finish"#,
    );
    plan.record_digest(Payload::Block(block), [1; 32]).unwrap();
    missing(
        &plan,
        r#"block "w": the error of the conversion was not recorded before finish"#,
    );
    check(
        plan.record_error(block, f64::NAN),
        r#"block "w": the recorded error NaN is not a finite number of at least zero"#,
    );
    plan.record_error(block, 0.5).unwrap();
    missing(
        &plan,
        r#"block "w": the row tree was not recorded before finish"#,
    );
    check(
        plan.record_row_tree(block, [0; 16], &[0; 16]),
        r#"section pinned-nodes of "w": body_bytes is 16, expected 32"#,
    );
    plan.record_row_tree(block, [2; 16], &[0; 32]).unwrap();
    missing(
        &plan,
        "section tokenizer: the digest of the payload was not recorded before finish",
    );
    check(
        plan.record_digest(Payload::PathTable(block), [0; 32]),
        "PathTable(BlockId(0)) was not declared in this knot",
    );
    plan.record_digest(Payload::Section(tokenizer), [3; 32])
        .unwrap();
    let object_bytes = plan.object_bytes();
    let knot = Knot::parse(&plan.finish().unwrap(), object_bytes).unwrap();
    assert_eq!(
        knot.block("w")
            .unwrap()
            .columnar
            .as_ref()
            .unwrap()
            .tree_root,
        [2; 16]
    );
}

#[test]
fn payloads_are_checked_by_length_and_digest() {
    let mut draft = KnotDraft::new();
    let block = draft
        .block(BlockSpec::dense("w", Dtype::F32, &[2]))
        .unwrap();
    let mut plan = draft.plan().unwrap();
    plan.record_digest(Payload::Block(block), *blake3::hash(&[5; 8]).as_bytes())
        .unwrap();
    let object_bytes = plan.object_bytes();
    let knot = Knot::parse(&plan.finish().unwrap(), object_bytes).unwrap();
    let block = knot.block("w").unwrap();
    knot.verify_payload(block, &[5; 8]).unwrap();
    check(
        knot.verify_payload(block, &[5; 7]),
        r#"block "w": length in bytes is 7, expected 8"#,
    );
    assert!(matches!(
        knot.verify_payload(block, &[6; 8]),
        Err(Error::Digest { .. })
    ));
}
