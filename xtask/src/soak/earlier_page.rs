//! docs/reliability.md from a result of before several ranges and remote paths were asked for; it goes with the last
//! such result. Not for new ones: `page` is.

use std::fmt::Write as _;

use super::Soak;
use super::page::KINDS;

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
         `cargo xtask soak --batches {} --seed {}` made this page and `results/soak.json` (commit {}). It reads batches of 16\n\
         rows of {} bytes, verified, through {} readers at once and a cache too small to matter, from a raw-TCP server that\n\
         lets {:.0} % of the requests meet a fault. The same seed gives the same script; which request comes as which number\n\
         depends on the machine.\n",
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
        "| requests, of them repetitions | {}, {} |",
        traffic.requests, traffic.retries
    )?;
    writeln!(
        page,
        "| body bytes received / of rows used | {} / {} = {:.3} |",
        traffic.received_bytes,
        traffic.useful_bytes,
        traffic.received_bytes as f64 / traffic.useful_bytes.max(1) as f64
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
        "\nThe run fails if a row is wrong, a batch is late or unanswered, the last third holds more than 5 % and 2 MiB\n\
         over the middle one, or more than two descriptors. {} samples over {:.0} s.\n\n\
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
