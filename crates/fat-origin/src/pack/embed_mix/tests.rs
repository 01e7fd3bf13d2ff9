//! What a mix means, and what is refused, word for word.

use columnar_embed::RowKind::{self, Bf16, Fp8E4m3, Int8};
use compact_tokenizer::{AddedToken, Algorithm, TokenizerSpec};
use gkq_v2::Dtype;

use super::{EmbedMix, by_frequency};

/// The kinds of ten rows whose frequency falls with the id.
#[track_caller]
fn check(spec: &str, expected: [RowKind; 10]) {
    let hottest: Vec<u32> = (0..10).collect();
    let mix: EmbedMix = spec.parse().unwrap();
    let assignment = mix.assign(Dtype::Bf16, &hottest).unwrap();
    let found: Vec<RowKind> = (0..10).map(|row| assignment.kind(row).unwrap()).collect();
    assert_eq!(found, expected, "{spec}");
    assert_eq!(assignment.kind(10), None);
    let again: EmbedMix = mix.to_string().parse().unwrap();
    assert_eq!(again, mix, "what is printed is understood");
}

#[test]
fn the_first_item_that_names_a_row_decides() {
    let (b, f, i) = (Bf16, Fp8E4m3, Int8);
    check("fp8_e4m3=rarest:50%", [b, b, b, b, b, f, f, f, f, f]);
    check("FP8_E4M3 = rarest: 3", [b, b, b, b, b, b, b, f, f, f]);
    check(
        "int8=rarest:20%,fp8_e4m3=rarest:70%",
        [b, b, b, f, f, f, f, f, i, i],
    );
    check("bf16=0..4,fp8_e4m3=rest", [b, b, b, b, f, f, f, f, f, f]);
    check("int8=2..4", [b, b, i, i, b, b, b, b, b, b]);
    check("int8=rest", [i; 10]);
    // A share of 10 rows is rounded down.
    check("int8=rarest:19.99%", [b, b, b, b, b, b, b, b, b, i]);
}

#[test]
fn rare_is_what_comes_last_in_the_order_of_frequency() {
    let mix: EmbedMix = "int8=rarest:2".parse().unwrap();
    let assignment = mix.assign(Dtype::Bf16, &[3, 1, 0, 2]).unwrap();
    let found: Vec<_> = (0..4).map(|row| assignment.kind(row).unwrap()).collect();
    assert_eq!(found, [Int8, Bf16, Int8, Bf16]);
    assert_eq!(assignment.palette, [Bf16, Int8]);
}

#[test]
fn what_is_no_mix_is_refused_with_what_would_be() {
    let refused = |spec: &str| spec.parse::<EmbedMix>().unwrap_err().to_string();
    let error = refused("fp8=rarest:50%");
    assert!(
        error.starts_with("`fp8=rarest:50%` is no part of a mix: no such kind of row"),
        "{error}"
    );
    assert!(
        error.contains("fp8_e4m3, fp8_e5m2, int8") && error.contains("rarest:P%"),
        "{error}"
    );
    for (spec, reason) in [
        ("", "no `=`"),
        ("int8=rest,", "no `=`"),
        ("int8=half", "these rows are not known"),
        ("int8=rarest:", "not a number of rows"),
        ("int8=rarest:-1", "not a number of rows"),
        ("int8=rarest:100.01%", "0% to 100%"),
        ("int8=rarest:1.234%", "0% to 100%"),
        ("int8=rarest:NaN%", "0% to 100%"),
        ("int8=5..5", "FIRST below END"),
        ("int8=5..", "FIRST below END"),
        ("int8=0..99999999999999999999", "FIRST below END"),
    ] {
        let error = refused(spec);
        assert!(error.contains(reason), "{spec}: {error}");
    }
}

#[test]
fn a_mix_that_the_matrix_cannot_have_is_refused_with_its_numbers() {
    let hottest: Vec<u32> = (0..10).collect();
    let refused = |spec: &str, dtype| {
        let mix: EmbedMix = spec.parse().unwrap();
        mix.assign(dtype, &hottest).unwrap_err().to_string()
    };
    for (spec, dtype, reason) in [
        ("int8=rest", Dtype::Q8_0, "--embed-dtype f32, f16 or bf16"),
        (
            "f32=rest",
            Dtype::Bf16,
            "rows of f32 save nothing over a matrix of bf16",
        ),
        ("f16=rest", Dtype::Bf16, "rows of f16 save nothing"),
        (
            "int8=5..11",
            Dtype::Bf16,
            "5..11 ends behind the last of 10 rows",
        ),
        (
            "int8=rarest:11",
            Dtype::Bf16,
            "rarest:11 are more than 10 rows",
        ),
        (
            "int8=rarest:0",
            Dtype::Bf16,
            "leaves all 10 rows as they are",
        ),
        (
            "bf16=rest,int8=rest",
            Dtype::Bf16,
            "leaves all 10 rows as they are",
        ),
    ] {
        let error = refused(spec, dtype);
        assert!(error.contains(reason), "{spec}: {error}");
    }
}

#[test]
fn added_tokens_are_frequent_then_the_hot_ids_then_the_low_ones() {
    let mut tokenizer = TokenizerSpec::new(Algorithm::ByteLevel);
    tokenizer.added = [8, 6, 99].map(AddedToken::plain).to_vec();
    let order = by_frequency(&tokenizer, &[3, 8, 1], 10);
    assert_eq!(order, [8, 6, 3, 1, 0, 2, 4, 5, 7, 9]);
}
