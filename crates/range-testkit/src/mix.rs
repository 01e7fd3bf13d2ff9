//! The mix of faults that a long run meets: every kind a range server can show on one request, weighted
//! by how often links and servers are seen to do it. Not a model of any one network.

use std::time::Duration;

use crate::{Fault, Object, PartDefect, Parts, Several};

/// Faults with their weights, for an object of rows of `row_bytes` bytes at the server's `path`. They cut at
/// the first byte, within a row and behind it; `path` is also served under `/moved`.
#[must_use]
pub fn every_kind(path: &str, row_bytes: u64) -> Vec<(u32, Fault)> {
    [
        slow(row_bytes),
        unusual(),
        lies(row_bytes),
        refusals(path),
        cuts(row_bytes),
        of_several(row_bytes),
    ]
    .concat()
}

/// Honest, or silent, at another pace.
fn slow(row_bytes: u64) -> Vec<(u32, Fault)> {
    let ms = Duration::from_millis;
    let drip = |piece_bytes, pause| Fault::Drip { piece_bytes, pause };
    let slow_head = |piece_bytes, pause| Fault::SlowHead { piece_bytes, pause };
    vec![
        (3, Fault::Silence),
        (3, drip(1 + row_bytes / 16, ms(10))),
        (1, drip(1, ms(100))),
        (3, Fault::Delay(ms(300))),
        (1, Fault::Delay(ms(2500))),
        (3, slow_head(8, ms(5))),
        (1, slow_head(1, ms(200))),
    ]
}

/// What the specification allows, and what it doesn't foresee.
fn unusual() -> Vec<(u32, Fault)> {
    let field = |name: &str, value: &str| Fault::Fields(vec![(name.to_owned(), value.to_owned())]);
    let interim = |code, times| Fault::Interim { code, times };
    vec![
        (8, Fault::HangUp),
        (6, Fault::CloseWhenIdle),
        (3, Fault::ResetWhenIdle),
        (3, Fault::RequestTimeout),
        (3, interim(103, 2)),
        (2, interim(100, 1)),
        (3, Fault::Garbage),
        (2, field("X-Long", &"x".repeat(70_000))),
        (2, field("Keep-Alive", "timeout=1")),
        (2, field("Connection", "close")),
        (3, Fault::Http10),
        (3, Fault::Chunked),
        (3, Fault::Trailers),
    ]
}

/// Replies that are not what was asked.
fn lies(row_bytes: u64) -> Vec<(u32, Fault)> {
    let superset = Fault::Superset {
        before: 1,
        after: 1,
    };
    // The same tag, other bytes, another length.
    let other = Fault::Instead(Object::pattern(1, 1 << 20), Several::FirstOnly);
    vec![
        (3, Fault::ContentLength(7)),
        (3, Fault::ChunkedWithExtra(3)),
        (3, Fault::WholeObject),
        (3, Fault::Etag("\"v2\"".to_owned())),
        (2, Fault::Etag("W/\"v1\"".to_owned())),
        (3, superset),
        (4, Fault::Shift(4)),
        (3, Fault::Shift(row_bytes)),
        (3, Fault::Encoding("gzip".to_owned())),
        (2, Fault::ContentRange(None)),
        (2, Fault::ContentRange(Some("bytes 0-9/10".to_owned()))),
        (2, other),
    ]
}

/// Statuses, and redirects to a second path, to itself and to nowhere.
fn refusals(path: &str) -> Vec<(u32, Fault)> {
    let status = |code: u16, wait: Option<&str>| Fault::Status {
        code,
        retry_after: wait.map(str::to_owned),
    };
    vec![
        (4, status(500, None)),
        (4, status(502, None)),
        (4, status(503, Some("0"))),
        (4, status(429, Some("1"))),
        (1, status(503, Some("60"))),
        (2, status(408, None)),
        (3, status(504, None)),
        (2, status(403, None)),
        (2, status(404, None)),
        (3, Fault::Redirect(format!("/moved{path}"))),
        (1, Fault::Redirect(path.to_owned())),
        (1, Fault::Redirect("file:///etc/passwd".to_owned())),
    ]
}

/// Connections that break, within the head and at each kind of byte of the body.
fn cuts(row_bytes: u64) -> Vec<(u32, Fault)> {
    let mut mix = Vec::new();
    for after_body_bytes in [0, 1, row_bytes / 2, row_bytes] {
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

/// Ways to answer several ranges, in weights of which half counts: where one range is asked they do nothing.
fn of_several(row_bytes: u64) -> Vec<(u32, Fault)> {
    let parts = |parts: Parts| Several::Parts(parts);
    let defect = |at, defect| {
        parts(Parts {
            defect: Some((at, defect)),
            ..Parts::default()
        })
    };
    let manners = [
        Several::Status(200),
        Several::Status(416),
        Several::FirstOnly,
        Several::Merged,
        parts(Parts {
            quoted_boundary: true,
            preamble: "before".to_owned(),
            epilogue: "behind".to_owned(),
            ..Parts::default()
        }),
        parts(Parts {
            reversed: true,
            bare_lf: true,
            ..Parts::default()
        }),
        parts(Parts {
            doubled: true,
            ..Parts::default()
        }),
        parts(Parts {
            most_parts: 2,
            ..Parts::default()
        }),
        parts(Parts {
            cut_after_bytes: Some(row_bytes + row_bytes / 2),
            ..Parts::default()
        }),
        defect(1, PartDefect::Shift(row_bytes)),
        defect(1, PartDefect::Short(1)),
        defect(0, PartDefect::Long(1)),
        defect(1, PartDefect::NoContentRange),
        defect(0, PartDefect::LongHead(20_000)),
        defect(1, PartDefect::Encoded),
        defect(1, PartDefect::Total(7)),
        defect(1, PartDefect::From(Object::pattern(2, 1 << 20))),
    ];
    manners
        .into_iter()
        .map(|manner| (2, Fault::Several(manner)))
        .collect()
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
