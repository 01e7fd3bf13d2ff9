//! The same prompt with rows from everything that may hold them: bare rows, the file that was packed (safetensors,
//! GGUF), a sharded copy of it, the knot's block, local paths, and a repository behind the hub's API. Each answer
//! is the dense one to the bit; what finding the rows cost is counted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;

use super::model::PreparedModel;
use crate::origin::{self, Origin};
use crate::repository;
use crate::station::{self, Finished, Launch};
use crate::synthetic;
use crate::workload::WORKLOADS;

/// Tokens decoded from each source: enough for rows that the prompt has not.
const DECODED_TOKENS: usize = 16;

/// The commit that the stand-in for a hub tells.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Repository of the stand-in.
const REPOSITORY: &str = "local/model";

/// Reading a header may cost this much beyond the header's own bytes: one piece of a GGUF's front, or the first
/// read of a safetensors file.
const PROBE_OVERSHOOT_BYTES: u64 = 2 * 1024 * 1024;

/// The source whose header is read though the knot knows better.
const HEADER_READ: &str = "packed file, header read";

/// Sources of the short run: one for each way of finding rows.
const IN_CI: [&str; 5] = [
    "packed file",
    HEADER_READ,
    "knot's block",
    "hub",
    "sharded index",
];

/// One source of one model.
#[derive(Serialize)]
pub(super) struct SourceCase {
    pub(super) model: String,
    pub(super) row_dtype: String,
    pub(super) source: &'static str,
    /// What the station found the object to be.
    pub(super) container: &'static str,
    pub(super) distinct_rows: u64,
    pub(super) embedding_bytes_received: u64,
    pub(super) embedding_bytes_useful: u64,
    pub(super) probe_bytes_received: u64,
    pub(super) probe_bytes_useful: u64,
    pub(super) probe_requests: u64,
    pub(super) tokens_equal_dense: bool,
    pub(super) logits_bitwise_equal: bool,
    pub(super) client_bytes_equal_origin_log: bool,
    #[serde(skip)]
    failures: Vec<String>,
}

impl SourceCase {
    /// Every gate that it misses, in words with numbers.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = self.failures.clone();
        let mut require = |holds: bool, what: &str| {
            if !holds {
                failures.push(what.to_owned());
            }
        };
        require(self.tokens_equal_dense, "tokens differ from the dense run");
        require(
            self.logits_bitwise_equal,
            "logits differ from the dense run",
        );
        require(
            self.client_bytes_equal_origin_log,
            "our counters differ from the origin's log",
        );
        let name = format!("{} {} {}", self.model, self.row_dtype, self.source);
        failures
            .into_iter()
            .map(|what| format!("{name}: {what}"))
            .collect()
    }
}

/// What finding the rows may cost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// Nothing: the rows are bare, or the knot knows where they are.
    None,
    /// Rows of the first span of a wrong guess: a name that tells nothing is taken for bare rows, until the first
    /// reply tells the length, which is the packed file's.
    Guess,
    /// A header of the object.
    Header,
    /// Small objects that lead to the rows: an index, the hub's account of a repository.
    Lead,
}

/// A source to try.
struct Source {
    name: &'static str,
    container: &'static str,
    /// What `--columnar-embed` gets; `{origin}` stands for the origin's address.
    rows: String,
    probe: Probe,
    /// `--verify off`: the knot's hint is then not believed, so that headers are read.
    verify: &'static str,
    in_ci: bool,
}

/// Runs every source of `model`, or with `ci` a few, against one dense run.
pub(super) fn run(model: &PreparedModel, ci: bool) -> Result<Vec<SourceCase>> {
    let Some(original) = model.original.as_deref() else {
        return Ok(Vec::new());
    };
    let served = serve_folder(model, original)?;
    let prompt = WORKLOADS[0].prompt()?;
    let knot = model.packed.knot();
    let knot = knot.to_string_lossy();
    let scratch = repository::models_dir().join("runs");
    let dense = station::run(&Launch {
        rows_url: None,
        knot: Some(&knot),
        prompt: &prompt,
        max_tokens: DECODED_TOKENS,
        continuation: model.continuation.as_deref(),
        scratch: scratch.join("dense"),
    })?;
    let mut cases = Vec::new();
    for source in sources(model, original, &served) {
        if ci && !source.in_ci {
            continue;
        }
        eprintln!(
            "e2e: {} {} from {}",
            model.name(),
            model.row_dtype(),
            source.name
        );
        let origin = Origin::start(&served)?;
        let base = format!("http://{}", origin.address());
        let rows = source.rows.replace("{origin}", &base);
        let launch = Launch {
            rows_url: Some(&rows),
            knot: Some(&knot),
            prompt: &prompt,
            max_tokens: DECODED_TOKENS,
            continuation: model.continuation.as_deref(),
            scratch: scratch.join("columnar"),
        };
        let finished = station::run_with(&launch, |station| {
            station.args(["--verify", source.verify]);
            station.env("HF_ENDPOINT", &base).env("HF_HOME", &scratch);
            for name in ["HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE"] {
                station.env_remove(name);
            }
        })?;
        let log = origin::traffic(&origin.replies()?, "");
        cases.push(assemble(model, &source, &finished, &dense, log)?);
    }
    Ok(cases)
}

fn sources(model: &PreparedModel, original: &Path, served: &Path) -> Vec<Source> {
    use Probe::{Guess, Header, Lead, None};
    let name = file_name(original);
    let gguf = name.ends_with(".gguf");
    let packed = if gguf { "GGUF" } else { "safetensors" };
    let local = served.join(&name).display().to_string();
    let stem = &model.packed.name;
    let at = |object: &str| format!("{{origin}}/{object}");
    let mut all = vec![
        ("bare rows", "bare rows", at(&format!("{stem}.rows")), None),
        ("packed file", packed, at(&name), None),
        (HEADER_READ, packed, at(&name), Header),
        ("packed file, no name", packed, at("object"), Guess),
        ("knot's block", "knot", at(&format!("{stem}.gkq")), Header),
        ("path", packed, local.clone(), None),
        ("file URL", packed, format!("file://{local}"), None),
        ("hub", packed, format!("hf://{REPOSITORY}/{name}"), Lead),
    ];
    if !gguf {
        let index = at("sharded/model.safetensors.index.json");
        all.push(("sharded index", "sharded safetensors", index, Header));
    }
    let source = |(name, container, rows, probe)| Source {
        name,
        container,
        rows,
        probe,
        verify: if name == HEADER_READ {
            "off"
        } else {
            "require"
        },
        in_ci: IN_CI.contains(&name),
    };
    all.into_iter().map(source).collect()
}

fn assemble(
    model: &PreparedModel,
    source: &Source,
    finished: &Finished,
    dense: &Finished,
    log: origin::Traffic,
) -> Result<SourceCase> {
    let (summary, bytes) = (&finished.summary, &finished.summary.bytes);
    let mut failures = Vec::new();
    let mut require = |holds: bool, what: String| {
        if !holds {
            failures.push(what);
        }
    };
    let found = summary
        .resolutions
        .first()
        .map_or("", |way| way.reason.as_str());
    require(
        summary.embedding.source == "columnar"
            && found.contains(&format!("({}) has exactly", source.container)),
        format!("expected rows of {}: {found}", source.container),
    );
    require(
        summary.integrity_failures == 0,
        "rows did not verify".into(),
    );
    // One span of a plan for so few rows is a row, or two with the one between them.
    let guessed = if source.probe == Probe::Guess {
        3 * bytes.rows.useful / summary.embedding.distinct_rows.max(1)
    } else {
        0
    };
    require(
        (bytes.rows.received - guessed.min(bytes.rows.received)) * 100 <= bytes.rows.useful * 105,
        format!(
            "{} row bytes received for {} used",
            bytes.rows.received, bytes.rows.useful
        ),
    );
    let probe = &bytes.probe;
    require(
        match source.probe {
            Probe::None | Probe::Guess => probe.received == 0 && probe.requests == 0,
            Probe::Header => probe.received <= probe.useful + PROBE_OVERSHOOT_BYTES,
            Probe::Lead => probe.received <= 64 * 1024,
        },
        format!(
            "{} probe bytes, {} of them used",
            probe.received, probe.useful
        ),
    );
    // The knot is local, so the origin saw rows and probes alone; local objects it never saw.
    let remote = source.rows.starts_with("{origin}") || source.rows.starts_with("hf://");
    let moved = origin::Traffic {
        requests: bytes.rows.requests + probe.requests,
        body_bytes: bytes.rows.received + probe.received + bytes.framing(),
    };
    let expected = if remote {
        moved
    } else {
        origin::Traffic::default()
    };
    Ok(SourceCase {
        model: model.name().to_owned(),
        row_dtype: model.row_dtype().to_owned(),
        source: source.name,
        container: source.container,
        distinct_rows: summary.embedding.distinct_rows,
        embedding_bytes_received: bytes.rows.received,
        embedding_bytes_useful: bytes.rows.useful,
        probe_bytes_received: probe.received,
        probe_bytes_useful: probe.useful,
        probe_requests: probe.requests,
        tokens_equal_dense: finished.tokens == dense.tokens,
        logits_bitwise_equal: finished.logits()? == dense.logits()?,
        client_bytes_equal_origin_log: log == expected,
        failures,
    })
}

/// One folder with all that is served: links to the packed files and to the original under two names, a sharded
/// copy, and the hub's API as files.
fn serve_folder(model: &PreparedModel, original: &Path) -> Result<PathBuf> {
    let folder = repository::models_dir()
        .join("sources")
        .join(&model.packed.name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let name = file_name(original);
    let resolve = folder.join(REPOSITORY).join("resolve").join(COMMIT);
    let api = folder.join("api/models").join(REPOSITORY).join("revision");
    for made in [&folder, &resolve, &api] {
        std::fs::create_dir_all(made)?;
    }
    // Hard links: `fat-origin serve` follows no link out of its folder.
    let link = |from: &Path, to: PathBuf| {
        std::fs::hard_link(from, &to).with_context(|| format!("could not link {}", to.display()))
    };
    for packed in [model.packed.knot(), model.packed.rows()] {
        link(&packed, folder.join(file_name(&packed)))?;
    }
    link(original, folder.join(&name))?;
    link(original, folder.join("object"))?;
    link(original, resolve.join(&name))?;
    let account = json!({ "sha": COMMIT, "siblings": [{ "rfilename": name }] });
    std::fs::write(api.join("main"), account.to_string())?;
    if !name.ends_with(".gguf") {
        synthetic::write_sharded(original, &folder.join("sharded"))?;
    }
    ensure!(folder.is_absolute(), "file URLs need an absolute folder");
    Ok(folder)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
