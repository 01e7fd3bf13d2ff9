//! The page for people, rendered from the counts and from the committed acceptance results.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::counts::{Counts, ModelCounts};
use super::sessions::{SEED, SESSIONS, SharedCache, WARM_IDS, WINDOW_TOKENS};
use crate::repository;

const F32_BYTES: u64 = 4;
const BF16_BYTES: u64 = 2;

/// The committed results of `cargo xtask e2e`; only what the page shows.
#[derive(Deserialize)]
struct Acceptance {
    commit: String,
    cases: Vec<AcceptanceCase>,
}

#[derive(Deserialize)]
struct AcceptanceCase {
    model: String,
    row_dtype: String,
    workload: String,
    distinct_rows: u64,
    embedding_bytes_received: u64,
    embedding_bytes_useful: u64,
    path_bytes_received: u64,
    lm_head_bytes: u64,
    block_bytes: u64,
    total_bytes: u64,
    full_table_bytes: u64,
}

pub(super) fn render(counts: &Counts) -> Result<String> {
    let mut page = String::new();
    page.push_str(INTRODUCTION);
    for model in &counts.models {
        workload_table(&mut page, model)?;
    }
    sessions_section(&mut page, counts)?;
    mixes_section(&mut page, counts)?;
    acceptance_section(&mut page)?;
    page.push_str(DESIGN_FIGURES);
    design_comparison(&mut page, counts)?;
    page.push_str(WHERE_THE_DESIGN_WAS_WRONG);
    Ok(page)
}

fn workload_table(page: &mut String, model: &ModelCounts) -> Result<()> {
    let table = |value_bytes: u64| model.rows * model.hidden_size * value_bytes;
    writeln!(
        page,
        "\n### {}: {} x {}, {} bytes in fp32, {} in bf16\n",
        model.model,
        model.rows,
        model.hidden_size,
        table(F32_BYTES),
        table(BF16_BYTES)
    )?;
    page.push_str("| workload | tokens | distinct ids | fp32 bytes | bf16 bytes | share of the matrix | saved |\n");
    page.push_str("|---|---:|---:|---:|---:|---:|---:|\n");
    for text in &model.workloads {
        let distinct = u64::try_from(text.distinct)?;
        let share = ratio(distinct, model.rows);
        writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {:.4} % | {:.3} % |",
            text.name,
            text.tokens,
            text.distinct,
            distinct * model.hidden_size * F32_BYTES,
            distinct * model.hidden_size * BF16_BYTES,
            100.0 * share,
            100.0 * (1.0 - share),
        )?;
    }
    Ok(())
}

fn sessions_section(page: &mut String, counts: &Counts) -> Result<()> {
    writeln!(
        page,
        "\n## {SESSIONS} sessions through one station's cache\n\n\
         The {WARM_IDS} most frequent ids of the mix are fetched before the first session; then {SESSIONS} sessions are \
         drawn (SplitMix64, seed {SEED}) and each row crosses the wire once. *Workloads*: the six gated prompts, whole. \
         *Natural*: {WINDOW_TOKENS}-token windows at random places of the READMEs of this project's dependencies, which \
         share less. *Saved* compares with shipping the dense matrix in every session.\n"
    )?;
    page.push_str("| model | mix | tokens | warm rows | cold rows | warm fp32 KiB | cold fp32 KiB | total bf16 KiB | saved |\n");
    page.push_str("|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for model in &counts.models {
        sessions_row(page, model, "workloads", &model.workload_sessions)?;
        sessions_row(page, model, "natural", &model.natural_sessions)?;
    }
    Ok(())
}

fn sessions_row(
    page: &mut String,
    model: &ModelCounts,
    mix: &str,
    shared: &SharedCache,
) -> Result<()> {
    let (warm, cold) = (
        u64::try_from(shared.warm_rows)?,
        u64::try_from(shared.cold_rows)?,
    );
    let row = model.hidden_size;
    let shipped = model.rows * u64::try_from(shared.sessions)?;
    writeln!(
        page,
        "| {} | {mix} | {} | {warm} | {cold} | {:.2} | {:.2} | {:.2} | {:.6} % |",
        model.model,
        shared.tokens,
        kib(warm * row * F32_BYTES),
        kib(cold * row * F32_BYTES),
        kib((warm + cold) * row * BF16_BYTES),
        100.0 * (1.0 - ratio(warm + cold, shipped)),
    )?;
    Ok(())
}

fn mixes_section(page: &mut String, counts: &Counts) -> Result<()> {
    page.push_str(MIXES);
    page.push_str("| model | `--embed-mix` | row file | of bf16 | sidecar | rows converted | largest error | relative error |\n");
    page.push_str("|---|---|---:|---:|---:|---:|---:|---:|\n");
    for mix in &counts.mixes {
        writeln!(
            page,
            "| {} | `{}` | {} | {:.2} % | {} | {} | {:.6} | {:.4} % |",
            mix.model,
            mix.spec,
            mix.table_bytes,
            100.0 * ratio(mix.table_bytes, mix.bf16_table_bytes),
            mix.sidecar_bytes,
            mix.converted_rows,
            mix.largest_error,
            100.0 * mix.relative_error,
        )?;
    }
    page.push_str("\n| model | `--embed-mix` | workload | distinct ids | of them converted | bytes | bf16 bytes |\n");
    page.push_str("|---|---|---|---:|---:|---:|---:|\n");
    for mix in &counts.mixes {
        let model = counts.models.iter().find(|model| model.model == mix.model);
        let row_bytes = model.context("no such model")?.hidden_size * BF16_BYTES;
        for text in &mix.workloads {
            writeln!(
                page,
                "| {} | `{}` | `{}` | {} | {} | {} | {} |",
                mix.model,
                mix.spec,
                text.name,
                text.distinct,
                text.converted,
                text.bytes,
                text.distinct * row_bytes,
            )?;
        }
    }
    Ok(())
}

fn acceptance_section(page: &mut String) -> Result<()> {
    let path = repository::root().join("docs/results/e2e.json");
    let text = std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    let acceptance: Acceptance = serde_json::from_str(&text)?;
    writeln!(
        page,
        "\n## Measured on the wire\n\n\
         `cargo xtask e2e --json` (docs/results/e2e.json, commit {}): cold stations, 64 tokens decoded, bytes equal to the \
         origin's log. Rows are those of the prompt and of the decoded tokens; *head* and *blocks* are the bytes a tied \
         model moves all the same when its knot is remote: nobody saves them by columnar rows.\n",
        acceptance.commit
    )?;
    page.push_str("| model | rows | workload | distinct rows | row bytes | of them used | path bytes | matrix bytes | head bytes | block bytes | total |\n");
    page.push_str("|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for case in &acceptance.cases {
        writeln!(
            page,
            "| {} | {} | `{}` | {} | {} | {} | {} | {} | {} | {} | {} |",
            case.model,
            case.row_dtype,
            case.workload,
            case.distinct_rows,
            case.embedding_bytes_received,
            case.embedding_bytes_useful,
            case.path_bytes_received,
            case.full_table_bytes,
            case.lm_head_bytes,
            case.block_bytes,
            case.total_bytes,
        )?;
    }
    Ok(())
}

fn design_comparison(page: &mut String, counts: &Counts) -> Result<()> {
    let qwen = counts.models.first().context("no Qwen counts")?;
    page.push_str("| figure | the design | measured |\n|---|---|---|\n");
    for (name, stated) in [
        ("qa_short", "94.50 KiB (27 rows)"),
        ("long_context", "381.50 KiB (109 rows)"),
    ] {
        let text = qwen
            .workloads
            .iter()
            .find(|text| text.name == name)
            .context("no such workload")?;
        let bytes = u64::try_from(text.distinct)? * qwen.hidden_size * F32_BYTES;
        writeln!(
            page,
            "| `{name}`, fp32, one session | {stated} | {:.2} KiB ({} rows) |",
            kib(bytes),
            text.distinct
        )?;
    }
    let gated = qwen
        .workloads
        .iter()
        .filter(|text| text.name != "long_prose");
    let distinct: Vec<u64> = gated
        .filter_map(|text| u64::try_from(text.distinct).ok())
        .collect();
    let saved = |rows: Option<&u64>| 100.0 * (1.0 - ratio(rows.copied().unwrap_or(0), qwen.rows));
    writeln!(
        page,
        "| saved per session | 99.928-99.982 % | {:.3}-{:.3} % |",
        saved(distinct.iter().max()),
        saved(distinct.iter().min())
    )?;
    let shared = &qwen.workload_sessions;
    let (warm, cold) = (
        u64::try_from(shared.warm_rows)?,
        u64::try_from(shared.cold_rows)?,
    );
    let row = qwen.hidden_size * F32_BYTES;
    writeln!(
        page,
        "| {SESSIONS} sessions, fp32 | 350 KiB warm + 647.5 KiB cold, 99.998124 % saved | {:.2} KiB warm + {:.2} KiB cold, {:.6} % saved |",
        kib(warm * row),
        kib(cold * row),
        100.0 * (1.0 - ratio(warm + cold, qwen.rows * u64::try_from(shared.sessions)?)),
    )?;
    Ok(())
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counts far below 2^53, printed with few digits"
)]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

fn kib(bytes: u64) -> f64 {
    ratio(bytes, 1024)
}

const INTRODUCTION: &str = "\
# Columnar bandwidth report

Written by `cargo xtask bandwidth-report`; `cargo xtask test` fails when it no longer matches a new measurement.
`fixtures/validate-columnar-embed.py` recomputes every count with a tokenizer package alone. 1 KiB = 1,024 bytes.

## What a prompt touches

Prompts are the committed texts under `fixtures/workloads`, without chat template and begin-of-sequence. A row crosses
the wire once, so a prompt moves `distinct ids x row bytes`; the planner may add at most 5 % of overfetch where that
saves requests, and verified rows add 80 (Qwen, Gemma) or 48 (SmolLM2) bytes of path each when the knot is remote.
`long_prose` stands for texts that repeat almost nothing: it is shown so that the others do not flatter.
";

const MIXES: &str = "
## Rows of several kinds

`fat-origin pack --embed-dtype bf16 --embed-mix SPEC`: rows from the middle of the vocabulary on, the rarer ones, are
stored in fewer bits, and widened to bf16 by the station. The knot's block holds the widened rows, so that every way
gives the same answers; the errors are those of the converted rows against the values of the checkpoint, the largest
absolute one and the Frobenius norm of all over that of the values. A prompt asks mostly for the frequent rows, so it
saves less than the file.

";

const DESIGN_FIGURES: &str = "
## Beside the figures of the design

Before anything was built, a design on paper gave figures for Qwen2.5-0.5B in fp32. Its texts are not ours, so the counts differ; they are put side by
side, not tuned: it counted a prompt of 27 distinct ids as `qa_short` and one of 109 as `long_context`.

";

const WHERE_THE_DESIGN_WAS_WRONG: &str = "
The range per session is narrower or wider with the texts: the share that is saved depends on the distinct ids of a
prompt alone. The cold tail of a hundred sessions is the rest of the union of ids over the mix, so a mix of six prompts
saturates after a few sessions; the natural mix shows what happens when sessions share less.

## Where the design was wrong

- *Tied models*: Llama-3-8B (`tie_word_embeddings: false`, a separate 128,256 x 4,096 `lm_head.weight`) and Phi-3-mini
  (32,064 x 3,072, separate head) are not tied. For them the embedding rows are saved and the head still has to come.
- *MB for MiB*: the 519.31 \"MB\" of Qwen2.5-0.5B's fp32 matrix are MiB; it has 544,538,624 bytes.
- *A tied model still needs its head*: the logits of a tied model are a product with the very matrix whose rows are
  fetched one by one. Until a sparse head exists, a station streams the matrix once in its stored form after the
  prompt's rows; the tables above show head, blocks and total beside the rows so that nobody takes the row bytes for
  the whole cost of a cold start.
";
