//! A hub on a real socket: the API that tells commit and files, and files that are elsewhere behind
//! signed redirects, as on huggingface.co.

use crate::station::{Finished, binary, packed};
use crate::tiny_model::models;
use serde_json::json;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const TOKEN: &str = "hf_SECRET";
const RUN: [&str; 5] = ["--raw", "--ignore-eos", "--max-tokens", "8", "a prompt"];

/// One request: its target, and the token it carried.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    target: String,
    token: Option<String>,
}

/// A reply without its body's frame.
enum Reply {
    Json(String),
    Found(String),
    Status(u16),
    Object(Arc<Vec<u8>>),
}

/// A server on a thread of its own, that ends with the process.
struct Server {
    base: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || serve(&connection, &log, answer.as_ref()));
            }
        });
        Self { base, asked }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    connection: &TcpStream,
    log: &Mutex<Vec<Asked>>,
    answer: &(dyn Fn(&Asked) -> Reply + Send + Sync),
) {
    let mut lines = BufReader::new(connection).lines();
    loop {
        let Some(Ok(first)) = lines.next() else {
            return;
        };
        let mut headers = HashMap::new();
        loop {
            let Some(Ok(line)) = lines.next() else { return };
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let asked = Asked {
            target: first.split(' ').nth(1).unwrap().to_owned(),
            token: headers.get("authorization").cloned(),
        };
        log.lock().unwrap().push(asked.clone());
        let reply = frame(&answer(&asked), headers.get("range"));
        let mut connection = connection;
        if connection.write_all(&reply).is_err() {
            return;
        }
    }
}

fn frame(reply: &Reply, range: Option<&String>) -> Vec<u8> {
    match reply {
        Reply::Json(text) => format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
        .into_bytes(),
        Reply::Found(location) => {
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
                .into_bytes()
        }
        Reply::Status(status) => {
            format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n").into_bytes()
        }
        Reply::Object(bytes) => {
            let range = range.unwrap().strip_prefix("bytes=").unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let start: usize = start.parse().unwrap();
            let end = end.parse::<usize>().unwrap().min(bytes.len() - 1);
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\
                 Content-Range: bytes {start}-{end}/{}\r\nETag: \"x\"\r\n\r\n",
                end + 1 - start,
                bytes.len()
            );
            [head.as_bytes(), &bytes[start..=end]].concat()
        }
    }
}

/// A hub with these files at [`COMMIT`], which wants [`TOKEN`], and the CDN that has the bytes.
fn hub(files: &[(&str, Vec<u8>)]) -> (Server, Server) {
    let bytes: HashMap<String, Arc<Vec<u8>>> = files
        .iter()
        .map(|(name, bytes)| (format!("/{name}"), Arc::new(bytes.clone())))
        .collect();
    let cdn = Server::start(move |asked| {
        let path = asked.target.split('?').next().unwrap();
        bytes.get(path).map_or(Reply::Status(404), |object| {
            Reply::Object(Arc::clone(object))
        })
    });
    let names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
    let base = cdn.base.clone();
    let hub = Server::start(move |asked| {
        if asked.token.as_deref() != Some(&format!("Bearer {TOKEN}")) {
            return Reply::Status(401);
        }
        let siblings: Vec<_> = names
            .iter()
            .map(|name| json!({ "rfilename": name }))
            .collect();
        if ["main", "v1.0", "refs%2Fpr%2F3"]
            .iter()
            .any(|revision| asked.target == format!("/api/models/org/tiny/revision/{revision}"))
        {
            return Reply::Json(
                json!({ "id": "org/tiny", "sha": COMMIT, "siblings": siblings }).to_string(),
            );
        }
        match asked
            .target
            .strip_prefix(&format!("/org/tiny/resolve/{COMMIT}/"))
        {
            Some(name) if names.iter().any(|known| known == name) => {
                Reply::Found(format!("{base}/{name}?signature=SECRET"))
            }
            _ => Reply::Status(404),
        }
    });
    (hub, cdn)
}

/// A run with the hub's settings in the environment, and nothing of the tester's own.
fn run(rows: &str, knot: Option<&str>, environment: &[(&str, &str)]) -> Finished {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str| scratch.path().join(name);
    let mut command = binary();
    for name in [
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HF_TOKEN_PATH",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
    ] {
        command.env_remove(name);
    }
    command
        .env("HF_HOME", file("hf"))
        .envs(environment.iter().copied());
    command.args(["--columnar-embed", rows, "--embed-always-remote"]);
    if let Some(knot) = knot {
        command.args(["--knot", knot]);
    }
    command.arg("--cache-dir").arg(file("cache"));
    command
        .arg("--summary-file")
        .arg(file("summary.json"))
        .arg("run");
    command.arg("--tokens-file").arg(file("tokens.json"));
    command.arg("--logits-file").arg(file("logits.f32"));
    let output = command.args(RUN).output().unwrap();
    let text = |name: &str| std::fs::read_to_string(file(name)).unwrap_or("null".to_owned());
    Finished {
        text: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap(),
        summary: serde_json::from_str(&text("summary.json")).unwrap(),
        tokens: serde_json::from_str(&text("tokens.json")).unwrap_or_default(),
        logits: std::fs::read(file("logits.f32")).unwrap_or_default(),
    }
}

fn checkpoint() -> Vec<u8> {
    let folder = models().parent().unwrap().join("tied-source");
    std::fs::read(folder.join("model.safetensors")).unwrap()
}

fn dense() -> Finished {
    crate::station::run(&["--knot", &packed("tied.gkq")], &RUN).succeeded()
}

#[test]
fn a_repository_is_read_at_one_commit_and_the_token_stays_with_the_hub() {
    let knot = std::fs::read(packed("tied.gkq")).unwrap();
    let (hub, cdn) = hub(&[
        ("config.json", b"{}".to_vec()),
        ("model.safetensors", checkpoint()),
        ("tied.gkq", knot),
    ]);
    let dense = dense();
    let environment = [("HF_ENDPOINT", hub.base.as_str()), ("HF_TOKEN", TOKEN)];
    for reference in [
        "hf://org/tiny",
        "hf://org/tiny@v1.0",
        "hf://org/tiny@refs/pr/3/model.safetensors",
    ] {
        // No --knot: the repository has one.
        let finished = run(reference, None, &environment).succeeded();
        assert!(finished.logits == dense.logits, "{reference}");
        assert_eq!(finished.summary["embedding"]["source"], "columnar");
        assert!(!finished.stderr.contains("SECRET"), "{}", finished.stderr);
        assert!(!finished.summary.to_string().contains("SECRET"));
        let reason = finished.summary["resolutions"][0]["reason"]
            .as_str()
            .unwrap();
        assert!(
            reason.contains(COMMIT) && reason.contains("(safetensors)"),
            "{reason}"
        );
    }
    let asked = hub.asked();
    let api = |asked: &&Asked| asked.target.starts_with("/api/");
    assert_eq!(asked.iter().filter(api).count(), 3, "one question a start");
    let bearer = format!("Bearer {TOKEN}");
    assert!(
        asked
            .iter()
            .all(|asked| asked.token.as_ref() == Some(&bearer)),
        "{asked:?}"
    );
    for asked in asked.iter().filter(|asked| !api(asked)) {
        assert!(asked.target.contains(COMMIT), "{asked:?}");
    }
    let cdn = cdn.asked();
    assert!(
        cdn.iter()
            .any(|asked| asked.target.starts_with("/model.safetensors?"))
    );
    for asked in &cdn {
        assert_eq!(asked.token, None, "the token crossed hosts: {asked:?}");
    }
}

#[test]
fn a_sharded_repository_and_a_file_of_a_commit() {
    let index = json!({ "weight_map": { "model.embed_tokens.weight": "model-00001-of-00001.safetensors" } });
    let (hub, _cdn) = hub(&[
        (
            "model.safetensors.index.json",
            index.to_string().into_bytes(),
        ),
        ("model-00001-of-00001.safetensors", checkpoint()),
    ]);
    let dense = dense();
    let environment = [("HF_ENDPOINT", hub.base.as_str()), ("HF_TOKEN", TOKEN)];
    let knot = packed("tied.gkq");
    let finished = run("hf://org/tiny", Some(&knot), &environment).succeeded();
    assert!(finished.logits == dense.logits);
    assert_eq!(finished.summary["embedding"]["source"], "columnar");
    let before = hub.asked().len();
    let reference = format!("hf://org/tiny@{COMMIT}/model-00001-of-00001.safetensors");
    let finished = run(&reference, Some(&knot), &environment).succeeded();
    assert!(finished.logits == dense.logits);
    let asked = hub.asked();
    let api = asked[before..]
        .iter()
        .any(|asked| asked.target.starts_with("/api/"));
    assert!(!api, "a commit and a path need no question");
}

#[test]
fn offline_the_cache_is_read_and_nothing_asked() {
    let (hub, _cdn) = hub(&[("model.safetensors", checkpoint())]);
    let cache = tempfile::tempdir().unwrap();
    let repository = cache.path().join("models--org--tiny");
    let snapshot = repository.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), COMMIT).unwrap();
    std::fs::write(snapshot.join("model.safetensors"), checkpoint()).unwrap();
    let environment = [
        ("HF_ENDPOINT", hub.base.as_str()),
        ("HF_TOKEN", TOKEN),
        ("HF_HUB_CACHE", cache.path().to_str().unwrap()),
        ("HF_HUB_OFFLINE", "1"),
    ];
    let knot = packed("tied.gkq");
    let finished = run("hf://org/tiny", Some(&knot), &environment).succeeded();
    assert!(finished.logits == dense().logits);
    assert_eq!(finished.summary["embedding"]["source"], "columnar");
    assert_eq!(hub.asked(), []);
    let absent = run("hf://org/absent", Some(&knot), &environment);
    assert_eq!(absent.code, 64, "{}", absent.stderr);
    for part in ["hf://org/absent@main", "HF_HUB_OFFLINE"] {
        assert!(absent.stderr.contains(part), "{part}: {}", absent.stderr);
    }
    assert_eq!(hub.asked(), []);
}

#[test]
fn what_keeps_a_repository_away_is_said_with_what_to_set() {
    let (hub, _cdn) = hub(&[("README.md", Vec::new()), ("q4.gguf", vec![0; 8])]);
    let knot = packed("tied.gkq");
    let endpoint = ("HF_ENDPOINT", hub.base.as_str());
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = format!("http://{nobody}");
    let page = Server::start(|_| Reply::Json("<html>".to_owned()));
    for (reference, environment, code, parts) in [
        (
            "hf://org/tiny",
            vec![endpoint],
            67,
            &["hf://org/tiny@main", "HF_TOKEN"][..],
        ),
        (
            "hf://org/absent",
            vec![endpoint, ("HF_TOKEN", TOKEN)],
            65,
            &[
                "hf://org/absent@main",
                "no such repository",
                hub.base.as_str(),
            ],
        ),
        (
            "hf://org/tiny@v9",
            vec![endpoint, ("HF_TOKEN", TOKEN)],
            65,
            &["hf://org/tiny@v9", "no such repository or revision"],
        ),
        (
            "hf://org/tiny",
            vec![endpoint, ("HF_TOKEN", TOKEN)],
            64,
            &["neither model.safetensors nor", "q4.gguf"],
        ),
        (
            "hf://org/tiny",
            vec![("HF_ENDPOINT", nobody.as_str())],
            65,
            &["HF_ENDPOINT", "HF_HUB_OFFLINE=1", nobody.as_str()],
        ),
        (
            "hf://org/tiny",
            vec![("HF_ENDPOINT", page.base.as_str())],
            64,
            &["is HF_ENDPOINT a hub?"],
        ),
        (
            "hf://org/tiny",
            vec![("HF_ENDPOINT", "not a url")],
            64,
            &["HF_ENDPOINT"],
        ),
        (
            "hf://org/tiny",
            vec![endpoint, ("HF_TOKEN", "hf_SECRET with blanks")],
            64,
            &["HF_TOKEN"],
        ),
        (
            "hf://org",
            vec![endpoint],
            64,
            &["hf://ORG/NAME[@REV][/path]"],
        ),
    ] {
        let finished = run(reference, Some(&knot), &environment);
        assert_eq!(finished.code, code, "{reference}: {}", finished.stderr);
        for part in parts {
            assert!(
                finished.stderr.contains(part),
                "{part}: {}",
                finished.stderr
            );
        }
        assert!(!finished.stderr.contains("SECRET"), "{}", finished.stderr);
    }
}
