//! Bodies as real servers write them, one defect at a time, and properties over any cut.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    content_bytes: 1 << 20,
    framing_bytes: 16 << 10,
};

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

fn part(start: u64, bytes: &[u8]) -> Part {
    Part {
        range: range(start, start + bytes.len() as u64),
        total_bytes: 1000,
        bytes: Bytes::copy_from_slice(bytes),
    }
}

/// Reads `body` cut into pieces of `piece_bytes`.
fn read(
    body: &[u8],
    limits: Limits,
    piece_bytes: usize,
) -> (Vec<Part>, Result<(), Malformed>, u64) {
    let mut reader = MultipartReader::new("B", limits);
    let mut parts = Vec::new();
    let mut outcome = Ok(());
    for piece in body.chunks(piece_bytes.max(1)) {
        outcome = reader.push(piece, &mut parts);
        if outcome.is_err() {
            break;
        }
    }
    let outcome = outcome.and_then(|()| reader.finish(&mut parts));
    (parts, outcome, reader.content_bytes())
}

#[track_caller]
fn assert_read(body: &str, expected: &[Part]) {
    for piece_bytes in [1, 2, 7, body.len()] {
        let (parts, outcome, content_bytes) = read(body.as_bytes(), LIMITS, piece_bytes);
        assert_eq!(outcome, Ok(()), "{body:?} by {piece_bytes}");
        assert_eq!(parts, expected, "{body:?} by {piece_bytes}");
        let sum: u64 = expected.iter().map(|part| part.range.len()).sum();
        assert_eq!(content_bytes, sum);
    }
}

#[track_caller]
fn assert_malformed(body: &str, expected: Malformed, good: &[Part]) {
    for piece_bytes in [1, 3, body.len()] {
        let (parts, outcome, _) = read(body.as_bytes(), LIMITS, piece_bytes);
        assert_eq!(outcome, Err(expected), "{body:?} by {piece_bytes}");
        assert_eq!(parts, good, "{body:?} by {piece_bytes}");
    }
}

const FIRST: &str = "--B\r\nContent-Range: bytes 0-2/1000\r\n\r\nabc\r\n";
const SECOND: &str = "--B\r\nContent-Range: bytes 10-11/1000\r\n\r\nde\r\n";

#[test]
fn bodies_as_servers_write_them() {
    let both = [part(0, b"abc"), part(10, b"de")];
    // nginx: a line end in front, a type in each part.
    assert_read(
        "\r\n--B\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes 0-2/1000\r\n\r\n\
         abc\r\n--B\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes 10-11/1000\r\n\r\n\
         de\r\n--B--\r\n",
        &both,
    );
    // Apache: lower-case names in front of the type; Go: no line end behind the last delimiter.
    assert_read(
        "--B\r\nContent-range: bytes 0-2/1000\r\nContent-type: x/y\r\n\r\nabc\r\n\
         --B\r\nCONTENT-RANGE: bytes 10-11/1000\r\n\r\nde\r\n--B--",
        &both,
    );
    // Lines that end in LF alone, padding behind a delimiter, a preamble and an epilogue.
    assert_read(
        "to whom it may concern\n--Bogus\n--B \t\nContent-Range: bytes 0-2/1000\n\nabc\n--B\n\
         Content-Range: bytes 10-11/1000\n\nde\n--B--\nthat was all\n--B\n",
        &both,
    );
    // Parts in any order, twice, merged: that is for whoever asked to judge.
    assert_read(
        &format!("{SECOND}{FIRST}{FIRST}--B--"),
        &[part(10, b"de"), part(0, b"abc"), part(0, b"abc")],
    );
    assert_read("", &[]);
    // Where the body ends early, what has its delimiter is whole and the rest is none.
    let early = format!("{FIRST}{SECOND}");
    assert_eq!(
        read(early.as_bytes(), LIMITS, 9),
        (both[..1].to_vec(), Ok(()), 5)
    );
}

#[test]
fn the_boundary_inside_a_part_is_content() {
    let bytes = b"\r\n--B--\r\n--B\r\n";
    let text = std::str::from_utf8(bytes).unwrap();
    assert_read(
        &format!("--B\r\nContent-Range: bytes 5-18/1000\r\n\r\n{text}\r\n--B--"),
        &[part(5, bytes)],
    );
}

#[test]
fn one_defect_each() {
    let first = [part(0, b"abc")];
    let with_head = |head: &str| format!("{FIRST}--B\r\n{head}\r\n\r\nde\r\n--B--");
    for head in [
        "Content-Type: x/y",
        "Content-Range: bytes 10-11/*",
        "Content-Range: bytes */1000",
        "Content-Range: bytes 11-10/1000",
        "Content-Range: rows 10-11/1000",
        "Content-Range: bytes 10-11/1000\r\nContent-Range: bytes 10-11/1000",
    ] {
        assert_malformed(&with_head(head), Malformed::ContentRange, &first);
    }
    for head in [
        "no field",
        ": no name",
        "Content-Range: bytes 10-11/1000\r\n folded: line",
        "Content-Range: bytes 10-11/1000\r\nContent-Length: 3",
        "Content-Range: bytes 10-11/1000\r\nContent-Length: two",
        "Content-Range: bytes 10-11/1000\r\nContent-Encoding: gzip",
        "Content-Range: bytes 10-11/1000\r\nContent-Transfer-Encoding: base64",
    ] {
        assert_malformed(&with_head(head), Malformed::PartHead, &first);
    }
    // More or fewer bytes than the part says: the part is not handed out. In the first, its CR and a
    // line end of LF alone would make up for the missing byte.
    for body in [
        "d\r\n--B--\r\n",
        "def\r\n--B--",
        "de--B--\r\n",
        "de\r\n\r\n--B--",
        "de\r\nx\r\n",
    ] {
        let text = format!("{FIRST}--B\r\nContent-Range: bytes 10-11/1000\r\n\r\n{body}");
        assert_malformed(&text, Malformed::Delimiter, &first);
    }
}

#[test]
fn what_is_too_much_is_not_read() {
    let long = "x".repeat(MAX_LINE_BYTES + 1);
    assert_malformed(&long, Malformed::TooMuch, &[]);
    assert_malformed(&format!("--B\r\nX: {long}"), Malformed::TooMuch, &[]);
    let many = "X: y\r\n".repeat(MAX_PART_HEAD_BYTES / 4);
    assert_malformed(&format!("--B\r\n{many}"), Malformed::TooMuch, &[]);
    let lines = "\n".repeat(usize::try_from(LIMITS.framing_bytes).unwrap() + 1);
    assert_malformed(&lines, Malformed::TooMuch, &[]);
    let epilogue = format!("{FIRST}--B--\r\n{lines}");
    assert_malformed(&epilogue, Malformed::TooMuch, &[part(0, b"abc")]);
    // A part that promises more than was asked is refused by its head.
    let promise = "--B\r\nContent-Range: bytes 0-1048576/2000000\r\n\r\n";
    assert_malformed(promise, Malformed::TooMuch, &[]);
    let twice = "--B\r\nContent-Range: bytes 0-1/1000\r\n\r\nab\r\n".repeat(2);
    let limits = Limits {
        content_bytes: 3,
        ..LIMITS
    };
    let (parts, outcome, _) = read(twice.as_bytes(), limits, 5);
    assert_eq!((parts.len(), outcome), (1, Err(Malformed::TooMuch)));
}

#[test]
fn content_types() {
    let multipart = |boundary: &str| ContentType::Multipart {
        boundary: boundary.to_owned(),
    };
    for (value, expected) in [
        (
            "multipart/byteranges; boundary=00000000000000000001",
            multipart("00000000000000000001"),
        ),
        (
            "multipart/byteranges; boundary=\"fkj 49:sn\"",
            multipart("fkj 49:sn"),
        ),
        ("multipart/byteranges; boundary=\"a\\(b\"", multipart("a(b")),
        (
            "Multipart/ByteRanges;charset=\"a;boundary=no\";BOUNDARY=yes",
            multipart("yes"),
        ),
        (
            "multipart/x-byteranges;boundary=b ; charset=utf-8",
            multipart("b"),
        ),
        ("multipart/byteranges", ContentType::Unusable),
        ("multipart/byteranges; boundary=", ContentType::Unusable),
        (
            "multipart/byteranges; boundary=\"open",
            ContentType::Unusable,
        ),
        (
            "multipart/byteranges; boundary=\"a\\",
            ContentType::Unusable,
        ),
        (
            "multipart/byteranges; boundary=\"space \"",
            ContentType::Unusable,
        ),
        (
            "multipart/byteranges; boundary=\"a\nb\"",
            ContentType::Unusable,
        ),
        ("application/octet-stream", ContentType::Other),
        ("multipart/form-data; boundary=b", ContentType::Other),
        ("", ContentType::Other),
    ] {
        assert_eq!(ContentType::parse(value), expected, "{value}");
    }
    let longest = "b".repeat(MAX_BOUNDARY_BYTES);
    let value = format!("multipart/byteranges; boundary={longest}");
    assert_eq!(ContentType::parse(&value), multipart(&longest));
    assert_eq!(
        ContentType::parse(&format!("{value}b")),
        ContentType::Unusable
    );
}

/// Some parts and their body, line ends and extra fields as drawn.
fn bodies() -> impl Strategy<Value = (Vec<Part>, Vec<u8>)> {
    let content = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..40),
        Just(b"\r\n--B\r\nContent-Range: bytes 0-2/1000\r\n\r\nabc\r\n--B--\r\n".to_vec()),
    ];
    let one = (0..900_u64, content, any::<bool>());
    let preamble = prop_oneof![
        Just(&b""[..]),
        Just(&b"\r\n"[..]),
        Just(&b"hello\n--C\n"[..])
    ];
    let drawn = (
        preamble,
        any::<bool>(),
        proptest::collection::vec(one, 0..6),
    );
    drawn.prop_map(|(preamble, bare, drawn)| {
        let end = if bare { "\n" } else { "\r\n" };
        let mut body = preamble.to_vec();
        let mut parts = Vec::new();
        for (start, bytes, typed) in drawn {
            let last = start + bytes.len() as u64 - 1;
            let kind = if typed {
                format!("Content-Type: x{end}")
            } else {
                String::new()
            };
            let head = format!("--B{end}{kind}Content-Range: bytes {start}-{last}/1000{end}{end}");
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(&bytes);
            body.extend_from_slice(end.as_bytes());
            parts.push(part(start, &bytes));
        }
        body.extend_from_slice(b"--B--\r\n");
        (parts, body)
    })
}

proptest! {
    #[test]
    fn parts_survive_any_cut((parts, body) in bodies(), piece_bytes in 1..200_usize) {
        let (found, outcome, content_bytes) = read(&body, LIMITS, piece_bytes);
        prop_assert_eq!(outcome, Ok(()));
        prop_assert_eq!(content_bytes, parts.iter().map(|part| part.range.len()).sum::<u64>());
        prop_assert_eq!(found, parts);
    }

    #[test]
    fn a_prefix_gives_the_first_parts_and_no_other((parts, body) in bodies(), cut in any::<prop::sample::Index>()) {
        let (found, outcome, _) = read(&body[..cut.index(body.len())], LIMITS, 16);
        prop_assert!(found.len() <= parts.len());
        prop_assert_eq!(&found[..], &parts[..found.len()]);
        prop_assert!(outcome != Err(Malformed::TooMuch));
    }

    #[test]
    fn any_bytes_end_in_parts_or_an_error_within_the_limits(
        (_, mut body) in bodies(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        piece_bytes in 1..50_usize,
    ) {
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let (parts, _, content_bytes) = read(&body, LIMITS, piece_bytes);
        for part in &parts {
            prop_assert_eq!(part.bytes.len() as u64, part.range.len());
            prop_assert!(part.range.end <= part.total_bytes);
        }
        prop_assert!(content_bytes <= body.len() as u64);
        // However it is cut, the answer is the same.
        prop_assert_eq!(&parts, &read(&body, LIMITS, 1).0);
    }
}
