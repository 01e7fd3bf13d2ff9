//! The time from starting a program to the first byte of its answer.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// Seconds until `command` writes its first byte to stdout. It is let run to its end, which must be a good one.
pub(super) fn first_byte_s(command: &mut Command) -> Result<f64> {
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("could not start {command:?}"))?;
    let mut stdout = child.stdout.take().context("the child has no stdout")?;
    let mut first = [0];
    let read = stdout.read(&mut first)?;
    let first_s = begun.elapsed().as_secs_f64();
    std::io::copy(&mut stdout, &mut std::io::sink())?;
    let status = child.wait()?;
    ensure!(
        status.success() && read == 1,
        "{command:?} ended with {status} and {read} bytes on stdout"
    );
    Ok(first_s)
}

/// llama.cpp's program for one greedy token, without the pass that would only warm it up.
pub(super) fn peer(program: &Path, gguf: &Path, prompt: &str) -> Command {
    let mut peer = Command::new(program);
    peer.arg("-m").arg(gguf).args(["-p", prompt]);
    peer.args(["-n", "1", "-c", "512", "--temp", "0"]);
    peer.args(["-no-cnv", "--no-warmup", "--no-display-prompt", "-t"]);
    peer.arg(
        std::thread::available_parallelism()
            .map_or(1, usize::from)
            .to_string(),
    );
    peer
}
