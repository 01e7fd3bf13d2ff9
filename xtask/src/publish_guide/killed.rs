//! A publisher that is killed when a seeded number of bytes has left it, again and again, and one that is refused. The
//! old version stays whole, the next run goes on, and no part that was noted is sent twice.

mod relay;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use rand::{Rng as _, SeedableRng as _, rngs::ChaCha8Rng};
use serde_json::Value;

use super::stand_ins;
use crate::repository;
use crate::servers::s3s::{ACCESS_KEY, REGION, S3Server, SECRET_KEY};
use relay::Relay;

/// Seed of the moments.
const SEED: u64 = 9;
/// Publishers that are killed.
const KILLS: usize = 12;
/// The shortest part that S3 takes.
const PART_BYTES: u64 = 5 << 20;
/// Parts that are on their way at once, of which a killed publisher knows nothing.
const PARTS_IN_FLIGHT: u64 = 4;
const BUCKET: &str = "killed";

/// Kills at amounts spread over the whole upload, then lets one finish.
pub(super) fn at_every_amount(scratch: &Path, server: &S3Server, buckets: &Path) -> Result<()> {
    let bucket = buckets.join(BUCKET);
    std::fs::create_dir_all(&bucket)?;
    let checkpoint = stand_ins::small_checkpoint(&scratch.join("killed"))?;
    let (old, new) = (scratch.join("old"), scratch.join("new"));
    pack(&checkpoint, &old, "bf16")?;
    pack(&checkpoint, &new, "f32")?;
    let relay = Relay::start(&server.endpoint())?;
    let place = Place {
        endpoint: relay.endpoint(),
        bucket: bucket.clone(),
    };
    let report = place.publish(&old)?;
    let before = place.whole_version()?;
    ensure!(
        report["manifest_written"] == true,
        "the first version was not written: {report}"
    );
    let total = file_bytes(&new)?;
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut left_once = 0;
    for _ in 0..KILLS {
        // Each run begins where the one before was cut, so short steps still reach the end.
        let amount = random.next_u64() % (total / 6);
        let mut child = place
            .command(&new)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        relay.kill_after(amount, child.id());
        let status = child.wait()?;
        left_once += relay.taken();
        let now = place.whole_version()?;
        ensure!(
            status.success() || now == before,
            "killed after {amount} bytes, the manifest names {now:?}, before {before:?}"
        );
        if status.success() {
            break;
        }
    }
    let report = place.publish(&new)?;
    left_once += relay.taken();
    ensure!(
        place.whole_version()? != before,
        "the new version is not there: {report}"
    );
    let allowed = total + (KILLS as u64) * (PARTS_IN_FLIGHT + 1) * PART_BYTES;
    ensure!(
        left_once < allowed,
        "{left_once} bytes were sent for {total} in {KILLS} cuts, at most {allowed} were expected"
    );
    let leftovers = hidden(&new)?;
    ensure!(leftovers.is_empty(), "journals are left: {leftovers:?}");
    println!(
        "publisher killed {KILLS} times (seed {SEED}): {total} bytes published, {left_once} sent, old version whole \
         each time"
    );
    Ok(())
}

/// Wrong secret and wrong bucket, with what each says.
pub(super) fn refused(scratch: &Path, server: &S3Server) -> Result<()> {
    let place = Place {
        endpoint: server.endpoint(),
        bucket: scratch.join("buckets").join(BUCKET),
    };
    let new = scratch.join("new");
    let wrong = place
        .command(&new)
        .env("AWS_SECRET_ACCESS_KEY", "not-the-secret")
        .output()?;
    expect(&wrong, 67, "SignatureDoesNotMatch")?;
    let missing = Place {
        bucket: PathBuf::from("no-such-bucket"),
        ..place
    };
    expect(&missing.command(&new).output()?, 65, "NoSuchBucket")
}

fn expect(output: &Output, code: i32, part: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(code) && said.contains(part),
        "expected exit code {code} and `{part}`, found {}: {said}",
        output.status
    );
    ensure!(
        !said.contains(SECRET_KEY) && !said.contains("not-the-secret"),
        "a secret is shown: {said}"
    );
    Ok(())
}

/// Where publishers send.
struct Place {
    endpoint: String,
    bucket: PathBuf,
}

impl Place {
    fn command(&self, packed: &Path) -> Command {
        let mut command = repository::binary("fat-origin");
        let bucket = self
            .bucket
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        command
            .arg("publish")
            .arg(packed.join("m.gkq"))
            .arg(format!("s3://{bucket}/m"))
            .args(["--json", "--part-bytes", &PART_BYTES.to_string()])
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .env("AWS_REGION", REGION)
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env_remove("AWS_SESSION_TOKEN")
            .env_remove("AWS_ENDPOINT_URL_S3")
            .env("NO_PROXY", "127.0.0.1");
        command
    }

    fn publish(&self, packed: &Path) -> Result<Value> {
        let printed = repository::output(&mut self.command(packed))?;
        serde_json::from_slice(&printed).context("publish --json printed something else")
    }

    /// The objects that the manifest names, each read whole and compared with its name.
    fn whole_version(&self) -> Result<Vec<String>> {
        let folder = self.bucket.join("m");
        let manifest: Value =
            serde_json::from_slice(&std::fs::read(folder.join("manifest.json"))?)?;
        let mut names = Vec::new();
        for kind in ["rows", "knot"] {
            let entry = &manifest[kind];
            let name = entry["object"]
                .as_str()
                .context("no object's name")?
                .to_owned();
            let bytes = std::fs::read(folder.join(&name))
                .with_context(|| format!("{name} is named by the manifest"))?;
            let digest = blake3::hash(&bytes).to_string();
            ensure!(
                entry["blake3"] == digest.as_str() && entry["bytes"] == bytes.len(),
                "{name} is not what the manifest says: {} bytes, BLAKE3 {digest}",
                bytes.len()
            );
            names.push(name);
        }
        Ok(names)
    }
}

fn pack(checkpoint: &Path, out: &Path, dtype: &str) -> Result<()> {
    let mut origin = repository::binary("fat-origin");
    origin.arg("pack").arg(checkpoint).arg("--out").arg(out);
    origin.args(["--name", "m", "--embed-dtype", dtype]);
    repository::output(&mut origin)?;
    Ok(())
}

fn file_bytes(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for name in ["m.rows", "m.gkq"] {
        sum += std::fs::metadata(dir.join(name))?.len();
    }
    Ok(sum)
}

fn hidden(dir: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            found.push(name);
        }
    }
    Ok(found)
}
