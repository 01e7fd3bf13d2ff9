//! What a compact tokenizer costs: size of the file, time to load it, memory that stays, speed of
//! encoding. `tokenizer_cost SOURCE TEXT`, where SOURCE is a GGUF file, a Hugging Face directory or
//! a compact tokenizer; a compact one is loaded in a process of its own, so that the conversion's
//! memory is not counted.
#![allow(clippy::print_stdout, reason = "an example's result goes to stdout")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use compact_tokenizer::{AddSpecial, Tokenizer, layout};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [program, source, text] = arguments.as_slice() else {
        return Err("usage: tokenizer_cost SOURCE TEXT".into());
    };
    let bytes = std::fs::read(source).unwrap_or_default();
    if bytes.starts_with(&layout::MAGIC) {
        drop(bytes);
        return measure(Path::new(source), Path::new(text));
    }
    let started = Instant::now();
    let spec = if bytes.starts_with(b"GGUF") {
        let file = fat_origin::checkpoint::gguf::GgufFile::open(Path::new(source))?;
        fat_origin::tokenizer::gguf::read(&file)?
    } else {
        fat_origin::tokenizer::hugging_face::read(Path::new(source))?
    };
    let compact = spec.to_bytes()?;
    println!(
        "converted in {:.0} ms",
        started.elapsed().as_secs_f64() * 1e3
    );
    let target = std::env::temp_dir().join(format!("tokenizer-cost-{}.tok", std::process::id()));
    std::fs::write(&target, compact)?;
    let status = Command::new(program).arg(&target).arg(text).status();
    std::fs::remove_file(&target)?;
    if status?.success() {
        Ok(())
    } else {
        Err("the measuring process failed".into())
    }
}

fn measure(compact: &Path, text: &Path) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(text)?;
    let before = resident_bytes()?;
    let started = Instant::now();
    let tokenizer = Tokenizer::from_bytes(std::fs::read(compact)?.into())?;
    let loaded = started.elapsed();
    let after = resident_bytes()?;
    let started = Instant::now();
    let ids = tokenizer.encode(&text, AddSpecial::No);
    let encoded = started.elapsed();
    println!("vocabulary          {} ids", tokenizer.vocabulary_len());
    println!("file                {} bytes", tokenizer.file_bytes());
    println!("read and checked in {:.1} ms", loaded.as_secs_f64() * 1e3);
    println!(
        "resident            {:.1} MB more",
        (after.saturating_sub(before)) as f64 / 1e6
    );
    println!(
        "encoded             {} bytes to {} ids in {:.1} ms; resident then {:.1} MB more",
        text.len(),
        ids.len(),
        encoded.as_secs_f64() * 1e3,
        resident_bytes()?.saturating_sub(before) as f64 / 1e6
    );
    if std::env::var_os("TOKENIZER_COST_IDS").is_some() {
        println!("{ids:?}");
    }
    Ok(())
}

/// Resident memory of this process, from the kernel.
fn resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .ok_or("no VmRSS line")?;
    let kibibytes: u64 = line
        .split_whitespace()
        .nth(1)
        .ok_or("no number in the VmRSS line")?
        .parse()?;
    Ok(kibibytes * 1024)
}
