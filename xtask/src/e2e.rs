//! `cargo xtask e2e`: acceptance. Each case runs a cold station against an origin in another process and compares
//! it with a dense run of the same knot: tokens and logits bit for bit, bytes with the origin's own log and with the
//! committed results.

mod case;
mod committed;
mod gates;
mod model;
mod results;
mod sources;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::repository;
use crate::workload::WORKLOADS;
use case::Case;
use committed::Committed;
use model::ModelUnderTest;
use results::Results;
use sources::SourceCase;

/// Tokens decoded in each case.
pub(crate) const DECODED_TOKENS: usize = 64;

/// Flags of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Every model on `qa_short` and `long_context` only.
    #[arg(long, conflicts_with = "quick")]
    ci: bool,
    /// Only the rows from everything that may hold them, none of the workloads.
    #[arg(long)]
    sources: bool,
    /// A generated toy model only: no download, a few seconds.
    #[arg(long)]
    quick: bool,
    /// One JSON object on stdout instead of a table.
    #[arg(long)]
    json: bool,
    /// Also writes the JSON object to a file; if it is docs/results/e2e.json, nothing is compared with what it held.
    #[arg(long)]
    out: Option<PathBuf>,
    /// A Hugging Face directory or GGUF of yours instead of the built-in models.
    #[arg(long)]
    model_dir: Option<PathBuf>,
}

/// Runs every case, prints the results, and fails if a gate does not hold.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    // Before the first case: what is built now is what the results speak of, whatever is edited meanwhile.
    let commit = repository::commit()?;
    if let Some(path) = &arguments.out {
        repository::check_publishable(path, &commit)?;
    }
    repository::build_binaries()?;
    let models = models(arguments)?;
    let mut cases: Vec<Case> = Vec::new();
    let mut source_cases: Vec<SourceCase> = Vec::new();
    for source in models {
        let model = source.prepare()?;
        for workload in WORKLOADS
            .iter()
            .filter(|workload| !arguments.sources && (!arguments.ci || workload.in_ci))
        {
            eprintln!(
                "e2e: {} {} {}",
                model.name(),
                model.row_dtype(),
                workload.name
            );
            cases.push(case::run(&model, *workload)?);
        }
        source_cases.extend(sources::run(&model, arguments.ci)?);
    }
    let of_sources = source_cases.iter().flat_map(SourceCase::failures);
    let mut failures: Vec<String> = cases
        .iter()
        .flat_map(gates::failures)
        .chain(of_sources)
        .collect();
    if !renews(arguments)? {
        failures.extend(differences(&cases)?);
    }
    let results = Results::new(commit, cases, source_cases)?;
    if arguments.json {
        println!("{}", results.to_json()?);
    } else {
        print!("{}", results.to_table());
    }
    ensure!(
        failures.is_empty(),
        "{} gates do not hold:\n  {}",
        failures.len(),
        failures.join("\n  ")
    );
    if let Some(path) = &arguments.out {
        std::fs::write(path, results.to_json()? + "\n")?;
    }
    eprintln!("e2e: every gate holds");
    Ok(())
}

/// Whether the committed results are to be replaced.
fn renews(arguments: &Arguments) -> Result<bool> {
    let Some(path) = &arguments.out else {
        return Ok(false);
    };
    Ok(std::path::absolute(path)? == committed::path())
}

/// What is not as committed, in all cases; of which nothing is committed is said.
fn differences(cases: &[Case]) -> Result<Vec<String>> {
    let committed = Committed::read()?;
    let mut all = Vec::new();
    for case in cases {
        match committed.differences(case)? {
            Some(differences) => all.extend(differences),
            None => eprintln!(
                "e2e: {} {} {} is not in docs/results/e2e.json, its bytes are not compared",
                case.model, case.row_dtype, case.workload
            ),
        }
    }
    if !all.is_empty() {
        eprintln!("e2e: where other bytes are meant, cargo xtask e2e --out docs/results/e2e.json");
    }
    Ok(all)
}

fn models(arguments: &Arguments) -> Result<Vec<ModelUnderTest>> {
    if let Some(dir) = &arguments.model_dir {
        return Ok(vec![ModelUnderTest::given(dir)]);
    }
    if arguments.quick {
        return Ok(vec![ModelUnderTest::tiny()]);
    }
    Ok(vec![
        ModelUnderTest::smollm2(),
        ModelUnderTest::gemma3(),
        ModelUnderTest::qwen_geometry(model::RowDtype::Bf16),
        ModelUnderTest::qwen_geometry(model::RowDtype::F32),
        ModelUnderTest::qwen_geometry(model::RowDtype::Mixed),
    ])
}
