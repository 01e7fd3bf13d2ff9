//! What a figure was measured on, in a line: processor, its vector instructions, load, commit.

use anyhow::Result;

use crate::repository;

/// Instruction sets that one of the kernels, or the peer's, are written for.
const FEATURES: [&str; 10] = [
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "amx_int8",
    "asimddp",
];

/// The widest of the instruction sets that our kernels use which this machine has.
pub(super) fn widest_set() -> Result<&'static str> {
    let processor = std::fs::read_to_string("/proc/cpuinfo")?;
    let line = processor.lines().find(|line| line.starts_with("flags"));
    let flags: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let has = |all: &[&str]| all.iter().all(|flag| flags.contains(flag));
    Ok(
        if has(&["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"]) {
            "avx512_vnni"
        } else if has(&["avx2", "fma", "avx_vnni"]) {
            "avx_vnni"
        } else if has(&["avx2", "fma"]) {
            "avx2"
        } else {
            anyhow::bail!("this machine has none of the instruction sets that the comparison knows")
        },
    )
}

/// One line; parts that this system does not tell are left out.
pub(super) fn describe() -> Result<String> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = processor.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    let flags: Vec<&str> = field("flags")
        .or_else(|| field("Features"))
        .unwrap_or_default()
        .split_whitespace()
        .filter(|flag| FEATURES.contains(flag))
        .collect();
    let threads = std::thread::available_parallelism()?;
    let load = read("/proc/loadavg");
    Ok(format!(
        "{threads} x {} ({}), load {}, commit {}",
        field("model name").unwrap_or("unnamed processor"),
        flags.join(" "),
        load.split_whitespace().next().unwrap_or("unknown"),
        repository::commit()?
    ))
}
