//! docs/reliability.md, from a result.

use std::fmt::Write as _;

use super::Soak;

/// What each fault is, in the words of the page.
pub(super) const KINDS: [(&str, &str); 38] = [
    (
        "added-fields",
        "a head of 70 kB, `Keep-Alive: timeout=1`, or `Connection: close`",
    ),
    (
        "chunked",
        "no `Content-Length`, body in chunks; some cut between two",
    ),
    ("chunked-too-long", "a chunked body longer than the range"),
    (
        "close-when-idle",
        "connection closed behind an honest reply, though kept alive",
    ),
    (
        "delay",
        "honest after 0.3 s or 2.5 s (the first-byte limit is 2 s)",
    ),
    (
        "drip",
        "body in small pieces with pauses, some too slow for the deadline",
    ),
    (
        "encoding",
        "`Content-Encoding: gzip`, though identity was asked",
    ),
    ("garbage", "bytes that are no HTTP"),
    ("hang-up", "connection closed without a reply"),
    ("http-1.0", "HTTP/1.0, no length, ended by closing"),
    ("interim-replies", "100 or two 103 before the reply"),
    (
        "other-version",
        "another object's bytes under the same tag and another length",
    ),
    ("redirect", "302 to a second path, to itself, or to `file:`"),
    (
        "reset",
        "RST before the head, at byte 0, 1, within a row, behind it",
    ),
    ("reset-in-head", "RST within the head"),
    ("reset-when-idle", "RST behind an honest reply"),
    (
        "several",
        "several ranges answered with a status, one of them, a span, too few or two of each, or parts that lie",
    ),
    (
        "shifted-bytes",
        "perfect head, bytes from 4 or a row's length further on",
    ),
    ("silence", "no reply; connection stays open"),
    (
        "slow-head",
        "head in pieces, some too slow for the first-byte limit",
    ),
    ("stall", "body stops; connection stays open"),
    ("status-403", "403 for something that was served before"),
    ("status-404", "404 for something that was served before"),
    ("status-408", "408"),
    ("status-429", "429 with `Retry-After: 1`"),
    ("status-500", "500"),
    ("status-502", "502"),
    ("status-503", "503 with `Retry-After` of 0 or 60 s"),
    ("status-504", "504"),
    ("superset", "206 of a range wider than asked"),
    (
        "trailers",
        "chunked, with trailers that contradict the head",
    ),
    ("truncate", "FIN at byte 0, 1, within a row, behind it"),
    ("truncated-head", "FIN within the head"),
    (
        "unasked-408",
        "an unasked 408 behind an honest reply, then the end",
    ),
    ("whole-object", "200 with the whole object"),
    ("wrong-content-length", "`Content-Length` of 7"),
    (
        "wrong-content-range",
        "`Content-Range` missing, or of another range",
    ),
    ("wrong-etag", "another strong tag, or a weak one"),
];

pub(super) fn render(soak: &Soak) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, soak);
    page
}

fn write_page(page: &mut String, soak: &Soak) -> std::fmt::Result {
    writeln!(
        page,
        "# Reliability\n\n\
         `cargo xtask soak --batches {} --seed {}` made this page and `results/soak.json` (commit {}). It reads batches of\n\
         rows of {} bytes, verified, through {} readers at once and a cache too small to matter, from raw-TCP servers that\n\
         let {:.0} % of the requests meet a fault. Half of the batches have 16 rows, half 52, which are more than the 16\n\
         connections of a client: several ranges are asked for in one request then. Half of the readers fetch the paths of the\n\
         row tree too, from a server that answers one range a request. The same seed gives the same script; which request\n\
         comes as which number depends on the machine.\n",
        soak.batches,
        soak.seed,
        soak.commit,
        soak.row_bytes,
        soak.readers,
        soak.faults_per_million_requests as f64 / 1e4
    )?;
    write_figures(page, soak)?;
    write_faults(page, soak)
}

fn write_figures(page: &mut String, soak: &Soak) -> std::fmt::Result {
    let (outcomes, growth, traffic) = (&soak.outcomes, &soak.growth, &soak.traffic);
    let injected: u64 = soak.faults.iter().map(|fault| fault.injected).sum();
    let ridden_out: u64 = soak.faults.iter().map(|fault| fault.right).sum();
    writeln!(page, "| | |\n|---|---|")?;
    writeln!(
        page,
        "| batches with every row right | {} |",
        outcomes.right
    )?;
    writeln!(page, "| batches with a wrong row | {} |", outcomes.wrong)?;
    let kinds: Vec<_> = outcomes.errors_by_kind.iter().collect();
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    writeln!(
        page,
        "| batches with an error | {} ({}) |",
        outcomes.errors(),
        kinds.join(", ")
    )?;
    writeln!(
        page,
        "| batches beyond the deadline of {} s | {} |",
        soak.deadline_s, outcomes.late
    )?;
    writeln!(
        page,
        "| a batch took | median {:.1} ms, 99 % within {:.2} s, the longest {:.2} s |",
        outcomes.median_us as f64 / 1e3,
        outcomes.p99_us as f64 / 1e6,
        outcomes.longest_us as f64 / 1e6
    )?;
    writeln!(
        page,
        "| requests, in waves, of them repetitions | {}, {}, {} |",
        traffic.requests, traffic.waves, traffic.retries
    )?;
    writeln!(
        page,
        "| bytes of rows and paths received / used | {} / {} = {:.3} (and {} between parts) |",
        traffic.received_bytes,
        traffic.useful_bytes,
        traffic.received_bytes as f64 / traffic.useful_bytes.max(1) as f64,
        traffic.framing_bytes
    )?;
    writeln!(
        page,
        "| replies refused by the row tree | {} |",
        traffic.integrity_failures
    )?;
    writeln!(
        page,
        "| faults, of them ridden out | {injected}, {ridden_out} |"
    )?;
    writeln!(
        page,
        "| memory, middle third / last third / most | {} / {} / {} kB |",
        growth.rss_middle_kb, growth.rss_last_kb, growth.rss_max_kb
    )?;
    writeln!(
        page,
        "| descriptors, middle third / last third / most | {} / {} / {} |",
        growth.descriptors_middle, growth.descriptors_last, growth.descriptors_max
    )
}

fn write_faults(page: &mut String, soak: &Soak) -> std::fmt::Result {
    let growth = &soak.growth;
    writeln!(
        page,
        "\nThe run fails if a row is wrong, a batch is late or unanswered, fewer than 95 % are right, an error is explained by\n\
         no fault, a kind of fault never came, more than 1.05 bytes are received for one used, the last third holds more than 5 % and 2 MiB\n\
         over the middle one, or a tenth and two more descriptors. {} samples over {:.0} s.\n\n\
         ## By fault\n\n\
         *Right*: every batch that waited for the faulty reply got its rows. *Error*: one ended in an error of this kind,\n\
         without a row of it being used; an origin that lies (another tag, another version) is not asked to lie again.\n\
         *Unattended*: the reply of a request that nobody waited for any more.\n\n\
         | fault | what | injected | right | error | unattended |\n|---|---|---|---|---|---|",
        growth.samples, growth.seconds
    )?;
    for tally in &soak.faults {
        let found = KINDS.iter().find(|(name, _)| *name == tally.fault);
        let what = found.map_or("", |(_, what)| what);
        let errors: Vec<_> = tally
            .errors
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        writeln!(
            page,
            "| {} | {what} | {} | {} | {} | {} |",
            tally.fault,
            tally.injected,
            tally.right,
            errors.join(", "),
            tally.unattended
        )?;
    }
    writeln!(
        page,
        "\nFaults of HTTP/2 (GOAWAY, RST_STREAM, REFUSED_STREAM, stalled windows, floods of PING), of proxies, TLS and\n\
         addresses are tests of `helix-transport`; the table in the documentation of `range-testkit` names the test of each."
    )
}
