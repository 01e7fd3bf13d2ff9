//! Safetensors headers with one defect each, and random ones.

use super::gguf::assert_rejects_bytes;
use super::{NAME, TABLE_BYTES, safetensors, search, table, wanted, with_header};
use proptest::prelude::*;
use serde_json::json;

fn header(entries: &str) -> Vec<u8> {
    with_header(&format!("{{{entries}}}"), &table())
}

const SOUND: &str =
    r#""model.embed_tokens.weight":{"dtype":"BF16","shape":[10,32],"data_offsets":[0,640]}"#;

#[test]
fn one_defect_a_file() {
    assert!(search(header(SOUND)).0.is_ok());
    let changed = |from: &str, to: &str| header(&SOUND.replace(from, to));
    for (file, parts) in [
        // vmlx-swift#217, sglang#32279: cut short.
        (header(SOUND)[..700].to_vec(), &["within the", "0..640"][..]),
        (
            [header(SOUND), vec![0]].concat(),
            &["640 data bytes", "641"],
        ),
        (header(&format!("{SOUND},{SOUND}")), &["is there twice"]),
        (
            header(&format!(
                r#"{SOUND},"b":{{"dtype":"U8","shape":[40],"data_offsets":[600,640]}}"#
            )),
            &["tensor `b`", "overlaps"],
        ),
        (
            changed("[0,640]", "[1,641]"),
            &["within the 640 data bytes"],
        ),
        (changed("[0,640]", "[640,0]"), &["640..0"]),
        (
            changed("[0,640]", "[18446744073709551615,18446744073709551615]"),
            &["within the 640 data bytes"],
        ),
        (
            changed("[0,640]", "[0,18446744073709551616]"),
            &["JSON object of tensors"],
        ),
        (changed("[10,32]", "[10,33]"), &["660 bytes", "640 bytes"]),
        (
            changed("[10,32]", "[4294967296,4294967296,4294967296]"),
            &["fit 64 bits"],
        ),
        (
            changed("[10,32]", "[10,4,8]"),
            &["[10, 4, 8] bf16", "[10, 32] bf16"],
        ),
        (changed("[10,32]", "[32,10]"), &["[32, 10] bf16"]),
        (
            changed("[10,32]", "[1,1,1,1,1,1,1,10,32]"),
            &["at most 8 dimensions"],
        ),
        (changed("[10,32]", "[-10,32]"), &["JSON object of tensors"]),
        (changed("BF16", "F16"), &["[10, 32] f16", "[10, 32] bf16"]),
        (changed("BF16", "F4_E2M1"), &["F4_E2M1", "[10, 32] bf16"]),
        (
            changed("model.embed", "model.other"),
            &["no tensor named", NAME],
        ),
        (header(r#""a":1"#), &["JSON object of tensors"]),
        (with_header("{", &table()), &["no safetensors file"]),
        (with_header("{}", &[]), &["no tensor named"]),
        (with_header("{}x", &table()), &["JSON object of tensors"]),
        (
            header(&format!(
                r#""deep":{}{},{SOUND}"#,
                "[".repeat(100_000),
                "]".repeat(100_000)
            )),
            &["JSON object of tensors"],
        ),
    ] {
        assert_rejects_bytes(file, parts);
    }
}

/// Metadata is passed over without recursion, however deep it claims to be.
#[test]
fn deep_metadata_is_harmless() {
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    assert!(
        search(header(&format!(r#""__metadata__":{deep},{SOUND}"#)))
            .0
            .is_ok()
    );
}

/// A header longer than the object, or than any reader takes, is no safetensors header.
#[test]
fn lengths_that_lie_are_not_believed() {
    for length in [0_u64, 1, 633, 100_000_001, 1 << 40, u64::MAX - 7, u64::MAX] {
        let mut file = header(SOUND);
        file[..8].copy_from_slice(&length.to_le_bytes());
        let (found, cost) = search(file.clone());
        assert!(found.is_err(), "{length}");
        assert!(
            cost.received_bytes <= file.len() as u64,
            "{length}: {cost:?}"
        );
    }
}

#[test]
fn tensors_of_unknown_types_may_lie_beside() {
    let text = json!({
        "scales": { "dtype": "F8_E8M0", "shape": [4], "data_offsets": [640, 644] },
        "new": { "dtype": "F6_E9", "shape": [3], "data_offsets": [644, 646] },
        NAME: { "dtype": "BF16", "shape": [10, 32], "data_offsets": [0, 640] },
    });
    let file = with_header(&text.to_string(), &[table(), vec![0; 6]].concat());
    assert!(search(file).0.is_ok());
}

#[test]
fn every_prefix_is_an_error() {
    let whole = safetensors(NAME, None);
    for end in 0..whole.len() {
        // 640 bytes would be a bare file: its rows would not verify.
        let (found, _) = search(whole[..end].to_vec());
        assert!(found.is_err() || end == TABLE_BYTES, "{end}");
    }
}

proptest! {
    #[test]
    fn damage_never_panics(
        damage in prop::collection::vec((0_usize..300, any::<u8>()), 1..8),
        cut in 0_usize..1_500,
    ) {
        let mut bytes = safetensors(NAME, None);
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut);
        let len = bytes.len() as u64;
        let (found, cost) = search(bytes);
        prop_assert!(cost.received_bytes <= len);
        if let Ok(columnar_embed::locate::Found::Rows(located)) = found {
            prop_assert!(located.layout.end_bytes() <= len);
            prop_assert_eq!(located.layout.rows(), wanted().rows);
        }
    }

    #[test]
    fn anything_is_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_usize..4) {
        let beginning: &[u8] = match kind {
            0 => b"GGUF\x03\0\0\0",
            1 => b"\x20\0\0\0\0\0\0\0{",
            2 => b"{\"weight_map\":",
            _ => b"",
        };
        let _ = search([beginning, &bytes].concat());
    }
}
