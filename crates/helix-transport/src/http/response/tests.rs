//! One case per rule that a reply can keep or break; the texts are what a user reads.

use hyper::header::HeaderValue;

use super::*;

const ASK: Ask<'static> = Ask {
    range: ByteRange { start: 10, end: 20 },
    extent: Extent::Exact,
};
const WHOLE: Ask<'static> = Ask {
    range: ByteRange { start: 0, end: 100 },
    extent: Extent::Exact,
};
const PREFIX: Ask<'static> = Ask {
    range: ByteRange { start: 0, end: 64 },
    extent: Extent::UpTo,
};

fn pin(len_bytes: u64, etag: Option<&str>) -> ObjectVersion {
    ObjectVersion {
        len_bytes,
        etag: etag.and_then(StrongEtag::parse),
        weak_etag: etag.and_then(WeakEtag::parse),
    }
}

fn judge(
    ask: Ask<'_>,
    pinned: Option<&ObjectVersion>,
    status: u16,
    fields: &[(&'static str, &str)],
) -> String {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    let head = Head {
        object: "o",
        status,
        headers: &headers,
        pinned,
    };
    match head.judge(ask) {
        Ok(Verdict::Content { range, version }) => {
            let etag = version.etag.as_ref().map_or("none", StrongEtag::as_str);
            format!("content {range} of {}, tag {etag}", version.len_bytes)
        }
        Ok(Verdict::Parts { boundary, version }) => {
            format!("parts between {boundary}, tag {}", version.tag_text())
        }
        Ok(Verdict::Empty { version }) => format!("empty of {}", version.len_bytes),
        Ok(Verdict::Redirect { location }) => format!("redirect {location}"),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}

#[test]
fn partial_content_is_exactly_what_was_asked() {
    let range = ("content-range", "bytes 10-19/100");
    for (fields, expected) in [
        (
            vec![range, ("content-length", "10"), ("etag", "\"a\"")],
            "content 10..20 of 100, tag \"a\"",
        ),
        (vec![range], "content 10..20 of 100, tag none"),
        (
            vec![range, ("etag", "W/\"a\"")],
            "content 10..20 of 100, tag none",
        ),
        (
            vec![range, ("content-encoding", "identity")],
            "content 10..20 of 100, tag none",
        ),
        (
            vec![],
            "Unsupported: o: range 10..20: unusable Content-Range: missing",
        ),
        (
            vec![("content-range", "bytes 10-19/*")],
            "Unsupported: o: range 10..20: unusable Content-Range: bytes 10-19/*",
        ),
        (
            vec![("content-range", "rows 10-19/100")],
            "Unsupported: o: range 10..20: unusable Content-Range: rows 10-19/100",
        ),
        (
            vec![range, range],
            "Unsupported: o: range 10..20: unusable Content-Range: sent more than once",
        ),
        (
            vec![range, ("content-length", "+10")],
            "Unsupported: o: range 10..20: unusable Content-Length: +10",
        ),
        (
            vec![("content-range", "bytes 10-20/100")],
            "Corrupt: o: asked range 10..20, got 10..21",
        ),
        (
            vec![("content-range", "bytes 0-99/100")],
            "Corrupt: o: asked range 10..20, got 0..100",
        ),
        (
            vec![("content-range", "bytes 10-14/100")],
            "Corrupt: o: asked range 10..20, got 10..15",
        ),
        (
            vec![range, ("content-length", "11")],
            "Corrupt: o: range 10..20 of 10 bytes came with 11",
        ),
        (
            vec![range, ("content-encoding", "gzip")],
            "Unsupported: o: range 10..20: content encoding gzip refused, identity was asked",
        ),
        (
            vec![
                range,
                ("content-encoding", "identity"),
                ("content-encoding", "br"),
            ],
            "Unsupported: o: range 10..20: content encoding br refused, identity was asked",
        ),
    ] {
        assert_eq!(judge(ASK, None, 206, &fields), expected);
    }
}

#[test]
fn a_whole_object_is_taken_only_where_it_was_asked() {
    let length = ("content-length", "100");
    assert_eq!(
        judge(WHOLE, None, 200, &[length]),
        "content 0..100 of 100, tag none"
    );
    let ignored = "the origin offers the whole object instead; serve it from one that answers ranges with 206";
    assert_eq!(
        judge(ASK, None, 200, &[length]),
        format!("Unsupported: o: range 10..20 ignored: {ignored}")
    );
    assert_eq!(
        judge(WHOLE, None, 200, &[("content-length", "101")]),
        format!("Unsupported: o: range 0..100 ignored: {ignored}")
    );
    // Without a length only the pin can tell that the range is the whole object.
    assert_eq!(
        judge(WHOLE, None, 200, &[]),
        format!("Unsupported: o: range 0..100 ignored: {ignored}")
    );
    let pinned = pin(100, None);
    assert_eq!(
        judge(WHOLE, Some(&pinned), 200, &[]),
        "content 0..100 of 100, tag none"
    );
    assert_eq!(
        judge(WHOLE, None, 200, &[length, ("content-encoding", "gzip")]),
        "Unsupported: o: range 0..100: content encoding gzip refused, identity was asked"
    );
}

#[test]
fn a_prefix_may_be_the_whole_of_a_shorter_object() {
    for (status, fields, expected) in [
        (
            206,
            vec![("content-range", "bytes 0-63/100")],
            "content 0..64 of 100, tag none",
        ),
        (
            206,
            vec![("content-range", "bytes 0-39/40")],
            "content 0..40 of 40, tag none",
        ),
        (
            206,
            vec![("content-range", "bytes 0-39/100")],
            "Corrupt: o: asked range 0..64, got 0..40",
        ),
        (
            200,
            vec![("content-length", "40")],
            "content 0..40 of 40, tag none",
        ),
        (
            200,
            vec![("content-length", "64")],
            "content 0..64 of 64, tag none",
        ),
        (
            200,
            vec![("content-length", "0")],
            "content 0..0 of 0, tag none",
        ),
        (
            200,
            vec![("content-length", "65")],
            "Unsupported: o: range 0..64 ignored: the origin offers the whole object instead; serve it from one that answers ranges with 206",
        ),
        (
            200,
            vec![],
            "Unsupported: o: range 0..64 ignored: the origin offers the whole object instead; serve it from one that answers ranges with 206",
        ),
        (416, vec![("content-range", "bytes */0")], "empty of 0"),
        (
            416,
            vec![("content-range", "bytes */7")],
            "Changed: o: range 0..64: object changed: length was at least 64, now 7",
        ),
    ] {
        assert_eq!(judge(PREFIX, None, status, &fields), expected);
    }
}

#[test]
fn a_failed_condition_or_an_unsatisfied_range_is_a_change() {
    let pinned = pin(100, Some("\"a\""));
    assert_eq!(
        judge(ASK, Some(&pinned), 412, &[("etag", "\"b\"")]),
        "Changed: o: range 10..20: object changed: entity tag was \"a\", now \"b\""
    );
    assert_eq!(
        judge(ASK, Some(&pinned), 412, &[]),
        "Changed: o: range 10..20: object changed: entity tag was \"a\", now another"
    );
    assert_eq!(
        judge(ASK, Some(&pinned), 416, &[("content-range", "bytes */7")]),
        "Changed: o: range 10..20: object changed: length was 100, now 7"
    );
    assert_eq!(
        judge(ASK, Some(&pinned), 416, &[]),
        "Changed: o: range 10..20: object changed: length was 100, now shorter"
    );
    // Clipped by an object that has become shorter.
    assert_eq!(
        judge(
            ASK,
            Some(&pinned),
            206,
            &[("content-range", "bytes 10-14/15")]
        ),
        "Changed: o: range 10..20: object changed: length was 100, now 15"
    );
    // No condition was sent, so the status is merely odd.
    assert_eq!(
        judge(ASK, None, 412, &[]),
        "Unsupported: o: range 10..20 answered with status 412"
    );
}

#[test]
fn statuses_have_their_kind() {
    for (status, kind) in [
        (400, "Unsupported"),
        (401, "Auth"),
        (403, "Auth"),
        (404, "NotFound"),
        (405, "Unsupported"),
        (408, "Transient"),
        (410, "NotFound"),
        (429, "Transient"),
        (431, "Unsupported"),
        (500, "Transient"),
        (501, "Unsupported"),
        (502, "Transient"),
        (503, "Transient"),
        (504, "Transient"),
        (204, "Unsupported"),
        (304, "Unsupported"),
    ] {
        assert_eq!(
            judge(ASK, None, status, &[]),
            format!("{kind}: o: range 10..20 answered with status {status}")
        );
    }
}

#[test]
fn redirects_name_a_place() {
    for status in [301, 302, 303, 307, 308] {
        assert_eq!(
            judge(ASK, None, status, &[("location", "/x?s=1")]),
            "redirect /x?s=1"
        );
        assert_eq!(
            judge(ASK, None, status, &[]),
            "Unsupported: o: redirect not followed: no Location"
        );
    }
}

#[test]
fn retry_after_is_kept() {
    let mut headers = HeaderMap::new();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("3"));
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let head = Head {
        object: "o",
        status,
        headers: &headers,
        pinned: None,
    };
    let error = head.judge(ASK).unwrap_err();
    let expected = Some(std::time::Duration::from_secs(3));
    assert!(matches!(error, Error::Status { retry_after, .. } if retry_after == expected));
}

const SEVERAL: [ByteRange; 2] = [
    ByteRange { start: 10, end: 20 },
    ByteRange { start: 40, end: 50 },
];

#[test]
fn several_ranges_are_written_without_spaces() {
    assert_eq!(
        Ask::several(&SEVERAL, &Answerer::default()).range_value(),
        "bytes=10-19,40-49"
    );
    assert_eq!(ASK.range_value(), "bytes=10-19");
}

#[test]
#[expect(clippy::too_many_lines, reason = "cases stand one a line")]
fn several_ranges_may_come_as_parts_or_as_one_of_them_or_merged() {
    let parts = ("content-type", "multipart/byteranges; boundary=B");
    let first = ("content-range", "bytes 10-19/100");
    for (status, fields, expected) in [
        (206, vec![parts], "parts between B, tag none"),
        (
            206,
            vec![parts, ("etag", "\"a\"")],
            "parts between B, tag \"a\"",
        ),
        // A multipart head has no range of its own; if it has one all the same, the parts count.
        (206, vec![parts, first], "parts between B, tag none"),
        (
            206,
            vec![first, ("etag", "\"a\"")],
            "content 10..20 of 100, tag \"a\"",
        ),
        (
            206,
            vec![("content-range", "bytes 10-49/100")],
            "content 10..50 of 100, tag none",
        ),
        (
            206,
            vec![("content-type", "multipart/byteranges")],
            "Unsupported: o: range 10..50: unusable Content-Type: multipart/byteranges",
        ),
        (
            206,
            vec![],
            "Unsupported: o: range 10..50: unusable Content-Range: missing",
        ),
        (
            206,
            vec![parts, ("content-encoding", "gzip")],
            "Unsupported: o: range 10..50: content encoding gzip refused, identity was asked",
        ),
        (
            206,
            vec![("content-range", "bytes 0-99/100")],
            "Corrupt: o: asked range 10..50, got 0..100",
        ),
        (
            206,
            vec![first, ("content-length", "11")],
            "Corrupt: o: range 10..20 of 10 bytes came with 11",
        ),
        (
            200,
            vec![("content-length", "100")],
            "Unsupported: o: range 10..50 ignored: the origin offers the whole object instead; serve it from one that answers ranges with 206",
        ),
        (
            416,
            vec![("content-range", "bytes */100")],
            "Unsupported: o: range 10..50 answered with status 416",
        ),
        (
            501,
            vec![],
            "Unsupported: o: range 10..50 answered with status 501",
        ),
        (302, vec![("location", "/b")], "redirect /b"),
    ] {
        assert_eq!(
            judge(
                Ask::several(&SEVERAL, &Answerer::default()),
                None,
                status,
                &fields
            ),
            expected
        );
    }
    let pinned = pin(100, Some("\"a\""));
    for (status, fields) in [
        (206, vec![parts, ("etag", "\"b\"")]),
        (412, vec![("etag", "\"b\"")]),
    ] {
        assert_eq!(
            judge(
                Ask::several(&SEVERAL, &Answerer::default()),
                Some(&pinned),
                status,
                &fields
            ),
            "Changed: o: range 10..50: object changed: entity tag was \"a\", now \"b\"",
        );
    }
    // A server that merges across everything is not read.
    let far = [
        ByteRange { start: 0, end: 10 },
        ByteRange {
            start: 10_000_000,
            end: 10_000_010,
        },
    ];
    let merged = [("content-range", "bytes 0-10000009/20000000")];
    assert_eq!(
        judge(Ask::several(&far, &Answerer::default()), None, 206, &merged),
        "Corrupt: o: asked range 0..10000010, got 0..10000010",
    );
}
