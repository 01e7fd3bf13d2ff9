//! The wire, one wrong input for each rule, and what a row comes to.

use super::*;

const ROWS: u64 = 3;
const COLS: u32 = 4;

fn header() -> SketchHeader {
    SketchHeader {
        rows: ROWS,
        cols: COLS,
        rank: 2,
        error: SketchError {
            relative: 0.75,
            mean_cosine: 0.5,
            worst_cosine: -0.25,
            worst_row: 2,
        },
    }
}

/// Components (1, 0, 0, 0) and (0, 0, 2, 0); rows of coefficients (1, 0), (-1, 0.5), (0, 0).
fn body() -> Vec<u8> {
    let mut body = header().encode().unwrap().to_vec();
    for value in [1.0_f32, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0] {
        body.extend_from_slice(&value.to_le_bytes());
    }
    push_sketch_row(&[1.0, 0.0], &mut body);
    push_sketch_row(&[-1.0, 0.5], &mut body);
    push_sketch_row(&[0.0, f32::NAN], &mut body);
    body
}

fn parse(body: &[u8]) -> Result<EmbedSketch<&[u8]>, Error> {
    EmbedSketch::parse(body, ROWS, u64::from(COLS))
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let body = body();
    assert_eq!(&body[..8], b"gkqsktch");
    assert_eq!(body[8..16], [1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(
        body[16..32],
        [3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0]
    );
    assert_eq!(body[32..40], 0.75_f64.to_le_bytes());
    assert_eq!(body[40..48], 0.5_f64.to_le_bytes());
    assert_eq!(body[48..52], (-0.25_f32).to_le_bytes());
    assert_eq!(body[52..64], [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(body.len(), 64 + 2 * 4 * 4 + 3 * (4 + 2));
    assert_eq!(header().sketch_bytes(), u64::try_from(body.len()).ok());
    // Row 1: scale 1/127, then -127 and 64 (63.5 rounded away from zero).
    assert_eq!(
        body[102..108],
        [&(1.0_f32 / 127.0).to_le_bytes()[..], &[0x81, 64]].concat()
    );
}

#[test]
fn rows_are_their_coefficients_times_the_components() {
    let body = body();
    let sketch = parse(&body).unwrap();
    assert_eq!(*sketch.header(), header());
    assert_eq!(sketch.row(0).unwrap(), [1.0, 0.0, 0.0, 0.0]);
    let row = sketch.row(1).unwrap();
    assert_eq!((row[0], row[1], row[3]), (-1.0, 0.0, 0.0));
    assert!((row[2] - 1.0).abs() <= 1.0 / 127.0, "{row:?}");
    assert_eq!(
        sketch.row(2).unwrap(),
        [0.0; 4],
        "what is not finite counts as 0"
    );
    assert_eq!(sketch.row(3), None);
    assert_eq!(sketch.row(u64::MAX), None);
}

#[test]
fn every_prefix_is_refused() {
    let body = body();
    for end in 0..body.len() {
        assert!(parse(&body[..end]).is_err(), "{end}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "rules stand one a line")]
fn each_rule_refuses_by_name() {
    let with = |offset: usize, bytes: &[u8]| {
        let mut body = body();
        body[offset..offset + bytes.len()].copy_from_slice(bytes);
        body
    };
    for (what, body, part) in [
        ("magic", with(0, b"GKQ"), "magic of a sketch"),
        ("version", with(8, &[2]), "unknown version 2"),
        ("form", with(12, &[9]), "unknown form 9"),
        ("no rows", with(16, &[0]), "rows may not be zero"),
        ("no columns", with(24, &[0]), "cols may not be zero"),
        ("no rank", with(28, &[0]), "rank may not be zero"),
        ("rank", with(28, &[5]), "rank is 5, the limit is 4"),
        (
            "worst row",
            with(52, &[3]),
            "worst_row is 3, the limit is 2",
        ),
        ("reserved", with(63, &[1]), "reserved must be zero"),
        ("other rows", with(16, &[4]), "rows is 4, expected 3"),
        ("other columns", with(24, &[3]), "cols is 3, expected 4"),
        (
            "other rank",
            with(28, &[1]),
            "body_bytes is 114, expected 95",
        ),
        ("many rows", with(16, &[255; 8]), "rows is"),
        (
            "error",
            with(32, &f64::NAN.to_le_bytes()),
            "relative_error is NaN",
        ),
        (
            "negative",
            with(32, &(-1.0_f64).to_le_bytes()),
            "expected a finite number from 0",
        ),
        (
            "endless",
            with(32, &f64::INFINITY.to_le_bytes()),
            "relative_error is inf",
        ),
        (
            "mean",
            with(40, &1.5_f64.to_le_bytes()),
            "mean_cosine is 1.5, expected -1 to 1",
        ),
        (
            "worst",
            with(48, &(-1.5_f32).to_le_bytes()),
            "worst_cosine is -1.5, expected -1 to 1",
        ),
        (
            "scale",
            with(102, &f32::NAN.to_le_bytes()),
            "the scale of row 1 is NaN",
        ),
        (
            "scales",
            with(108, &f32::INFINITY.to_le_bytes()),
            "the scale of row 2 is inf",
        ),
        (
            "component",
            with(64, &f32::INFINITY.to_le_bytes()),
            "not finite",
        ),
        (
            "longer",
            [body(), vec![0]].concat(),
            "body_bytes is 115, expected 114",
        ),
    ] {
        let text = parse(&body).unwrap_err().to_string();
        assert!(
            text.contains("section sketch") && text.contains(part),
            "{what}: {text}"
        );
    }
    let overflow = SketchHeader {
        rows: u64::MAX,
        ..header()
    };
    assert_eq!(overflow.sketch_bytes(), None);
    assert!(
        SketchHeader {
            rank: 5,
            ..header()
        }
        .encode()
        .is_err()
    );
}
