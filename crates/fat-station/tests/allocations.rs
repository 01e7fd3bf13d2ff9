//! What a station allocates per decoded token, and that a prompt costs the logits of one position. A
//! binary of its own, since the counts are the process's.
#![allow(unsafe_code, reason = "an allocator that counts cannot be had without")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    reason = "tests may end by panicking, and say what they counted"
)]
#![allow(
    dead_code,
    reason = "the model is shared with tests that use more of it"
)]

#[path = "it/tiny_model.rs"]
mod tiny_model;

use clap::Parser as _;
use fat_station::cli::Cli;
use fat_station::config::Config;
use fat_station::engine::Waiting;
use fat_station::engine::session::{EndOfSequence, GenerateOptions, TokenSink, generate};
use fat_station::error::Error;
use fat_station::language::PromptForm;
use fat_station::model::Model;
use fat_station::traffic::Traffic;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tiny_model::{VOCABULARY, models};
use tokio_util::sync::CancellationToken;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LARGEST_BYTES: AtomicUsize = AtomicUsize::new(0);

fn note(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    LARGEST_BYTES.fetch_max(bytes, Ordering::Relaxed);
}

// SAFETY: everything is the system's allocator; counting touches no memory of its callers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller's duties are the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PROMPT: usize = 600;
const STEPS: usize = 200;

/// Counts the allocations up to each step's logits.
struct Counts {
    at_step: Vec<u64>,
}

impl TokenSink for Counts {
    fn text(&mut self, piece: &str) -> Result<(), Error> {
        assert!(piece.contains('a'), "{piece:?}");
        Ok(())
    }

    fn logits(&mut self, logits: &[f32]) -> Result<(), Error> {
        assert_eq!(logits.len(), VOCABULARY, "of one position");
        self.at_step.push(ALLOCATIONS.load(Ordering::Relaxed));
        Ok(())
    }
}

#[test]
fn a_decoded_token_takes_its_text_and_a_prompt_one_positions_logits() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let knot = models().join("tied.gkq");
    let cli = Cli::parse_from(["fat-station", "--knot", knot.to_str().unwrap()]);
    let config = Config::resolve(&cli.station, |_| None).unwrap();
    let prompt = |language: &fat_station::language::Language| {
        language.prompt(&"a".repeat(PROMPT), PromptForm::Raw)
    };
    let loaded = runtime.block_on(Model::load(&config, Arc::new(Traffic::default()), prompt));
    let (model, prompt) = loaded.unwrap();
    assert!(prompt.chunks.len() > 1, "more than one chunk");
    runtime.block_on(model.head.get()).unwrap();
    let letter = prompt.tokens[PROMPT / 2];
    let options = GenerateOptions {
        max_tokens: STEPS,
        end_of_sequence: EndOfSequence::Ignored,
        // A letter a step, so that each has text to give out.
        forced: Some(vec![letter; STEPS]),
        ..GenerateOptions::default()
    };
    let waiting = Waiting {
        runtime: runtime.handle().clone(),
        cancel: CancellationToken::new(),
    };
    let mut counts = Counts {
        at_step: Vec::with_capacity(STEPS),
    };
    LARGEST_BYTES.store(0, Ordering::Relaxed);
    generate(&model, prompt, &options, &waiting, &mut counts).unwrap();

    let largest = LARGEST_BYTES.load(Ordering::Relaxed);
    eprintln!("largest allocation: {largest} bytes");
    let logits_bytes = VOCABULARY * size_of::<f32>();
    assert!(
        (logits_bytes..16 * logits_bytes).contains(&largest),
        "{largest}, where the logits of one position have {logits_bytes}"
    );

    let per_step: Vec<u64> = counts.at_step.windows(2).map(|w| w[1] - w[0]).collect();
    let later = &per_step[per_step.len() / 2..];
    let (sum, steps) = (later.iter().sum::<u64>(), later.len() as u64);
    eprintln!("{sum} allocations in {steps} steps: {later:?}");
    // The step's text, as a string of its own, and now and then a block of the queue by which work
    // enters the pool of threads: two entries a step, 63 to a block.
    assert!(sum <= steps + steps / 10, "{later:?}");
}
