//! A disk of a given size, mounted for the processes of one test alone: a tmpfs in a mount namespace
//! of their own, so that nothing stays mounted however the test ends.

use crate::station::Finished;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Where the disk is mounted, and how.
pub(crate) struct Room {
    pub(crate) path: PathBuf,
    options: &'static str,
    scratch: TempDir,
}

impl Room {
    /// `options` are those of tmpfs.
    pub(crate) fn new(options: &'static str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        Self {
            path,
            options,
            scratch,
        }
    }
}

/// Flags of `unshare` that give a mount namespace here: root's own, or one of a user namespace.
fn namespace() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    ways.into_iter().find(|flags| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(*flags)
            .args(["sh", "-c", "mount -t tmpfs tmpfs /mnt"]);
        let status = unshare.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}

/// Carries out `steps` one after another on the mounted disk. A step with a `$` in it is a shell
/// command, with the disk's place in `ROOM`; any other is the prompt of a run that keeps its rows on the disk, in
/// directory `ROOM` itself. Gives what the runs left, in order; `None`, having said so, where this
/// machine mounts nothing.
pub(crate) fn in_room(room: &Room, rows: &str, steps: &[&str]) -> Option<Vec<Finished>> {
    let Some(namespace) = namespace() else {
        // The rule of `cargo xtask test`, in xtask/src/repository.rs.
        let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1");
        assert!(!in_ci, "CI must be able to mount a tmpfs");
        eprintln!("skipped: no tmpfs can be mounted here; run as root, or allow user namespaces");
        return None;
    };
    let out = |name: String| room.scratch.path().join(name);
    let mut script = format!(
        "set -e; mount -t tmpfs -o {} tmpfs \"$ROOM\"\n",
        room.options
    );
    let mut runs = 0;
    for step in steps {
        if step.contains('$') {
            script += &format!("{step}\n");
            continue;
        }
        let file = |what: &str| out(format!("{runs}.{what}")).display().to_string();
        script += &format!(
            "\"$STATION\" --columnar-embed {rows} --embed-cache-dir \"$ROOM\" --embed-always-remote \
             --cache-dir {} --summary-file {} run --tokens-file {} --raw --ignore-eos --max-tokens 12 \
             '{step}' > {} 2> {}\n",
            out("cache".to_owned()).display(),
            file("summary"),
            file("tokens"),
            file("text"),
            file("stderr"),
        );
        runs += 1;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(namespace).args(["sh", "-c", &script]);
    unshare.env("ROOM", &room.path);
    unshare.env("STATION", env!("CARGO_BIN_EXE_fat-station"));
    let output = unshare.stdin(Stdio::null()).output().unwrap();
    let read = |name: String| std::fs::read_to_string(out(name)).unwrap_or_default();
    let finished = (0..runs).map(|run| {
        let stderr = read(format!("{run}.stderr"));
        assert!(
            output.status.success(),
            "{stderr}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Finished {
            text: read(format!("{run}.text")),
            stderr,
            code: 0,
            summary: serde_json::from_str(&read(format!("{run}.summary"))).unwrap(),
            tokens: serde_json::from_str(&read(format!("{run}.tokens"))).unwrap(),
            logits: Vec::new(),
        }
    });
    Some(finished.collect())
}
