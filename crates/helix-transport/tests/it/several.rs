//! Several ranges in one request: what is asked, what every manner of answer leads to, and that no
//! byte is lost or mixed on the way. The origin's log is the witness.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helix_transport::{
    ByteRange, Connection, Error, ErrorKind, HttpBackend, HttpClient, HttpConfig, ManyRead,
    MeterSnapshot, RangeSource, ReadOptions,
};
use range_testkit::several::BOUNDARY;
use range_testkit::{Fault, FaultServer, Object, PartDefect, Parts, Script, Several};

use crate::setup::{PATH, batch, quick, range};

/// Long enough that a batch does not outweigh it.
const LEN_BYTES: u64 = 4 << 20;
const ROW_BYTES: u64 = 680;

fn object() -> Object {
    Object::pattern(3, LEN_BYTES)
}

/// `count` rows, 50 rows apart.
fn rows(count: u64) -> Vec<ByteRange> {
    (0..count)
        .map(|row| range(row * 50 * ROW_BYTES, row * 50 * ROW_BYTES + ROW_BYTES))
        .collect()
}

/// A quick configuration with few connections, so that a batch has waves.
fn config() -> HttpConfig {
    HttpConfig {
        connections: 4,
        // A busy machine is no silent origin: what is counted here are requests.
        first_byte_timeout: Duration::from_secs(5),
        stall_timeout: Duration::from_secs(5),
        ..quick()
    }
}

async fn serve(script: Script) -> (FaultServer, HttpBackend) {
    let server = FaultServer::start(PATH, object(), script).await.unwrap();
    let backend = HttpBackend::new(&server.url(PATH), config()).unwrap();
    (server, backend)
}

async fn read(backend: &HttpBackend, ranges: &[ByteRange]) -> (ManyRead, MeterSnapshot) {
    let options = batch();
    let many = backend.read_many(ranges, &options).await;
    (many, options.meter.snapshot())
}

#[track_caller]
fn assert_rows(many: &ManyRead, ranges: &[ByteRange], object: &Object) {
    assert_eq!(many.replies.len(), ranges.len());
    for (reply, range) in many.replies.iter().zip(ranges) {
        let bytes = reply
            .as_ref()
            .unwrap_or_else(|error| panic!("{range}: {error:?}"));
        assert_eq!(bytes, &object.slice(range.start, range.end), "{range}");
    }
}

/// Ranges in each request, in order of arrival.
fn asked(server: &FaultServer) -> Vec<usize> {
    let ranges = |range: Option<String>| range.unwrap_or_default().split(',').count();
    server
        .log()
        .entries()
        .into_iter()
        .map(|entry| ranges(entry.range))
        .collect()
}

fn honest() -> Fault {
    Fault::Several(Several::honest())
}

fn parts(parts: Parts) -> Fault {
    Fault::Several(Several::Parts(parts))
}

#[tokio::test]
async fn a_canary_of_two_then_ten_at_a_time_then_twenty() {
    let (server, backend) = serve(Script::always(honest())).await;
    let ranges = rows(100);
    let (many, meter) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object());
    let sizes = asked(&server);
    assert_eq!(sizes.iter().sum::<usize>(), 100);
    assert_eq!(
        sizes.iter().filter(|size| **size == 2).count(),
        1,
        "{sizes:?}"
    );
    assert!(sizes.contains(&10) && sizes.len() < 30, "{sizes:?}");
    assert_eq!(many.requests, sizes.len() as u64);
    assert_eq!(meter.requests, many.requests);
    assert_eq!(meter.retries, 0);

    let entries = server.log().entries();
    let several: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry.range.as_deref())
        .filter(|range| range.contains(','))
        .collect();
    for value in several {
        assert!(!value.contains(' ') && value.len() <= 2048, "{value}");
        let firsts: Vec<u64> = value["bytes=".len()..]
            .split(',')
            .map(|range| range.split('-').next().unwrap().parse().unwrap())
            .collect();
        assert!(firsts.is_sorted(), "{value}");
    }

    // Proved, and a second batch profits from its first request on.
    let before = server.log().len();
    let (many, _) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object());
    assert!(
        server.log().len() - before <= 8,
        "{:?}",
        &asked(&server)[before..]
    );
    assert!(
        asked(&server)[before..]
            .iter()
            .all(|size| (10..=40).contains(size))
    );
    assert!(many.round_trips <= 2);
}

#[tokio::test]
async fn bodies_are_counted_to_the_byte_and_framing_apart() {
    let (server, backend) = serve(Script::always(honest())).await;
    let ranges = rows(60);
    let (many, meter) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object());
    assert_eq!(meter.received_bytes, 60 * ROW_BYTES);
    assert!(meter.framing_bytes > 0);
    assert_eq!(meter.body_bytes(), server.log().body_bytes());
    assert_eq!(meter.statuses, [0, meter.requests, 0, 0, 0]);
    assert!(meter.head_bytes_sent > 0 && meter.head_bytes_received > 0);
}

#[tokio::test]
async fn a_batch_of_one_wave_sends_no_canary_and_a_single_row_is_a_single_range() {
    let (server, backend) = serve(Script::always(honest())).await;
    for count in [1, 2, 4] {
        let (many, _) = read(&backend, &rows(count)).await;
        assert_rows(&many, &rows(count), &object());
        assert_eq!(many.round_trips, 1);
    }
    assert!(asked(&server).iter().all(|size| *size == 1));
    read(&backend, &rows(5)).await;
    assert!(asked(&server).contains(&2));
    // Proved now: several rows go together also where they fit one wave.
    let before = server.log().len();
    read(&backend, &rows(3)).await;
    assert_eq!(asked(&server)[before..], [3]);
}

/// How an origin may refuse several ranges; every row comes all the same, and it is remembered.
#[tokio::test]
async fn refusals_are_remembered_and_cost_no_row() {
    let defect = |defect| {
        parts(Parts {
            defect: Some((0, defect)),
            ..Parts::default()
        })
    };
    let manners = [
        Fault::Several(Several::Status(200)),
        Fault::Several(Several::Status(400)),
        Fault::Several(Several::Status(403)),
        Fault::Several(Several::Status(404)),
        Fault::Several(Several::Status(416)),
        Fault::Several(Several::Status(431)),
        Fault::Several(Several::Status(500)),
        Fault::Several(Several::Status(501)),
        Fault::Several(Several::FirstOnly),
        parts(Parts {
            most_parts: 1,
            ..Parts::default()
        }),
        parts(Parts {
            boundary: Some("x".repeat(71)),
            ..Parts::default()
        }),
        defect(PartDefect::NoContentRange),
        defect(PartDefect::LongHead(5000)),
        defect(PartDefect::Short(1)),
        defect(PartDefect::Long(1)),
        defect(PartDefect::Encoded),
        parts(Parts {
            preamble: "x".repeat(6000),
            ..Parts::default()
        }),
    ];
    for manner in manners {
        let (server, backend) = serve(Script::always(manner.clone())).await;
        let ranges = rows(12);
        let (many, meter) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
        let sizes = asked(&server);
        assert_eq!(
            sizes.iter().filter(|size| **size > 1).count(),
            1,
            "{manner:?}: {sizes:?}"
        );
        // One request more than rows, or the one row it did bring less: no wave is lost.
        assert!((12..=13).contains(&sizes.len()), "{manner:?}: {sizes:?}");
        assert!(many.round_trips <= 4, "{manner:?}: {}", many.round_trips);
        assert_eq!(meter.requests, sizes.len() as u64);
        // Never asked again.
        let before = server.log().len();
        let (many, meter) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
        assert!(
            asked(&server)[before..].iter().all(|size| *size == 1),
            "{manner:?}"
        );
        assert_eq!((meter.requests, meter.retries), (12, 0), "{manner:?}");
    }
}

#[tokio::test]
async fn a_whole_object_offered_for_several_ranges_is_not_read() {
    let large = Object::pattern(3, 256 << 20);
    let refusing = Script::always(Fault::Several(Several::Status(200)));
    let server = FaultServer::start(PATH, large.clone(), refusing)
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), config()).unwrap();
    let (many, meter) = read(&backend, &rows(12)).await;
    assert_rows(&many, &rows(12), &large);
    assert_eq!(meter.received_bytes, 12 * ROW_BYTES);
    assert_eq!(meter.framing_bytes, 0);
    // What the two systems' socket buffers took before the connection was closed.
    let entries = server.log().finished(13).await;
    let sent: u64 = entries.iter().map(|entry| entry.body_bytes).sum();
    assert!(sent < 32 << 20, "{sent}");
}

#[tokio::test]
async fn honest_bodies_of_every_shape_prove_it() {
    let shape = Parts::default();
    let shapes = [
        Parts {
            quoted_boundary: true,
            ..shape.clone()
        },
        Parts {
            preamble: "to whom it may concern".into(),
            epilogue: "bye\r\n".into(),
            ..shape.clone()
        },
        Parts {
            bare_lf: true,
            ..shape.clone()
        },
        Parts {
            reversed: true,
            ..shape.clone()
        },
        Parts {
            doubled: true,
            ..shape.clone()
        },
        Parts {
            boundary: Some("'()+_,-./:=? x".into()),
            quoted_boundary: true,
            ..shape.clone()
        },
    ];
    for shape in shapes {
        let (server, backend) = serve(Script::always(parts(shape.clone()))).await;
        let ranges = rows(40);
        let (many, meter) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
        assert!(asked(&server).iter().any(|size| *size > 2), "{shape:?}");
        assert_eq!(meter.body_bytes(), server.log().body_bytes(), "{shape:?}");
        assert_eq!(meter.retries, 0, "{shape:?}");
    }
}

#[tokio::test]
async fn the_boundary_inside_rows_is_content() {
    let text = format!("\r\n--{BOUNDARY}\r\nContent-Range: bytes 0-9/10\r\n\r\n--{BOUNDARY}--\r\n");
    let bytes: Vec<u8> = text.bytes().cycle().take(1 << 20).collect();
    let object = Object::bytes(bytes);
    let server = FaultServer::start(PATH, object.clone(), Script::always(honest()))
        .await
        .unwrap();
    let backend = HttpBackend::new(&server.url(PATH), config()).unwrap();
    let ranges: Vec<_> = (0..50)
        .map(|row| range(row * 20_000, row * 20_000 + 333))
        .collect();
    let (many, _) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object);
    assert!(asked(&server).iter().any(|size| *size > 2));
}

#[tokio::test]
async fn ten_of_twenty_as_lighttpd_does_is_found_out_once() {
    let dropping = Parts {
        most_parts: 10,
        ..Parts::default()
    };
    let (server, backend) = serve(Script::always(parts(dropping))).await;
    let ranges = rows(120);
    for _ in 0..2 {
        let (many, _) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
    }
    let before = server.log().len();
    let (many, meter) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object());
    assert_eq!(asked(&server)[before..], [10; 12]);
    assert_eq!((meter.requests, meter.retries), (12, 0));
    assert_eq!(many.round_trips, 3);
}

#[tokio::test]
async fn too_many_ranges_are_halved_until_they_pass() {
    for status in [200, 400, 416, 431, 500, 501] {
        let limited = Fault::Several(Several::Limited { most: 7, status });
        let (server, backend) = serve(Script::always(limited)).await;
        let ranges = rows(120);
        let (many, _) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
        // Ten were too many, five are not; what was refused came singly, at once.
        let sizes = asked(&server);
        let refused = sizes.iter().filter(|size| **size > 7).count();
        assert!((1..=4).contains(&refused), "{status}: {sizes:?}");
        assert!(sizes.iter().all(|size| *size <= 10), "{status}: {sizes:?}");
        let before = sizes.len();
        let (many, meter) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
        assert_eq!(asked(&server)[before..], [5; 24], "{status}");
        assert_eq!((meter.requests, meter.retries), (24, 0), "{status}");
    }
}

#[tokio::test]
async fn what_is_learned_behind_a_redirect_is_learned_of_the_origin_there() {
    for (manner, expected) in [
        (Several::honest(), "several"),
        (Several::Status(416), "single"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("origins.json");
        let script = Script::always(Fault::Several(manner));
        let store = FaultServer::start(PATH, object(), script).await.unwrap();
        let script = Script::always(Fault::Redirect(store.url(PATH)));
        let hub = FaultServer::start(PATH, object(), script).await.unwrap();
        let config = HttpConfig {
            capability_file: Some(file.clone()),
            ..config()
        };
        let backend = HttpBackend::new(&hub.url(PATH), config).unwrap();
        let ranges = rows(30);
        let (many, _) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&store.address().to_string()), "{text}");
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains(&hub.address().to_string()), "{text}");
        // And it is heeded: the place is known now.
        let before = store.log().len();
        let (many, _) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
        let several = asked(&store)[before..].iter().all(|size| *size > 1);
        assert_eq!(several, expected == "several");
    }
}

#[tokio::test]
async fn a_failed_request_is_told_range_by_range() {
    let (server, backend) = serve(Script::always(honest())).await;
    read(&backend, &rows(30)).await;
    server.set_script(Script::always(Fault::HangUp));
    let ranges = rows(6);
    let (many, _) = read(&backend, &ranges).await;
    for (reply, asked) in many.replies.iter().zip(&ranges) {
        let error = reply.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transient, "{error:?}");
        assert_eq!(error.attempts(), 3, "{error:?}");
        assert!(
            matches!(error.last_attempt(), Error::Interrupted { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(&asked.to_string()), "{error}");
    }
}

#[tokio::test]
async fn merged_parts_answer_every_row_in_them() {
    let merging = Parts {
        merge_gap_bytes: Some(80),
        ..Parts::default()
    };
    let (server, backend) = serve(Script::always(parts(merging))).await;
    // Pairs of rows 64 bytes apart; the planner would have joined them, a caller need not.
    let ranges: Vec<_> = (0..20_u64)
        .flat_map(|pair| {
            let start = pair * 100_000;
            [range(start, start + 500), range(start + 564, start + 1064)]
        })
        .collect();
    let (many, meter) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object());
    assert_eq!(meter.body_bytes(), server.log().body_bytes());
    // One range for all is no proof, and no loss either.
    let (server, backend) = serve(Script::always(Fault::Several(Several::Merged))).await;
    let close: Vec<_> = (0..12)
        .map(|row| range(row * 600, row * 600 + 500))
        .collect();
    let (many, _) = read(&backend, &close).await;
    assert_rows(&many, &close, &object());
    assert_eq!(asked(&server).len(), 11);
}

#[tokio::test]
async fn a_canary_that_hangs_is_given_up_and_the_others_do_not_wait() {
    let script = Script::list([Fault::Silence]);
    let server = FaultServer::start(PATH, object(), script).await.unwrap();
    let config = HttpConfig {
        first_byte_timeout: Duration::from_millis(300),
        ..config()
    };
    let backend = HttpBackend::new(&server.url(PATH), config).unwrap();
    let ranges = rows(12);
    let (many, _) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object());
    let sizes = asked(&server);
    assert_eq!(sizes[0], 2);
    assert_eq!(sizes.len(), 13);
    // The ten others were asked before the canary's two.
    let entries = server.log().entries();
    let position = |wanted: &ByteRange| {
        let text = format!("bytes={}-{}", wanted.start, wanted.end - 1);
        entries
            .iter()
            .position(|entry| entry.range.as_deref() == Some(&text))
            .unwrap()
    };
    assert!(position(&ranges[0]) > position(&ranges[11]));
    let before = server.log().len();
    read(&backend, &ranges).await;
    assert!(asked(&server)[before..].iter().all(|size| *size == 1));
}

#[tokio::test]
async fn a_reply_that_breaks_off_keeps_its_parts_and_asks_for_the_rest() {
    let cut = parts(Parts {
        cut_after_bytes: Some(3 * (ROW_BYTES + 130)),
        ..Parts::default()
    });
    let (server, backend) = serve(Script::always(honest())).await;
    read(&backend, &rows(30)).await;
    let before = server.log().len();
    let mut faults = vec![honest(); before];
    faults.push(cut);
    faults.extend(vec![honest(); 20]);
    server.set_script(Script::list(faults));
    let ranges = rows(9);
    let (many, meter) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object());
    assert_eq!(meter.retries, 1);
    let sizes = &asked(&server)[before..];
    assert_eq!(sizes.len(), 2, "{sizes:?}");
    assert!(sizes[1] < sizes[0] && sizes[1] >= 6, "{sizes:?}");
}

#[tokio::test]
async fn announced_lengths_that_lie_lose_no_row() {
    for off_by in [-5, -400, 3, 100_000] {
        let lying = Parts {
            content_length_off_by: off_by,
            ..Parts::default()
        };
        let (_server, backend) = serve(Script::always(parts(lying))).await;
        let ranges = rows(12);
        let (many, _) = read(&backend, &ranges).await;
        assert_rows(&many, &ranges, &object());
    }
}

#[tokio::test]
async fn shifted_bytes_in_one_part_are_for_the_caller_to_find() {
    // Right headers, wrong bytes: nothing here can know. The other rows are right.
    let shifted = parts(Parts {
        defect: Some((1, PartDefect::Shift(4))),
        ..Parts::default()
    });
    let (_server, backend) = serve(Script::list([shifted])).await;
    let ranges = rows(12);
    let (many, _) = read(&backend, &ranges).await;
    let wrong: Vec<_> = (0..12)
        .filter(|&row| {
            many.replies[row].as_ref().unwrap()
                != &object().slice(ranges[row].start, ranges[row].end)
        })
        .collect();
    assert_eq!(wrong, [1]);
}

#[tokio::test]
async fn a_changed_object_fails_the_rows_of_the_new_version_and_says_so() {
    let newer = object().with_etag("\"v2\"");
    let longer = Object::pattern(3, LEN_BYTES + 1);
    let untagged = Object::pattern(4, LEN_BYTES - 7).without_etag();
    for (other, fact, old, new) in [
        (newer, "entity tag", "\"v1\"", "\"v2\""),
        (longer, "length", "4194304", "4194305"),
        (untagged, "entity tag", "\"v1\"", "none"),
    ] {
        let server = FaultServer::start_ignoring_if_match(PATH, object(), Script::always(honest()))
            .await
            .unwrap();
        let backend = HttpBackend::new(&server.url(PATH), config()).unwrap();
        read(&backend, &rows(30)).await;
        server.put(PATH, other);
        let (many, _) = read(&backend, &rows(30)).await;
        for reply in &many.replies {
            let error = reply.as_ref().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Changed);
            let Error::Changed {
                fact: found_fact,
                expected,
                found,
                ..
            } = error.last_attempt()
            else {
                panic!("{error}");
            };
            assert_eq!(
                (*found_fact, expected.as_str(), found.as_str()),
                (fact, old, new)
            );
        }
    }
}

#[tokio::test]
async fn versions_do_not_mix_within_one_reply() {
    // From the third part on the parts are those of a longer object.
    let longer = Object::pattern(9, LEN_BYTES + 500);
    let mixed = parts(Parts {
        defect: Some((2, PartDefect::From(longer))),
        ..Parts::default()
    });
    let (server, backend) = serve(Script::always(honest())).await;
    read(&backend, &rows(30)).await;
    server.set_script(Script::always(mixed));
    let ranges = rows(9);
    let (many, _) = read(&backend, &ranges).await;
    for (row, reply) in many.replies.iter().enumerate() {
        match reply {
            Ok(bytes) => {
                assert!(row < 2);
                assert_eq!(bytes, &object().slice(ranges[row].start, ranges[row].end));
            }
            Err(error) => {
                assert!(row >= 2);
                assert_eq!(error.kind(), ErrorKind::Changed);
            }
        }
    }
}

#[tokio::test]
async fn knowledge_survives_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = HttpConfig {
        capability_file: Some(folder.path().join("origins.json")),
        ..config()
    };
    let server = FaultServer::start(PATH, object(), Script::always(honest()))
        .await
        .unwrap();
    let url = format!("{}?token=secret", server.url(PATH));
    let first = HttpBackend::new(&url, config.clone()).unwrap();
    read(&first, &rows(30)).await;
    let text = std::fs::read_to_string(folder.path().join("origins.json")).unwrap();
    assert!(text.contains(&server.address().to_string()), "{text}");
    assert!(
        !text.contains("secret") && !text.contains("rows.bin"),
        "{text}"
    );

    let before = server.log().len();
    let second = HttpBackend::new(&url, config).unwrap();
    let (many, _) = read(&second, &rows(30)).await;
    assert_rows(&many, &rows(30), &object());
    assert!(asked(&server)[before..].iter().all(|size| *size > 1));
}

#[tokio::test]
async fn ranges_in_any_order_and_empty_ones_are_answered_in_theirs() {
    let (server, backend) = serve(Script::always(honest())).await;
    let mut ranges = rows(20);
    ranges.reverse();
    ranges.insert(3, range(7, 7));
    ranges.push(range(LEN_BYTES - 5, LEN_BYTES));
    let (many, _) = read(&backend, &ranges).await;
    assert_rows(&many, &ranges, &object());
    // Overlapping ranges are asked one by one.
    let before = server.log().len();
    let overlapping = [range(0, 100), range(50, 150), range(50, 150)];
    let (many, _) = read(&backend, &overlapping).await;
    assert_rows(&many, &overlapping, &object());
    assert_eq!(asked(&server)[before..], [1; 3]);
    // What lies outside fails alone, without a request.
    let before = server.log().len();
    let (many, _) = read(&backend, &[range(0, 10), range(LEN_BYTES, LEN_BYTES + 1)]).await;
    assert_eq!(
        many.replies[0].as_ref().unwrap(),
        &Bytes::from(object().slice(0, 10))
    );
    assert!(matches!(
        &**many.replies[1].as_ref().unwrap_err(),
        Error::OutsideObject { .. }
    ));
    assert_eq!(server.log().len() - before, 1);
}

#[tokio::test]
async fn a_fresh_connection_is_one_made_after_the_read_began() {
    let (server, backend) = serve(Script::always(honest())).await;
    let ranges = rows(30);
    read(&backend, &ranges).await;
    let before = server.log().len();
    let known = server
        .log()
        .entries()
        .iter()
        .map(|entry| entry.connection)
        .max()
        .unwrap();
    let options: ReadOptions = batch().over(Connection::Fresh);
    let many = backend.read_many(&ranges, &options).await;
    assert_rows(&many, &ranges, &object());
    backend.read(range(0, 10), &options).await.unwrap();
    let entries = server.log().entries();
    assert!(
        entries[before..]
            .iter()
            .all(|entry| entry.connection > known),
        "{entries:?}"
    );
    // One or more requests over each, but not a connection a range.
    let mut fresh: Vec<u64> = entries[before..]
        .iter()
        .map(|entry| entry.connection)
        .collect();
    fresh.sort_unstable();
    fresh.dedup();
    assert!(fresh.len() <= 5, "{fresh:?}");
    let shared = Arc::strong_count(&options.meter);
    assert_eq!(shared, 1);
}

/// Rows and the paths that prove them are two batches over one origin: the paths profit from what
/// the rows' canary finds out.
#[tokio::test]
async fn a_batch_beside_a_canary_waits_for_its_answer() {
    for manner in [Several::honest(), Several::Status(416)] {
        let expected = if manner == Several::honest() { 2 } else { 8 };
        let server = FaultServer::start(PATH, object(), Script::always(Fault::Several(manner)))
            .await
            .unwrap();
        server.put("/paths", object());
        let client = HttpClient::new(config()).unwrap();
        let open = |path| HttpBackend::with_client(&server.url(path), &client).unwrap();
        let (rows_of, paths_of) = (open(PATH), open("/paths"));
        let ranges = rows(30);
        let (left, right) = tokio::join!(read(&rows_of, &ranges), read(&paths_of, &ranges));
        assert_rows(&left.0, &ranges, &object());
        assert_rows(&right.0, &ranges, &object());
        let sizes = asked(&server);
        let canaries = sizes.iter().filter(|size| **size == 2).count();
        assert_eq!(canaries, 1, "{sizes:?}");
        assert_eq!(left.0.round_trips, expected, "{sizes:?}");
        assert!(right.0.round_trips <= expected, "{sizes:?}");
    }
}
