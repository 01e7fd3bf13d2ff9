//! Prefill and decode beside a `llama-bench` that somebody built, llama.cpp's or ik_llama.cpp's: same file, same number
//! of tokens and threads, in pairs that alternate who goes first. The figure is the median of the pairs' ratios, with
//! an interval that holds it at 95 % whatever their distribution is.
//!
//! The peer measures in a process that is warm, on random ids; ours in a fresh one, on text, page faults of the
//! weights included. So the ratio is, if anything, unkind to us.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::median::{median, median_interval};
use super::peer::{Arguments, Timed};
use super::prompt::prompt_of;
use super::{Model, machine, peer};
use crate::repository;

/// What is measured: tokens of a prompt, tokens decoded after a prompt of one word.
const TESTS: [(Phase, u32); 4] = [
    (Phase::Prefill, 64),
    (Phase::Prefill, 512),
    (Phase::Decode, 64),
    (Phase::Decode, 256),
];

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Prefill,
    Decode,
}

/// One line of the table.
#[derive(Serialize)]
struct Cell {
    model: String,
    threads: u32,
    phase: Phase,
    tokens: u32,
    pairs: usize,
    ours_tokens_per_s: f64,
    peer_tokens_per_s: f64,
    ratio: f64,
    ratio_95_percent: [f64; 2],
}

/// Every test of both models, at each number of threads.
pub(super) fn run(bench: &Path, arguments: &Arguments) -> Result<()> {
    let bench = bench.canonicalize()?;
    let theirs = instruction_sets(&bench)?;
    let needed = machine::widest_set()?;
    println!(
        "peer {}: {}; ours: {needed}",
        bench.display(),
        theirs.iter().copied().collect::<Vec<_>>().join(" ")
    );
    ensure!(
        theirs.contains(needed),
        "{} has no {needed} instructions, which our kernels use on this machine: a ratio would say nothing; build the \
         peer with GGML_NATIVE=ON",
        bench.display()
    );
    let models = super::models()?;
    println!(
        "| model | threads | test | ours, tokens/s | peer | ratio | 95 % |\n|---|---|---|---|---|---|---|"
    );
    let mut cells = Vec::new();
    for model in &models {
        for &threads in &arguments.threads {
            for (phase, tokens) in TESTS {
                let cell = measure(&bench, model, (phase, tokens), threads, arguments.pairs)?;
                cell.print();
                cells.push(cell);
            }
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&cells)?);
    }
    Ok(())
}

fn measure(
    bench: &Path,
    model: &Model,
    (phase, tokens): (Phase, u32),
    threads: u32,
    pairs: u32,
) -> Result<Cell> {
    let text = match phase {
        Phase::Prefill => prompt_of(model, tokens)?,
        Phase::Decode => "The".to_owned(),
    };
    let ours = || ours(model, (phase, tokens), &text, threads);
    let theirs = || theirs(bench, model, (phase, tokens), threads);
    let (mut our_speeds, mut their_speeds) = (Vec::new(), Vec::new());
    // The first pair warms the page cache and is not counted.
    for round in 0..=pairs {
        let (our_speed, their_speed) = if round % 2 == 0 {
            let ours = ours()?;
            (ours, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        };
        if round > 0 {
            our_speeds.push(our_speed);
            their_speeds.push(their_speed);
        }
    }
    let mut ratios: Vec<f64> = our_speeds
        .iter()
        .zip(&their_speeds)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    ratios.sort_by(f64::total_cmp);
    Ok(Cell {
        model: model.packed.name.clone(),
        threads,
        phase,
        tokens,
        pairs: ratios.len(),
        ours_tokens_per_s: median(&our_speeds)?,
        peer_tokens_per_s: median(&their_speeds)?,
        ratio: median(&ratios)?,
        ratio_95_percent: median_interval(&ratios)?,
    })
}

impl Cell {
    fn print(&self) {
        let phase = match self.phase {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        };
        println!(
            "| {} | {} | {phase} {} | {:.0} | {:.0} | {:.2} | {:.2} - {:.2} |",
            self.model,
            self.threads,
            self.tokens,
            self.ours_tokens_per_s,
            self.peer_tokens_per_s,
            self.ratio,
            self.ratio_95_percent[0],
            self.ratio_95_percent[1]
        );
    }
}

/// Tokens per second of a fresh station. Its spans have the prompt's layers in one figure and, in the other, a head and
/// a choice for every pick and the layers of every pick but the last: of one pick more than is counted.
fn ours(model: &Model, (phase, tokens): (Phase, u32), text: &str, threads: u32) -> Result<f64> {
    let picks = match phase {
        Phase::Prefill => 2,
        Phase::Decode => tokens + 1,
    };
    let Timed {
        prompt_tokens,
        prefill_s,
        picks,
        decode_s,
    } = peer::station(model, text, threads, picks)?;
    match phase {
        Phase::Prefill => {
            ensure!(
                prompt_tokens == u64::from(tokens),
                "the prompt has {prompt_tokens} tokens, not {tokens}"
            );
            // The peer's figure has the logits of the last position in it.
            Ok(f64::from(tokens) / (prefill_s + decode_s / picks))
        }
        Phase::Decode => Ok((picks - 1.0) / decode_s),
    }
}

#[derive(Deserialize)]
struct BenchLine {
    n_prompt: u32,
    n_gen: u32,
    avg_ts: f64,
}

fn theirs(bench: &Path, model: &Model, (phase, tokens): (Phase, u32), threads: u32) -> Result<f64> {
    let (prompt, generated) = match phase {
        Phase::Prefill => (tokens, 0),
        Phase::Decode => (0, tokens),
    };
    let mut command = Command::new(bench);
    command.arg("-m").arg(&model.gguf);
    command.args(["-t", &threads.to_string(), "-r", "1", "-o", "json"]);
    command.args(["-p", &prompt.to_string(), "-n", &generated.to_string()]);
    let printed = repository::output(command.stderr(Stdio::null()))?;
    let lines: Vec<BenchLine> =
        serde_json::from_slice(&printed).context("llama-bench printed something else")?;
    let line = lines
        .iter()
        .find(|line| (line.n_prompt, line.n_gen) == (prompt, generated));
    Ok(line.context("llama-bench left out the test")?.avg_ts)
}

/// Instruction sets in the code of a program and of those of its libraries that lie near it or are the peer's.
fn instruction_sets(program: &Path) -> Result<BTreeSet<&'static str>> {
    let listed = repository::output(Command::new("ldd").arg(program))?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let libraries = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|path| path.contains("ggml") || path.contains("llama"))
        .map(PathBuf::from);
    let mut found = BTreeSet::new();
    for file in std::iter::once(program.to_path_buf()).chain(libraries) {
        let mut objdump = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()
            .context("objdump (Debian's package binutils) reads the peer's instructions")?;
        let code = objdump.stdout.take().context("objdump prints nothing")?;
        for line in BufReader::new(code).lines() {
            found.extend(set_of(&line?));
        }
        ensure!(objdump.wait()?.success(), "objdump {}", file.display());
    }
    Ok(found)
}

/// What a line of a disassembly tells: the sets that its instruction belongs to and that matter here.
fn set_of(line: &str) -> Option<&'static str> {
    let dot_product = line.contains("vpdpbusd");
    match (dot_product, line.contains("%zmm"), line.contains("%ymm")) {
        (true, true, _) => Some("avx512_vnni"),
        (true, false, true) => Some("avx_vnni"),
        (false, true, _) => Some("avx512f"),
        (false, false, true) => Some("avx2"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::set_of;

    #[test]
    fn instructions_tell_their_set() {
        let line = "  4a10:\tvpdpbusd (%rax),%zmm1,%zmm2";
        assert_eq!(set_of(line), Some("avx512_vnni"));
        assert_eq!(
            set_of("  4a10:\t{vex} vpdpbusd %ymm0,%ymm1,%ymm2"),
            Some("avx_vnni")
        );
        assert_eq!(set_of("  4a10:\tvaddps %zmm0,%zmm1,%zmm2"), Some("avx512f"));
        assert_eq!(set_of("  4a10:\tadd %rax,%rbx"), None);
    }
}
