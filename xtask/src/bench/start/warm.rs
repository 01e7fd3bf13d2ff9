//! The warm start: a local knot, a local GGUF, both in the page cache.

use std::path::Path;

use anyhow::Result;

use super::super::Model;
use super::super::median::{median, median_interval};
use super::first_byte::{first_byte_s, peer};
use crate::repository;

pub(super) fn print_head() {
    println!(
        "\n| warm start | pairs | ours | llama.cpp | ours / llama.cpp | 95 % |\n|---|---|---|---|---|---|"
    );
}

/// Both sides in turn, after a first round that fills the page cache; what was too slow.
pub(super) fn measure(
    model: &Model,
    program: &Path,
    prompt: &str,
    pairs: u32,
) -> Result<Vec<String>> {
    let ours = || {
        let mut station = repository::binary("fat-station");
        station.arg("--knot").arg(model.packed.knot());
        station.args(["--log", "warn", "run", "--raw", "--ignore-eos"]);
        first_byte_s(station.args(["--max-tokens", "1", "--", prompt]))
    };
    let theirs = || first_byte_s(&mut peer(program, &model.gguf, prompt));
    let (mut ours_s, mut theirs_s) = (Vec::new(), Vec::new());
    for round in 0..=pairs {
        let (our_s, their_s) = if round % 2 == 0 {
            let ours = ours()?;
            (ours, theirs()?)
        } else {
            let theirs = theirs()?;
            (ours()?, theirs)
        };
        if round > 0 {
            ours_s.push(our_s);
            theirs_s.push(their_s);
        }
    }
    let mut ratios: Vec<f64> = ours_s.iter().zip(&theirs_s).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    let (ratio, [least, most]) = (median(&ratios)?, median_interval(&ratios)?);
    let name = &model.packed.name;
    println!(
        "| {name} | {pairs} | {:.3} s | {:.3} s | {ratio:.2} | {least:.2} - {most:.2} |",
        median(&ours_s)?,
        median(&theirs_s)?
    );
    let slow = format!("warm {name}: {ratio:.2} times llama.cpp's time");
    Ok((ratio > 1.0).then_some(slow).into_iter().collect())
}
