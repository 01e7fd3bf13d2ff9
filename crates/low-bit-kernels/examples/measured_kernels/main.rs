//! Answers: how many instructions does each kernel take? Runs every case once on fixed data between [`region_begins`]
//! and [`region_ends`], at whose calls callgrind writes down what it counted, and prints the cases' names in that
//! order. It measures nothing itself, and checks no result: the tests do.
//!
//! `LOW_BIT_KERNELS_INSTRUCTION_SET` must name the kernels; where the machine lacks them the program fails.
#![allow(clippy::print_stdout, reason = "an example's result goes to stdout")]

mod attention;
mod elementwise;
mod products;

use std::error::Error;
use std::hint::black_box;

use low_bit_kernels::InstructionSet;

/// What is measured: a call that may be repeated.
struct Case {
    name: String,
    call: Box<dyn FnMut() -> Result<(), low_bit_kernels::Error>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    require_instruction_set()?;
    // One thread, and the calls come from inside it: no instruction is spent on waking anybody.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    Ok(pool.install(run)?)
}

fn run() -> Result<(), low_bit_kernels::Error> {
    let mut cases = products::cases()?;
    cases.extend(attention::cases());
    cases.extend(elementwise::cases());
    for case in &mut cases {
        // The first call fills the buffers that a thread keeps.
        (case.call)()?;
        region_begins();
        let outcome = (case.call)();
        region_ends();
        outcome?;
        println!("{}", case.name);
    }
    Ok(())
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

/// Values in -1 ..= 1 without a period that a kernel could meet.
fn values(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.37).sin()).collect()
}
