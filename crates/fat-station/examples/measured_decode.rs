//! Answers: how many instructions and allocations does a decoded token take? `measured_decode --knot KNOT` answers a
//! fixed prompt greedily, as `fat-station run` does, on one thread. Each step after the first [`SETTLING_STEPS`] runs
//! between [`region_begins`] and [`region_ends`], at whose calls callgrind writes down what it counted: a token is
//! chosen, its row looked up, the layers and the head are computed. The lines on
//! stdout, one a step, are equal: whoever reads them adds the steps up.
//!
//! `LOW_BIT_KERNELS_INSTRUCTION_SET` must name the kernels; where the machine lacks them the program fails.
#![allow(clippy::print_stdout, reason = "an example's result goes to stdout")]

use std::hint::black_box;
use std::sync::Arc;

use clap::Parser;
use fat_station::cli::StationArgs;
use fat_station::config::Config;
use fat_station::engine::Waiting;
use fat_station::engine::session::{EndOfSequence, GenerateOptions, TokenSink, generate};
use fat_station::error::Error;
use fat_station::language::{Language, PromptForm};
use fat_station::model::Model;
use fat_station::traffic::Traffic;
use low_bit_kernels::InstructionSet;
use tokio_util::sync::CancellationToken;

/// A few tokens under a real tokenizer, as many as it has letters under one of bytes.
const PROMPT: &str = "The sky";

/// Steps until buffers have the sizes they keep.
const SETTLING_STEPS: usize = 3;

/// Steps that are counted: an allocation that comes up in some steps only shows in their sum.
const COUNTED_STEPS: usize = 4;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    station: StationArgs,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    require_instruction_set()?;
    let config = Config::resolve(&Arguments::parse().station, |name| std::env::var_os(name))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let traffic = Arc::new(Traffic::default());
    let prompt = |language: &Language| language.prompt(PROMPT, PromptForm::Raw);
    let (model, prompt) = runtime.block_on(Model::load(&config, traffic, prompt))?;
    // Before the first step: what it takes to have the head is no step's.
    runtime.block_on(model.head.get())?;
    let options = GenerateOptions {
        // The last step is the one that makes the last token's logits.
        max_tokens: 1 + SETTLING_STEPS + COUNTED_STEPS,
        end_of_sequence: EndOfSequence::Ignored,
        ..GenerateOptions::default()
    };
    let waiting = Waiting {
        runtime: runtime.handle().clone(),
        cancel: CancellationToken::new(),
    };
    // From inside a pool of one thread: handing work to a sleeping one spins for as long as it takes to wake.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let mut steps = Steps::default();
    pool.install(|| generate(&model, prompt, &options, &waiting, &mut steps))?;
    for _ in 0..COUNTED_STEPS {
        println!("{COUNTED_STEPS} decode steps");
    }
    Ok(())
}

/// Ends a step, and begins the next, where the logits of a token are there.
#[derive(Default)]
struct Steps {
    seen: usize,
}

impl TokenSink for Steps {
    fn text(&mut self, _piece: &str) -> Result<(), Error> {
        Ok(())
    }

    fn logits(&mut self, _logits: &[f32]) -> Result<(), Error> {
        // The first logits are the prompt's.
        let steps = self.seen;
        self.seen += 1;
        if steps > SETTLING_STEPS {
            region_ends();
        }
        if (SETTLING_STEPS..SETTLING_STEPS + COUNTED_STEPS).contains(&steps) {
            region_begins();
        }
        Ok(())
    }
}

/// What is counted starts here.
#[inline(never)]
fn region_begins() {
    // Two functions of equal code would be made one.
    black_box("begins");
}

/// What is counted stops here.
#[inline(never)]
fn region_ends() {
    black_box("ends");
}

/// The library ignores a name that it cannot serve; here that would measure other kernels than were asked for.
fn require_instruction_set() -> Result<(), String> {
    let wanted = std::env::var("LOW_BIT_KERNELS_INSTRUCTION_SET").unwrap_or_default();
    let found = InstructionSet::current();
    if found.name() == wanted {
        return Ok(());
    }
    let available = InstructionSet::ALL.iter().filter(|set| set.is_available());
    let available: Vec<&str> = available.map(|set| set.name()).collect();
    Err(format!(
        "LOW_BIT_KERNELS_INSTRUCTION_SET is {wanted:?}, expected one that this machine has: {}",
        available.join(", ")
    ))
}
