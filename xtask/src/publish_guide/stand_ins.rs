//! What the page's reader has and a test has not: a hub, an account, a domain. Each stand-in does what the real one
//! does for these commands, and is named on the page.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::repository;
use crate::servers::s3s::{ACCESS_KEY, REGION, S3Server, SECRET_KEY};
use crate::synthetic::{self, Geometry};

/// Qwen's structure, small: some row file parts of 5 MiB, a knot of a few more.
const SMALL: Geometry = Geometry {
    vocab_size: 40_000,
    hidden_size: 384,
    intermediate_size: 768,
    num_hidden_layers: 2,
    num_attention_heads: 6,
    num_key_value_heads: 2,
};

/// A checkpoint of Qwen's structure with random weights, and a chat template, as the real one has.
pub(super) fn small_checkpoint(scratch: &Path) -> Result<PathBuf> {
    let dir = scratch.join("hub");
    std::fs::create_dir_all(&dir)?;
    let tokenizer = synthetic::write_byte_tokenizer(&scratch.join("tokenizer.json"))?;
    synthetic::write(&dir, SMALL, &tokenizer)?;
    Ok(dir)
}

/// A PATH with the workspace's programs and an `hf` in front.
pub(super) fn programs(scratch: &Path, model: &Path) -> Result<OsString> {
    let dir = scratch.join("programs");
    std::fs::create_dir_all(&dir)?;
    for name in ["fat-origin", "fat-station"] {
        let program = PathBuf::from(repository::binary(name).get_program());
        let program = program
            .canonicalize()
            .with_context(|| format!("{name} is not built"))?;
        std::os::unix::fs::symlink(program, dir.join(name))?;
    }
    let model = model.to_string_lossy().replace('\'', "'\\''");
    // The one command the page has: `hf download REPOSITORY --local-dir DIR`.
    let hf = format!(
        "#!/bin/sh\nset -eu\n\
         test \"$#\" = 4 && test \"$1\" = download && test \"$3\" = --local-dir\n\
         test \"$2\" = Qwen/Qwen2.5-0.5B-Instruct\n\
         cp -r '{model}' \"$4\"\n"
    );
    let path = dir.join("hf");
    std::fs::write(&path, hf)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(dir).chain(std::env::split_paths(&rest));
    std::env::join_paths(folders).context("a folder of the PATH has a colon in it")
}

/// The reader's `r2.env`.
pub(super) fn settings(folder: &Path, server: &S3Server, domain: SocketAddr) -> Result<()> {
    let endpoint = server.endpoint();
    let text = format!(
        "AWS_ACCESS_KEY_ID={ACCESS_KEY}\nAWS_SECRET_ACCESS_KEY={SECRET_KEY}\n\
         AWS_ENDPOINT_URL={endpoint}\nAWS_REGION={REGION}\nPUBLIC_URL=http://{domain}\n\
         # s3s-fs speaks no TLS.\nAWS_ALLOW_HTTP=true\n"
    );
    std::fs::write(folder.join("r2.env"), text)?;
    Ok(())
}
