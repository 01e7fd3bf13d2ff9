//! The mix of faults that a long run meets: every kind a range server can show on one request, weighted
//! by how often links and servers are seen to do it. Not a model of any one network.

use std::time::Duration;

use crate::{Fault, Object, Several};

/// Faults with their weights, for an object of rows of `row_bytes` bytes at the server's `path`. They cut at
/// the first byte, within a row and behind it; `path` is also served under `/moved`.
#[must_use]
pub fn every_kind(path: &str, row_bytes: u64) -> Vec<(u32, Fault)> {
    let ms = Duration::from_millis;
    let status = |code: u16| Fault::Status {
        code,
        retry_after: None,
    };
    let busy = |code: u16, wait: &str| Fault::Status {
        code,
        retry_after: Some(wait.to_owned()),
    };
    let within = row_bytes / 2;
    let mut mix = vec![
        (8, Fault::HangUp),
        (6, Fault::CloseWhenIdle),
        (3, Fault::ResetWhenIdle),
        (3, Fault::RequestTimeout),
        (3, Fault::Silence),
        (
            3,
            Fault::Drip {
                piece_bytes: 1 + row_bytes / 16,
                pause: ms(10),
            },
        ),
        (
            1,
            Fault::Drip {
                piece_bytes: 1,
                pause: ms(100),
            },
        ),
        (3, Fault::Delay(ms(300))),
        (1, Fault::Delay(ms(2500))),
        (
            3,
            Fault::SlowHead {
                piece_bytes: 8,
                pause: ms(5),
            },
        ),
        (
            1,
            Fault::SlowHead {
                piece_bytes: 1,
                pause: ms(200),
            },
        ),
        (
            3,
            Fault::Interim {
                code: 103,
                times: 2,
            },
        ),
        (
            2,
            Fault::Interim {
                code: 100,
                times: 1,
            },
        ),
        (3, Fault::Garbage),
        (
            2,
            Fault::Fields(vec![("X-Long".to_owned(), "x".repeat(70_000))]),
        ),
        (
            2,
            Fault::Fields(vec![("Keep-Alive".to_owned(), "timeout=1".to_owned())]),
        ),
        (
            2,
            Fault::Fields(vec![("Connection".to_owned(), "close".to_owned())]),
        ),
        (3, Fault::Http10),
        (3, Fault::Chunked),
        (3, Fault::Trailers),
        (3, Fault::ContentLength(7)),
        (3, Fault::ChunkedWithExtra(3)),
        (3, Fault::WholeObject),
        (3, Fault::Etag("\"v2\"".to_owned())),
        (2, Fault::Etag("W/\"v1\"".to_owned())),
        (
            3,
            Fault::Superset {
                before: 1,
                after: 1,
            },
        ),
        (4, Fault::Shift(4)),
        (3, Fault::Shift(row_bytes)),
        (3, Fault::Encoding("gzip".to_owned())),
        (2, Fault::ContentRange(None)),
        (2, Fault::ContentRange(Some("bytes 0-9/10".to_owned()))),
        (3, Fault::Redirect(format!("/moved{path}"))),
        (1, Fault::Redirect(path.to_owned())),
        (1, Fault::Redirect("file:///etc/passwd".to_owned())),
        (4, status(500)),
        (4, status(502)),
        (4, busy(503, "0")),
        (4, busy(429, "1")),
        (1, busy(503, "60")),
        (2, status(408)),
        (3, status(504)),
        (2, status(403)),
        (2, status(404)),
        // The same length and tag, other bytes; and an older version of another length.
        (
            2,
            Fault::Instead(Object::pattern(1, 1 << 20), Several::FirstOnly),
        ),
    ];
    for after_body_bytes in [0, 1, within, row_bytes] {
        mix.push((2, Fault::Reset { after_body_bytes }));
        mix.push((2, Fault::Truncate { after_body_bytes }));
        mix.push((1, Fault::Stall { after_body_bytes }));
        let chunked_cut = vec![Fault::Chunked, Fault::Truncate { after_body_bytes }];
        mix.push((1, Fault::All(chunked_cut)));
    }
    for after_head_bytes in [1, 8, 40, 90] {
        mix.push((1, Fault::TruncateHead { after_head_bytes }));
        mix.push((1, Fault::ResetHead { after_head_bytes }));
    }
    mix
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Script;

    #[test]
    fn a_weighted_script_replays_and_draws_every_kind_about_as_often_as_it_should() {
        let mix = every_kind("/rows", 100);
        let names: BTreeSet<_> = mix.iter().map(|(_, fault)| fault.name()).collect();
        let script = || Script::weighted(5, 10_000, mix.clone());
        let drawn: Vec<_> = (0..300_000)
            .map(|number| script_fault(&script(), number))
            .collect();
        assert_eq!(script().fault(77).name(), script().fault(77).name());
        let faults: Vec<_> = drawn.into_iter().filter(|name| *name != "none").collect();
        assert!((2700..3300).contains(&faults.len()), "{}", faults.len());
        let seen: BTreeSet<_> = faults.iter().copied().collect();
        assert_eq!(seen, names);
    }

    fn script_fault(script: &Script, number: u64) -> &'static str {
        script.fault(number).name()
    }
}
