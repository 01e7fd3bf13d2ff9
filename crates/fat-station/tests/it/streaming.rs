//! A remote knot through cut, killed and concurrent starts: what is asked again, by the origin's log.

use crate::station::{Finished, Origin, binary, packed, run};
use gkq_v2::{Block, Knot};
use range_testkit::{Fault, FaultServer, LogEntry, Object, Script};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RUN: [&str; 4] = ["--raw", "--max-tokens", "4", "abc"];

/// Where the reply with the head stops.
const STALL_BYTES: u64 = 500_000;

/// Most bytes of a block that a killed station had not written.
const UNWRITTEN_BYTES: u64 = 256 << 10;

fn object(name: &str) -> Object {
    Object::bytes(std::fs::read(packed(name)).unwrap())
}

/// The tied head: the matrix, the one large block.
fn head(name: &str) -> Block {
    let bytes = std::fs::read(packed(name)).unwrap();
    let knot = Knot::parse(&bytes, bytes.len() as u64).unwrap();
    knot.block("model.embed_tokens.weight").unwrap().clone()
}

fn bytes(block: &Block) -> u64 {
    block.payload.end - block.payload.start
}

/// An origin of `name`'s knot and rows that does what its script says.
struct Scripted {
    server: FaultServer,
    /// The server's tasks end with it.
    _runtime: tokio::runtime::Runtime,
}

impl Scripted {
    fn start(name: &str, script: Script) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let knot = object(&format!("{name}.gkq"));
        let server = runtime.block_on(FaultServer::start("/m.gkq", knot, script));
        let server = server.unwrap();
        server.put("/m.rows", object(&format!("{name}.rows")));
        Self {
            server,
            _runtime: runtime,
        }
    }

    fn rows(&self) -> String {
        self.server.url("/m.rows")
    }

    /// Requests for bytes of the head, as (first byte, end).
    fn head_ranges(&self, head: &Block) -> Vec<(u64, u64)> {
        let entries = self.server.log().entries();
        let ranges = entries
            .iter()
            .filter(|entry| entry.path == "/m.gkq")
            .map(range);
        ranges
            .filter(|(start, end)| *start >= head.payload.start && *end <= head.payload.end)
            .collect()
    }

    fn run(&self, cache: &Path) -> Finished {
        run(
            &[
                "--columnar-embed",
                &self.rows(),
                "--cache-dir",
                cache.to_str().unwrap(),
            ],
            &RUN,
        )
    }

    fn spawn(&self, cache: &Path) -> Child {
        let mut command = binary();
        command
            .args(["--columnar-embed", &self.rows(), "--cache-dir"])
            .arg(cache)
            .arg("run")
            .args(RUN)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    }
}

fn range(entry: &LogEntry) -> (u64, u64) {
    let range = entry
        .range
        .as_deref()
        .unwrap()
        .strip_prefix("bytes=")
        .unwrap();
    let (first, last) = range.split_once('-').unwrap();
    (first.parse().unwrap(), last.parse::<u64>().unwrap() + 1)
}

fn partial(cache: &Path, block: &Block) -> PathBuf {
    let digest = blake3::Hash::from_bytes(block.blake3);
    cache.join("blocks").join(format!("partial-{digest}"))
}

fn written(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Waits for a state that a child brings about; fails instead of hanging.
#[track_caller]
fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

/// An origin of the tied model whose replies with the head or a part of it meet `faults`.
fn faults_in_the_head(faults: impl Into<Vec<Fault>>) -> Scripted {
    Scripted::start("tied", Script::of_bytes(head("tied.gkq").payload, faults))
}

/// An origin that stops in the middle of the head and answers nothing after that.
fn stalling_in_the_head() -> Scripted {
    let stall = Fault::Stall {
        after_body_bytes: STALL_BYTES,
    };
    let mut faults = vec![Fault::Silence; 20];
    faults.insert(0, stall);
    faults_in_the_head(faults)
}

/// Blocks of the tied model, two layers of nine tensors and the final norm, and its tokenizer.
const BEFORE_THE_HEAD: usize = 2 * 9 + 1 + 1;

/// Whole blocks in a cache.
fn kept(cache: &Path) -> usize {
    let blocks = std::fs::read_dir(cache.join("blocks"));
    let names = blocks.into_iter().flatten().flatten();
    names.filter(|entry| entry.file_name().len() == 64).count()
}

/// Starts a station whose head stalls, and ends it by `signal` once a part of the head is on disk.
/// Returns how much of it is.
fn interrupted(origin: &Scripted, cache: &Path, head: &Block, signal: &str) -> u64 {
    let mut child = origin.spawn(cache);
    let partial = partial(cache, head);
    until("a part of the head and all the rest is on disk", || {
        written(&partial) >= UNWRITTEN_BYTES && kept(cache) == BEFORE_THE_HEAD
    });
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    assert!(!child.wait().unwrap().success());
    written(&partial)
}

#[test]
fn a_killed_start_is_taken_up_at_the_next_byte() {
    let expected = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    let head = head("tied.gkq");
    for signal in ["-KILL", "-INT"] {
        let cache = tempfile::tempdir().unwrap();
        let origin = stalling_in_the_head();
        let have = interrupted(&origin, cache.path(), &head, signal);
        assert!(have < bytes(&head), "the head was not whole yet");
        let before = origin.head_ranges(&head);
        assert_eq!(
            before.first(),
            Some(&(head.payload.start, head.payload.end))
        );

        origin.server.set_script(Script::honest());
        let second = origin.run(cache.path()).succeeded();
        assert!(second.logits == expected.logits, "{signal}");
        let after = origin.head_ranges(&head).split_off(before.len());
        assert_eq!(
            after,
            [(head.payload.start + have, head.payload.end)],
            "{signal}: only what is missing is asked"
        );
        assert_eq!(
            second.number("/bytes/blocks/received"),
            0,
            "{signal}: nothing that was verified comes again"
        );
        let came_again = second.number("/bytes/head/received");
        assert_eq!(came_again, bytes(&head) - have, "{signal}");
        // Both starts together: the head, and at most the tail that was in memory.
        assert!(
            STALL_BYTES + came_again < bytes(&head) + UNWRITTEN_BYTES,
            "{signal}: {have} bytes were on disk"
        );
        assert!(!partial(cache.path(), &head).exists());
    }
}

#[test]
fn what_a_killed_start_left_of_a_replaced_object_is_not_used() {
    let cache = tempfile::tempdir().unwrap();
    let origin = stalling_in_the_head();
    interrupted(&origin, cache.path(), &head("tied.gkq"), "-KILL");
    // The same names, lengths and shapes, other weights.
    for ending in ["gkq", "rows"] {
        let other = object(&format!("other.{ending}")).with_etag("\"v2\"");
        origin.server.put(&format!("/m.{ending}"), other);
    }
    origin.server.set_script(Script::honest());
    let asked = origin.server.log().len();
    let second = origin.run(cache.path()).succeeded();
    let expected = run(&["--knot", &packed("other.gkq")], &RUN).succeeded();
    assert!(second.logits == expected.logits);
    let other = head("other.gkq");
    let entries = origin.server.log().entries().split_off(asked);
    let of_head = entries
        .iter()
        .filter(|entry| entry.path == "/m.gkq")
        .map(range);
    let of_head: Vec<_> = of_head
        .filter(|(start, _)| *start >= other.payload.start)
        .collect();
    assert_eq!(of_head, [(other.payload.start, other.payload.end)]);
}

#[test]
fn a_partial_with_wrong_bytes_costs_a_transfer_not_the_start() {
    let head = head("tied.gkq");
    let cache = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(cache.path().join("blocks")).unwrap();
    std::fs::write(partial(cache.path(), &head), vec![7; 123_456]).unwrap();
    let origin = Scripted::start("tied", Script::honest());
    let finished = origin.run(cache.path()).succeeded();
    let expected = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    assert!(finished.logits == expected.logits);
    let whole = (head.payload.start, head.payload.end);
    let rest = (head.payload.start + 123_456, head.payload.end);
    assert_eq!(origin.head_ranges(&head), [rest, whole]);
    assert_eq!(finished.number("/integrity_failures"), 0);
    assert!(
        finished.stderr.contains("earlier start"),
        "{}",
        finished.stderr
    );
}

#[test]
fn starts_at_once_ask_for_each_block_once() {
    let expected = {
        let origin = Origin::start();
        let rows = origin.url("tied.rows");
        run(&["--columnar-embed", &rows], &RUN).succeeded()
    };
    let cache = tempfile::tempdir().unwrap();
    let cache_dir = cache.path().to_str().unwrap();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let flags = ["--columnar-embed", &rows, "--cache-dir", cache_dir];
    let finished: Vec<Finished> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..3).map(|_| scope.spawn(|| run(&flags, &RUN))).collect();
        let ended = starts
            .into_iter()
            .map(|start| start.join().unwrap().succeeded());
        ended.collect()
    });
    for path in ["/bytes/blocks/useful", "/bytes/head/useful"] {
        let together: u64 = finished.iter().map(|start| start.number(path)).sum();
        assert_eq!(together, expected.number(path), "{path}");
    }
    for start in &finished {
        assert!(start.logits == expected.logits);
    }
    let left = std::fs::read_dir(cache.path().join("blocks")).unwrap();
    let left: Vec<String> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.len() != 64 && name != "eviction.lock")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_cache_limit_is_kept_and_costs_no_answer() {
    let cache = tempfile::tempdir().unwrap();
    let cache_dir = cache.path().to_str().unwrap();
    let origin = Origin::start();
    let rows = origin.url("tied.rows");
    let held = || -> u64 {
        let blocks = std::fs::read_dir(cache.path().join("blocks")).unwrap();
        blocks
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    };
    let expected = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    for (limit, warns, second_moves) in [("100kB", true, true), ("1MB", false, false)] {
        let flags = [
            "--columnar-embed",
            &rows,
            "--cache-dir",
            cache_dir,
            "--cache-limit",
            limit,
        ];
        let first = run(&flags, &RUN).succeeded();
        let second = run(&flags, &RUN).succeeded();
        assert!(first.logits == expected.logits && second.logits == expected.logits);
        assert_eq!(
            first.stderr.contains("--cache-limit"),
            warns,
            "{}",
            first.stderr
        );
        assert_eq!(
            second.number("/bytes/head/received") > 0,
            second_moves,
            "{limit}"
        );
        if warns {
            assert!(held() <= 100_000, "{}", held());
        }
    }
    // Another model needs the room: what is older goes.
    let flags = [
        "--columnar-embed",
        &origin.url("other.rows"),
        "--cache-dir",
        cache_dir,
        "--cache-limit",
        "1MB",
    ];
    run(&flags, &RUN).succeeded();
    assert!(held() <= 1_000_000, "{}", held());
}

/// Lines of a station's log, as they come.
fn log_lines(origin: &Scripted, cache: &Path) -> (Child, impl Iterator<Item = String>) {
    use std::io::BufRead as _;
    let mut command = binary();
    command
        .args(["--log", "debug", "--columnar-embed", &origin.rows()])
        .arg("--cache-dir")
        .arg(cache)
        .arg("run")
        .args(RUN)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    (child, stderr.lines().map(Result::unwrap))
}

#[test]
fn the_prompt_is_computed_while_the_head_arrives_and_its_logits_begin() {
    let cache = tempfile::tempdir().unwrap();
    let origin = stalling_in_the_head();
    let head = head("tied.gkq");
    let (mut child, mut lines) = log_lines(&origin, cache.path());
    // Logits need the prompt's last hidden state. The other half of the head never comes.
    let begun = lines.any(|line| line.contains("logits of early rows"));
    let have = written(&partial(cache.path(), &head));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(begun);
    assert!(have < bytes(&head), "{have}");
}

#[test]
fn a_layer_is_computed_while_the_next_one_is_still_away() {
    // All layers come with one reply, as they are small: it stops behind the first of them.
    let bytes = std::fs::read(packed("tied.gkq")).unwrap();
    let knot = Knot::parse(&bytes, bytes.len() as u64).unwrap();
    let of = |layer: &str| {
        let named = |block: &&Block| block.name.starts_with(layer);
        let blocks = knot.blocks().iter().filter(named);
        let payloads = blocks.map(|block| block.payload.clone());
        payloads
            .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
            .unwrap()
    };
    let (first, second) = (of("model.layers.0."), of("model.layers.1."));
    let layers = first.start..of("model.norm.").end;
    assert!(first.end <= second.start);
    let stall = Fault::Stall {
        after_body_bytes: second.start + 1_000 - first.start,
    };
    let origin = Scripted::start("tied", Script::of_bytes(layers, [stall]));
    let cache = tempfile::tempdir().unwrap();
    let (mut child, mut lines) = log_lines(&origin, cache.path());
    let computed = lines.find(|line| line.contains("computed")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(computed.contains("stages=1"), "{computed}");
}

/// Wrong bytes are used on the way and leave nothing: the head is read once more.
#[test]
fn rows_of_a_head_that_turns_out_wrong_leave_no_trace() {
    let expected = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    for fault in [
        Fault::Shift(64),
        Fault::Truncate {
            after_body_bytes: STALL_BYTES,
        },
    ] {
        let wrong = matches!(fault, Fault::Shift(_));
        let cache = tempfile::tempdir().unwrap();
        let origin = faults_in_the_head([fault]);
        let finished = origin.run(cache.path()).succeeded();
        assert!(finished.logits == expected.logits);
        assert_eq!(finished.number("/integrity_failures"), u64::from(wrong));
    }
}
