//! One server measured: probes, batches of rows from the first cold one on, a whole station; our counters against the server's own log.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::access_log::Reply;
use super::behaviour::{self, Behaviour};
use super::catalogue::{Role, ServerUnderTest};
use super::material::{self, Material, Site};
use super::reader::{Batch, Outcome, Reader, Source, Wanted, confine};
use super::running::{Logged, Place, Running};
use super::{replaced, signed};
use crate::station::{self, Finished, Launch};
use crate::workload::{WORKLOADS, Workload};

/// Tokens that a station generates on each server.
const DECODED_TOKENS: usize = 4;
/// A machine that is too busy, so that requests are sent again, gets another chance.
const ATTEMPTS: usize = 3;
/// The longest text of a refusal that is taken for one.
const REFUSAL_BYTES: u64 = 4 << 10;
/// Batches in which a station must have learned what a server can do: from two ranges a request, the number doubles.
const MOST_BATCHES: usize = 8;
/// Bytes of rows received for each that is used: the planner's overfetch budget of 5 %.
const MOST_AMPLIFICATION: f64 = 1.05;

/// What one server did.
pub(super) struct Measured {
    /// Whether what rows cost depends on what the server happened to have.
    pub(super) varies: bool,
    pub(super) title: &'static str,
    /// `None` behind TLS, where the cleartext server was asked already.
    pub(super) behaviour: Option<Behaviour>,
    /// `None` where no row can be had.
    pub(super) rows: Option<RowsRead>,
    /// What became of a batch whose object was replaced after the batch before it.
    pub(super) replaced: String,
}

/// Rows that came from a server.
pub(super) struct RowsRead {
    /// How they were asked for.
    pub(super) path: String,
    /// Rows of one batch of each kind, compared with the row file; all were right, in every batch.
    pub(super) right: usize,
    pub(super) natural: Cost,
    pub(super) scattered: Cost,
}

/// A batch by the server's log, in bodies that carry rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) requests: u64,
    /// At most; exact on HTTP/1.1.
    pub(super) waves: u64,
    /// Bytes of rows received over bytes of rows used.
    pub(super) amplification: f64,
    /// The same with what separates the parts of a reply.
    pub(super) with_framing: f64,
}

/// A dense run.
struct Reference {
    tokens: Vec<u32>,
    logits: Vec<u8>,
}

/// Dense runs of both sites' models.
pub(super) struct References {
    full: Reference,
    small: Reference,
}

/// What every server's station must say.
///
/// # Errors
/// If a dense run fails.
pub(super) fn references(material: &Material) -> Result<References> {
    Ok(References {
        full: reference(material, &material.full)?,
        small: reference(material, &material.small)?,
    })
}

/// Runs a station on the knot alone.
///
/// # Errors
/// If it fails.
fn reference(material: &Material, site: &Site) -> Result<Reference> {
    let knot = site.station.knot();
    let launch = Launch {
        rows_url: None,
        knot: Some(knot.to_str().context("a path that is not UTF-8")?),
        prompt: &prompt()?.prompt()?,
        max_tokens: DECODED_TOKENS,
        continuation: None,
        scratch: material.base.join("dense"),
    };
    let finished = station::run(&launch)?;
    Ok(Reference {
        logits: logits(&finished)?,
        tokens: finished.tokens,
    })
}

fn prompt() -> Result<Workload> {
    let found = WORKLOADS
        .iter()
        .find(|workload| workload.name == "qa_short");
    found.copied().context("no workload qa_short")
}

fn logits(finished: &Finished) -> Result<Vec<u8>> {
    let bytes = std::fs::read(&finished.logits)?;
    ensure!(!bytes.is_empty(), "the station wrote no logits");
    Ok(bytes)
}

/// Starts a server and does everything with it; a failure names the server and its folder of logs.
///
/// # Errors
/// The first thing that was not as it must be.
pub(super) fn measure(
    server: &ServerUnderTest,
    material: &Material,
    references: &References,
) -> Result<Measured> {
    let dir = material.base.join(server.key);
    let mut attempt = 1;
    loop {
        let done = whole(server, material, references, &dir)
            .with_context(|| format!("{} (its logs are in {})", server.title, dir.display()))?;
        match done {
            Attempt::Clean(measured) => return Ok(*measured),
            Attempt::Unsteady(_) if attempt < ATTEMPTS => attempt += 1,
            Attempt::Unsteady(reason) => {
                return Err(reason.context(format!(
                    "{} (its logs are in {}), {ATTEMPTS} times in a row",
                    server.title,
                    dir.display()
                )));
            }
        }
    }
}

enum Attempt {
    Clean(Box<Measured>),
    /// Rows were right, but what they cost kept changing, or requests that were given up left their traces in the log.
    Unsteady(anyhow::Error),
}

fn whole(
    server: &ServerUnderTest,
    material: &Material,
    references: &References,
    dir: &Path,
) -> Result<Attempt> {
    let running = started(server, material, dir)?;
    let (site, reference) = if server.reads_whole_objects {
        (&material.small, &references.small)
    } else {
        (&material.full, &references.full)
    };
    let replaced = replaced::try_all(&running, server, (material, site), dir)?;
    if server.role == Role::Refused {
        refused(&running, site, dir)?;
        let behaviour = Some(behaviour::of(&running.url(material::PROBE)?)?);
        running.stop()?;
        return Ok(Attempt::Clean(Box::new(Measured {
            varies: server.varies,
            title: server.title,
            behaviour,
            rows: None,
            replaced,
        })));
    }
    let natural = batches(&running, site, dir, material::NATURAL)?;
    let scattered = batches(&running, site, dir, material::SCATTERED)?;
    let finished = whole_station(&running, dir)?;
    ensure!(
        finished.tokens == reference.tokens && logits(&finished)? == reference.logits,
        "a station that reads from it says something else than a dense one"
    );
    if let Some(s3) = running.s3() {
        signed::try_all(s3, site, dir)?;
    }
    let is_cleartext = running.root_certificate().is_none();
    let behaviour = if is_cleartext {
        Some(behaviour::of(&running.url(material::PROBE)?)?)
    } else {
        untrusted(&running, site, dir)?;
        None
    };
    let logged = running.stop()?;
    let sent_again = finished.summary.bytes.retries() + natural.retries() + scattered.retries();
    let rows = match counted([&natural, &scattered], &finished, &logged) {
        Ok(rows) => rows,
        Err(reason) if sent_again > 0 => return Ok(Attempt::Unsteady(reason)),
        Err(reason) => return Err(reason),
    };
    Ok(Attempt::Clean(Box::new(Measured {
        varies: server.varies,
        title: server.title,
        behaviour,
        rows: Some(rows),
        replaced,
    })))
}

/// What everything cost, where the server's log and our counters agree.
fn counted(
    [natural, scattered]: [&Batches; 2],
    finished: &Finished,
    logged: &Logged,
) -> Result<RowsRead> {
    station_counts(finished, logged)?;
    Ok(RowsRead {
        path: path_taken(natural.last_requests(), logged, material::NATURAL),
        right: natural.right() + scattered.right(),
        natural: cost(natural, logged, material::NATURAL)?,
        scattered: cost(scattered, logged, material::SCATTERED)?,
    })
}

/// A server in an empty folder of its own.
pub(super) fn started(
    server: &ServerUnderTest,
    material: &Material,
    dir: &Path,
) -> Result<Running> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)?;
    let site = if server.reads_whole_objects {
        &material.small
    } else {
        &material.full
    };
    (server.start)(Place {
        site: &site.dir,
        dir,
    })
}

/// Batches of the same rows by one process, each through an empty row cache.
struct Batches {
    all: Vec<Batch>,
    /// Whether the last two cost the same.
    is_steady: bool,
}

impl Batches {
    fn retries(&self) -> u64 {
        self.all.iter().map(|batch| batch.retries).sum()
    }

    fn last_requests(&self) -> u64 {
        self.all.last().map_or(0, |batch| batch.requests)
    }

    /// Rows of one batch, all of which were right, in this batch as in the others.
    fn right(&self) -> usize {
        self.all.last().map_or(0, |batch| batch.ids.len())
    }
}

/// Natural rows are read with verification, scattered ones without: all must be right, those of the first batch, by a
/// process that knows nothing of the server, and those of the later ones, when it has learned what the server can do.
fn batches(running: &Running, site: &Site, dir: &Path, name: &str) -> Result<Batches> {
    let (wanted, verify) = if name == material::NATURAL {
        (Wanted::Text(Material::text()), "require")
    } else {
        (Wanted::Ids(Material::scattered(0)), "off")
    };
    let source = Source {
        url: &running.url(name)?,
        knot: &site.table.knot(),
        verify,
        root_certificate: running.root_certificate(),
    };
    let mut reader = Reader::start(source, &dir.join(format!("{name}.reader")))?;
    let out = dir.join(format!("{name}.read"));
    let mut all: Vec<Batch> = Vec::new();
    let mut is_steady = false;
    while !is_steady && all.len() < MOST_BATCHES {
        let number = all.len() + 1;
        let batch = reader
            .read(&wanted, &out)
            .and_then(|batch| {
                material::compare(&out, &batch.ids, batch.row_bytes, &site.table.rows())?;
                Ok(batch)
            })
            .with_context(|| format!("batch {number} of {name}"))?;
        is_steady = all.last().is_some_and(|last| last.cost_the_same(&batch));
        all.push(batch);
    }
    std::fs::remove_file(&out)?;
    Ok(Batches { all, is_steady })
}

fn whole_station(running: &Running, dir: &Path) -> Result<Finished> {
    let launch = Launch {
        rows_url: Some(&running.url(material::STATION_ROWS)?),
        knot: Some(&running.url(material::STATION_KNOT)?),
        prompt: &prompt()?.prompt()?,
        max_tokens: DECODED_TOKENS,
        continuation: None,
        scratch: dir.join("station"),
    };
    let finished = station::run_with(&launch, |command| {
        confine(command, running.root_certificate())
    })
    .context("a station on its knot and rows")?;
    ensure!(
        finished.summary.embedding.source == "columnar" && finished.summary.integrity_failures == 0,
        "the station took its rows from elsewhere, or met wrong bytes"
    );
    Ok(finished)
}

/// A server that knows no ranges must be refused by a text that says so, after a request or two, not after its file.
fn refused(running: &Running, site: &Site, dir: &Path) -> Result<()> {
    let source = Source {
        url: &running.url(material::NATURAL)?,
        knot: &site.table.knot(),
        verify: "auto",
        root_certificate: None,
    };
    let mut reader = Reader::start(source, &dir.join("reader"))?;
    reader.ask(&Wanted::Ids(vec![1, 2, 3]), &dir.join("read"))?;
    let Outcome::Refused(refusal) = reader.answer()? else {
        bail!("rows came from a server that knows no ranges");
    };
    ensure!(
        refusal.code == EXIT_CONFIGURATION && refusal.text.contains("range"),
        "a server without ranges was refused with exit code {} and: {}",
        refusal.code,
        refusal.text
    );
    Ok(())
}

/// The station's exit codes, as its help lists them.
const EXIT_CONFIGURATION: i32 = 64;
pub(super) const EXIT_INTEGRITY: i32 = 66;
pub(super) const EXIT_AUTHORISATION: i32 = 67;

/// A certificate of an authority that nobody trusts must end the run, by name.
fn untrusted(running: &Running, site: &Site, dir: &Path) -> Result<()> {
    let source = Source {
        url: &running.url(material::NATURAL)?,
        knot: &site.table.knot(),
        verify: "auto",
        root_certificate: None,
    };
    let mut reader = Reader::start(source, &dir.join("untrusting"))?;
    reader.ask(&Wanted::Ids(vec![1]), &dir.join("read"))?;
    let Outcome::Refused(refusal) = reader.answer()? else {
        bail!("rows came over TLS from a server whose authority nobody trusts");
    };
    ensure!(
        refusal.text.contains("certificate"),
        "an untrusted certificate was refused with: {}",
        refusal.text
    );
    Ok(())
}

/// Replies to requests for an object; s3s-fs logs its bucket before the name.
fn replies_of<'a>(logged: &'a Logged, name: &str) -> impl Iterator<Item = &'a Reply> {
    let suffix = format!("/{name}");
    logged
        .replies
        .iter()
        .filter(move |reply| reply.path.ends_with(&suffix))
}

/// What the last batch cost. The server's log must agree with our counters over all of them: every request, and every
/// byte of the bodies that carried rows.
fn cost(batches: &Batches, logged: &Logged, name: &str) -> Result<Cost> {
    let requests = replies_of(logged, name).count() as u64;
    let sum = |count: fn(&Batch) -> u64| batches.all.iter().map(count).sum::<u64>();
    let counted = sum(|batch| batch.requests);
    ensure!(
        requests == counted,
        "{name}: it logged {requests} requests, we counted {counted}"
    );
    bytes_agree(replies_of(logged, name), sum(Batch::carried_bytes)).context(name.to_owned())?;
    ensure!(
        batches.is_steady,
        "{name}: {MOST_BATCHES} batches of the same rows never cost the same twice in a row"
    );
    let last = batches.all.last().context("no batch")?;
    // One wave, or two where the server's limit of streams arrives after the first requests were planned.
    let over_http2 = replies_of(logged, name).any(|reply| reply.protocol.starts_with("HTTP/2"));
    let waves = if over_http2 {
        ensure!(last.waves <= 2, "{name}: {} waves over HTTP/2", last.waves);
        2
    } else {
        last.waves
    };
    let of_used = |bytes: u64| bytes as f64 / last.useful_bytes as f64;
    let amplification = of_used(last.received_bytes);
    ensure!(
        amplification <= MOST_AMPLIFICATION,
        "{name}: {amplification:.3} bytes of rows received for each that was used, at most {MOST_AMPLIFICATION} expected"
    );
    Ok(Cost {
        requests: last.requests,
        waves,
        amplification,
        with_framing: of_used(last.carried_bytes()),
    })
}

/// The station's sum against the bytes that the server sent for it.
fn station_counts(finished: &Finished, logged: &Logged) -> Result<()> {
    let replies = [material::STATION_ROWS, material::STATION_KNOT]
        .into_iter()
        .flat_map(|name| replies_of(logged, name));
    let counted = finished.summary.total_received_bytes + finished.summary.bytes.framing();
    bytes_agree(replies, counted).context("a station")
}

/// Bytes of bodies, as logged and as counted, must be equal. A refusal's text, as to several ranges, may be read so that
/// its connection can be kept: then it is counted too, though no log of theirs says how long it was.
fn bytes_agree<'a>(replies: impl Iterator<Item = &'a Reply>, counted: u64) -> Result<()> {
    let (carrying, refused): (Vec<&Reply>, Vec<&Reply>) =
        replies.partition(|reply| reply.status == 206);
    let logged: u64 = carrying.iter().filter_map(|reply| reply.body_bytes).sum();
    let texts = counted.checked_sub(logged);
    ensure!(
        texts.is_some_and(|bytes| bytes <= REFUSAL_BYTES * refused.len() as u64),
        "it logged {logged} bytes of rows and {} refusals, we counted {counted} bytes",
        refused.len()
    );
    Ok(())
}

/// How rows were asked for in the last batch, as the server saw it.
fn path_taken(last_requests: u64, logged: &Logged, name: &str) -> String {
    let mut asked: Vec<&Reply> = replies_of(logged, name).collect();
    let earlier = (asked.len() as u64).saturating_sub(last_requests);
    asked.drain(..usize::try_from(earlier).unwrap_or_default());
    let over_http2 = asked
        .iter()
        .any(|reply| reply.protocol.starts_with("HTTP/2"));
    let together = asked.iter().any(|reply| reply.range.contains(','));
    format!(
        "{}, {} a request",
        if over_http2 { "HTTP/2" } else { "HTTP/1.1" },
        if together {
            "several ranges"
        } else {
            "one range"
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_equal_but_for_the_texts_of_refusals() {
        let reply = |status, bytes| Reply {
            status,
            body_bytes: bytes,
            ..Reply::default()
        };
        let rows = [reply(206, Some(100)), reply(206, Some(20))];
        assert!(bytes_agree(rows.iter(), 120).is_ok());
        assert!(bytes_agree(rows.iter(), 121).is_err(), "one byte more");
        assert!(bytes_agree(rows.iter(), 119).is_err(), "one byte less");
        let refused = [
            reply(206, Some(100)),
            reply(400, None),
            reply(200, Some(9_999_999)),
        ];
        assert!(bytes_agree(refused.iter(), 100).is_ok());
        assert!(
            bytes_agree(refused.iter(), 250).is_ok(),
            "a text of 150 bytes"
        );
        assert!(
            bytes_agree(refused.iter(), 100_000).is_err(),
            "a body was read"
        );
    }
}
