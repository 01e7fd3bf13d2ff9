//! docs/servers.md, written from what was measured. Nothing in it depends on the time or on a server's version.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::catalogue::SERVERS;
use super::measure::Measured;
use super::site_cache::{self, SiteCache};
use super::template;
use crate::repository;

const HEAD: &str = "\
# Servers

<!-- Written by `cargo xtask servers --write` from a run against each server. Edit xtask/src/servers/page.rs. -->

A station reads from whatever answers byte ranges. Each server below is started on loopback by the tests, with the
configuration shown here; a cold station and cold batches of rows read from it, every row is compared with the row file,
and counts come from the server's own access log. `cargo xtask servers --check` does it again and fails where this page
says something else; `cargo xtask test` includes it.

## What they answer

To requests for an object of 1 MiB, by hand. *Several ranges* are 2, 10 and 64 in one request, ten bytes each.

| server | one range | last bytes | several ranges | wrong If-Match | beyond the end | gzip accepted |
|---|---|---|---|---|---|---|
";

const ROWS_HEAD: &str = "
## What a station does with them

Rows from a row file of 272 MB (151,936 rows of 1,792 bytes: the vocabulary of Qwen2.5-0.5B), by a process that knows
nothing of the server yet: those of a natural prompt (98 distinct ones for 622 tokens), verified against the row tree, and
109 rows all over the table without verification. The same rows are read again, through an empty row cache, until the
station has learned what the server can do and two batches cost the same; all rows of all batches are compared, and the
figures are of the last one. Then a whole station on the same server, knot and rows of
SmolLM2-135M both remote: its tokens and logits are those of a dense run, bit for bit, on every server of the table.
s3s-fs hashes the whole object for each reply and is given small ones: rows of 32 bytes of the same vocabulary, and a
toy that answers with them.
*Amplification* is bytes of rows received over bytes of rows used, and at most 1.05 or the run fails; behind it stands
the same with what separates the parts of a reply to several ranges, compared up to 0.003 because Apache's separator is as
long as its process id. *Waves* are rounds of requests in flight together
(on HTTP/2 one, or two where the server's limit of streams arrives late: the table says 2).
*Replaced*: the object is replaced between two batches by one of equal length, a longer and a shorter one; the second
batch is refused because the object changed, or a cache still serves the old one, whole.

| server | how rows are asked for | rows right | natural: requests, waves, amplification, with framing | scattered: the same | replaced |
|---|---|---|---|---|---|
";

const CACHE_HEAD: &str = "
## A site cache in front of ten stations

Ten cold stations ask the cache at once, each with one of the seven prompts of the acceptance runs; then ten more do. No
byte leaves the origin twice, by the origin's own log; the run fails if one does. The first column is also what the twenty
would move without a cache. Slices are rounded up to 4 KiB: where prompts share as few rows as these, they bring more than
they save until the same rows are asked again, and from then on nothing. A cache of whole objects moves the file once,
whatever is asked.

| cache | rows that the twenty read | distinct rows among them | the origin sent |
|---|---|---|---|
";

const SIGNED: &str = "
## Presigned URLs

Against s3s-fs, which checks signatures (AWS signature version 4): a good URL reads rows; an expired one, one whose
signature was changed, and one without a signature end the station with exit code 67. Nothing of a URL's query is written
to stdout or stderr in any of these runs. A URL is presigned for GET of one object; the station asks no HEAD and signs
nothing, so ranges stay free.

## Recipes

The configurations that were tested, filled for a folder `/srv/models` or an origin at 192.0.2.10.
";

/// The page's text.
///
/// # Errors
/// If a recipe asks for a value that nobody gives.
pub(super) fn text(measured: &[Measured], caches: &[SiteCache]) -> Result<String> {
    let mut page = HEAD.to_owned();
    for server in measured {
        if let Some(it) = &server.behaviour {
            writeln!(
                page,
                "| {} | {} | {} | {} | {} | {} | {} |",
                server.title,
                it.single,
                it.suffix,
                it.several,
                it.wrong_if_match,
                it.beyond_the_end,
                it.gzip_offered
            )?;
        }
    }
    page.push_str(ROWS_HEAD);
    for server in measured {
        match &server.rows {
            Some(rows) if server.varies => writeln!(
                page,
                "| {} | HTTP/1.1, one range a request until it has the object | {} of {} | - | - | {} |",
                server.title, rows.right, rows.right, server.replaced
            )?,
            Some(rows) => writeln!(
                page,
                "| {} | {} | {} of {} | {}, {}, {:.3}, {:.3} | {}, {}, {:.3}, {:.3} | {} |",
                server.title,
                rows.path,
                rows.right,
                rows.right,
                rows.natural.requests,
                rows.natural.waves,
                rows.natural.amplification,
                rows.natural.with_framing,
                rows.scattered.requests,
                rows.scattered.waves,
                rows.scattered.amplification,
                rows.scattered.with_framing,
                server.replaced
            )?,
            None => writeln!(
                page,
                "| {} | refused: it ignores ranges (exit code 64) | - | - | - | {} |",
                server.title, server.replaced
            )?,
        }
    }
    page.push_str(CACHE_HEAD);
    for cache in caches {
        // How many slices a refused request for several ranges brings before it is given up depends on the moment.
        let sent = if cache.origin_requests == 1 {
            format!("{}, in one request", grouped(cache.origin_bytes))
        } else {
            format!(
                "less than {} times the distinct rows",
                site_cache::MOST_SLICED
            )
        };
        writeln!(
            page,
            "| {} | {} | {} | {sent} |",
            cache.title,
            grouped(cache.used_bytes),
            grouped(cache.distinct_bytes),
        )?;
    }
    page.push_str(SIGNED);
    recipes(&mut page)?;
    Ok(page)
}

fn recipes(page: &mut String) -> Result<()> {
    let values = [
        ("listen", "8080"),
        ("host", "192.0.2.20"),
        ("port", "8080"),
        ("name", "models.example.org"),
        ("root", "/srv/models"),
        ("cache", "/var/cache/nginx/rows"),
        ("log", "/var/log/caddy/access.log"),
        ("origin", "192.0.2.10:8080"),
        ("origin_host", "192.0.2.10"),
        ("origin_port", "8080"),
    ];
    for server in SERVERS {
        if let Some(recipe) = &server.recipe {
            let filled = template::filled(recipe.template, &values)?;
            writeln!(
                page,
                "\n### {}\n\n{}\n\n```{}\n{}\n```",
                server.title,
                recipe.note,
                recipe.language,
                filled.trim_end()
            )?;
        }
    }
    Ok(())
}

/// Thousands apart, with the unit.
fn grouped(bytes: u64) -> String {
    let digits = bytes.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + " B"
}

fn path() -> PathBuf {
    repository::root().join("docs/servers.md")
}

/// Writes the page.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(text: &str) -> Result<()> {
    std::fs::write(path(), text).with_context(|| format!("could not write {}", path().display()))
}

/// Fails where the page in the work tree says something else than `text`; shows the first line that differs.
///
/// # Errors
/// If it does, or cannot be read.
pub(super) fn check(text: &str) -> Result<()> {
    let found = std::fs::read_to_string(path())
        .with_context(|| format!("no page at {}", path().display()))?;
    let difference = found
        .lines()
        .zip(text.lines())
        .find(|(found, now)| !says_the_same(found, now));
    if let Some((found, now)) = difference {
        anyhow::bail!(
            "docs/servers.md differs from what was measured; `cargo xtask servers --write` renews it\n  page: {found}\n  now:  {now}"
        );
    }
    ensure!(
        found.lines().count() == text.lines().count(),
        "docs/servers.md has other lines than what was measured; `cargo xtask servers --write` renews it"
    );
    Ok(())
}

/// How far two measurements of a ratio with framing may lie apart.
///
/// Apache's boundary is the time and its process id in hexadecimal, with as many digits as that id has: one to six, and
/// between two parts of these batches a digit is worth 0.0006 of their bytes.
const FRAMING_NOISE: f64 = 0.003;

/// Whether two lines of the page agree: word for word, and ratios with framing up to [`FRAMING_NOISE`].
fn says_the_same(found: &str, now: &str) -> bool {
    let (mut found, mut now) = (found.split('|'), now.split('|'));
    loop {
        match (found.next(), now.next()) {
            (None, None) => return true,
            (Some(found), Some(now)) if found == now || same_but_for_noise(found, now) => {}
            _ => return false,
        }
    }
}

/// Whether both cells are `requests, waves, amplification, with framing`, equal in the first three and near in the last.
fn same_but_for_noise(found: &str, now: &str) -> bool {
    let (Some((found, found_framing)), Some((now, now_framing))) =
        (found.rsplit_once(", "), now.rsplit_once(", "))
    else {
        return false;
    };
    let (Ok(found_framing), Ok(now_framing)) = (
        found_framing.trim_end().parse::<f64>(),
        now_framing.trim_end().parse::<f64>(),
    ) else {
        return false;
    };
    found == now
        && found.matches(", ").count() == 2
        && (found_framing - now_framing).abs() <= FRAMING_NOISE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_framing_may_differ_and_only_by_its_noise() {
        let page = "| Apache | several | 731 of 731 | 13, 1, 1.000, 1.042 | 15, 1, 1.000, 1.044 | refused |";
        for same in [
            page,
            "| Apache | several | 731 of 731 | 13, 1, 1.000, 1.041 | 15, 1, 1.000, 1.043 | refused |",
            "| Apache | several | 731 of 731 | 13, 1, 1.000, 1.044 | 15, 1, 1.000, 1.044 | refused |",
        ] {
            assert!(says_the_same(page, same), "{same}");
        }
        for other in [
            "| Apache | several | 730 of 731 | 13, 1, 1.000, 1.042 | 15, 1, 1.000, 1.044 | refused |",
            "| Apache | several | 731 of 731 | 14, 1, 1.000, 1.042 | 15, 1, 1.000, 1.044 | refused |",
            "| Apache | several | 731 of 731 | 13, 1, 1.001, 1.042 | 15, 1, 1.000, 1.044 | refused |",
            "| Apache | several | 731 of 731 | 13, 1, 1.000, 1.046 | 15, 1, 1.000, 1.044 | refused |",
            "| Apache | several | 731 of 731 | 13, 1, 1.000, 1.042 | 15, 1, 1.000, 1.044 |",
        ] {
            assert!(!says_the_same(page, other), "{other}");
        }
        assert!(!says_the_same("rows, 1.000", "rows, 1.001"));
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(grouped(0), "0 B");
        assert_eq!(grouped(999), "999 B");
        assert_eq!(grouped(1_000), "1,000 B");
        assert_eq!(grouped(272_269_312), "272,269,312 B");
    }

    #[test]
    fn every_recipe_can_be_filled() -> Result<()> {
        let mut page = String::new();
        recipes(&mut page)?;
        assert!(page.contains("slice 1m;") && page.contains("/srv/models"));
        Ok(())
    }
}
