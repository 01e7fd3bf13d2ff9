//! The server's rules over HTTP/1.1, on real sockets and byte by byte.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use fat_origin::serve::{ServeOptions, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A served directory, with its access log beside it.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) log: PathBuf,
    pub(crate) server: Server,
}

pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 31 + index / 251) as u8)
        .collect()
}

impl Site {
    /// `x.rows` of 1,000 bytes, `big.bin` of 300,001, `empty`, and a link that leaves the directory.
    pub(crate) async fn start(edit: impl FnOnce(&mut ServeOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("site");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("x.rows"), content(1_000)).unwrap();
        std::fs::write(root.join("big.bin"), content(300_001)).unwrap();
        std::fs::write(root.join("empty"), []).unwrap();
        std::fs::write(root.join("sub/y z.gkq"), b"inner").unwrap();
        std::fs::write(root.join(".hidden"), b"secret").unwrap();
        std::fs::write(dir.path().join("outside"), b"secret").unwrap();
        std::os::unix::fs::symlink(dir.path().join("outside"), root.join("escape")).unwrap();
        std::os::unix::fs::symlink("x.rows", root.join("alias")).unwrap();
        std::os::unix::fs::symlink(".hidden", root.join("shown")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let log = dir.path().join("access.jsonl");
        let mut options = ServeOptions {
            access_log: Some(log.clone()),
            ..ServeOptions::new(root)
        };
        edit(&mut options);
        Self {
            dir,
            log,
            server: Server::start(options).await.unwrap(),
        }
    }

    pub(crate) fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    async fn ask(&self, request: &str) -> Reply {
        exchange(self.server.local_addr(), request).await
    }

    /// A GET with these header lines.
    async fn get(&self, path: &str, headers: &[&str]) -> Reply {
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{lines}\r\n"
        ))
        .await
    }
}

struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| {
            line.split_once(':')
                .is_some_and(|(known, _)| known.eq_ignore_ascii_case(name))
        })?;
        line.split_once(':').map(|(_, value)| value.trim())
    }

    #[track_caller]
    fn is(&self, status: u16, content_range: Option<&str>, body: &[u8]) {
        assert_eq!(self.status, status, "{}", self.head);
        assert_eq!(self.header("content-range"), content_range);
        assert_eq!(self.body, body);
        assert_eq!(
            self.header("content-length"),
            Some(body.len().to_string().as_str())
        );
    }
}

/// Sends bytes, reads until the server closes.
async fn exchange(address: SocketAddr, request: &str) -> Reply {
    let request = request.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a whole head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply {
            status,
            head,
            body: bytes[end + 4..].to_vec(),
        }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn single_ranges_give_exactly_what_was_asked() {
    let site = Site::start(|_| {}).await;
    let all = content(1_000);
    site.get("/x.rows", &[]).await.is(200, None, &all);
    site.get("/x.rows", &["range: bytes=0-9"])
        .await
        .is(206, Some("bytes 0-9/1000"), &all[..10]);
    site.get("/x.rows", &["range: bytes=990-2000"]).await.is(
        206,
        Some("bytes 990-999/1000"),
        &all[990..],
    );
    site.get("/x.rows", &["range: bytes=-3"]).await.is(
        206,
        Some("bytes 997-999/1000"),
        &all[997..],
    );
    let reply = site.get("/big.bin", &["range: bytes=1-300000"]).await;
    reply.is(206, Some("bytes 1-300000/300001"), &content(300_001)[1..]);
    assert_eq!(reply.header("accept-ranges"), Some("bytes"));
    assert_eq!(
        reply.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(reply.header("cache-control"), Some("no-transform"));
    assert_eq!(reply.header("content-encoding"), None);
    let gzip = site
        .get(
            "/x.rows",
            &["accept-encoding: gzip, br", "range: bytes=0-9"],
        )
        .await;
    gzip.is(206, Some("bytes 0-9/1000"), &all[..10]);
    assert_eq!(
        gzip.header("content-encoding"),
        None,
        "identity, whatever is accepted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_cannot_be_met_say_the_length() {
    let site = Site::start(|_| {}).await;
    for (path, range, len) in [
        ("/x.rows", "bytes=1000-", 1_000),
        ("/x.rows", "bytes=9-0", 1_000),
        ("/x.rows", "bytes=x", 1_000),
        ("/x.rows", "bytes=0-999,0-999", 1_000),
        ("/empty", "bytes=0-0", 0),
    ] {
        let reply = site.get(path, &[&format!("range: {range}")]).await;
        reply.is(
            416,
            Some(format!("bytes */{len}").as_str()),
            b"range not satisfiable\n",
        );
    }
    let two = site
        .get("/x.rows", &["range: bytes=0-1", "range: bytes=5-6"])
        .await;
    assert_eq!(two.status, 416);
    site.get("/empty", &[]).await.is(200, None, b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_ranges_come_as_multipart_in_the_order_asked() {
    let site = Site::start(|_| {}).await;
    let all = content(1_000);
    let reply = site
        .get("/x.rows", &["range: bytes=500-509, 0-1,990-2000"])
        .await;
    assert_eq!(reply.status, 206);
    assert_eq!(reply.header("content-range"), None);
    assert_eq!(
        reply.header("content-length"),
        Some(reply.body.len().to_string().as_str())
    );
    let boundary = reply
        .header("content-type")
        .unwrap()
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let mut expected: Vec<u8> = Vec::new();
    for (first, last) in [(500, 509), (0, 1), (990, 999)] {
        let line_end = if expected.is_empty() { "" } else { "\r\n" };
        let head =
            format!("{line_end}--{boundary}\r\nContent-Range: bytes {first}-{last}/1000\r\n\r\n");
        expected.extend(head.as_bytes());
        expected.extend(&all[first..=last]);
    }
    expected.extend(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert_eq!(reply.body, expected);
    // One of two outside leaves one, and one needs no multipart.
    site.get("/x.rows", &["range: bytes=0-4,5000-"]).await.is(
        206,
        Some("bytes 0-4/1000"),
        &all[..5],
    );
    let log = site.log();
    assert_eq!(
        log[0]["body_bytes_sent"],
        json!(reply.body.len()),
        "framing is counted too"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tag_is_strong_and_follows_the_file() {
    let site = Site::start(|_| {}).await;
    let all = content(1_000);
    let etag = site
        .get("/x.rows", &[])
        .await
        .header("etag")
        .unwrap()
        .to_owned();
    assert!(
        etag.starts_with('"') && etag.ends_with('"') && etag.len() > 20,
        "{etag}"
    );
    assert_eq!(
        site.get("/x.rows", &["range: bytes=0-0"])
            .await
            .header("etag"),
        Some(etag.as_str())
    );
    assert_eq!(
        site.get("/alias", &[]).await.header("etag"),
        Some(etag.as_str()),
        "one file, one tag"
    );

    let header = |name: &str, value: &str| format!("{name}: {value}");
    let matched = header("if-match", &etag);
    let range = "range: bytes=0-9";
    site.get("/x.rows", &[range, &matched])
        .await
        .is(206, Some("bytes 0-9/1000"), &all[..10]);
    site.get("/x.rows", &[range, "if-match: \"other\""])
        .await
        .is(412, None, b"the object has changed\n");
    site.get("/x.rows", &[range, &header("if-range", &etag)])
        .await
        .is(206, Some("bytes 0-9/1000"), &all[..10]);
    site.get("/x.rows", &[range, "if-range: \"other\""])
        .await
        .is(200, None, &all);
    let unchanged = site
        .get("/x.rows", &[&header("if-none-match", &etag)])
        .await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));

    // Same length, other content: another version.
    std::fs::write(site.dir.path().join("new"), vec![9; 1_000]).unwrap();
    std::fs::rename(
        site.dir.path().join("new"),
        site.dir.path().join("site/x.rows"),
    )
    .unwrap();
    let changed = site.get("/x.rows", &[range, &matched]).await;
    assert_eq!(changed.status, 412);
    assert_ne!(changed.header("etag"), Some(etag.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn head_has_the_headers_and_no_body() {
    let site = Site::start(|_| {}).await;
    let head = "HEAD /x.rows HTTP/1.1\r\nhost: t\r\nconnection: close\r\nrange: bytes=0-9\r\n\r\n";
    let reply = site.ask(head).await;
    assert_eq!(
        (reply.status, reply.body.len()),
        (200, 0),
        "HEAD has no ranges"
    );
    assert_eq!(reply.header("content-length"), Some("1000"));
    assert!(reply.header("etag").is_some());
    let missing = site
        .ask("HEAD /none HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!((missing.status, missing.body.len()), (404, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outside_the_directory_is_served() {
    let site = Site::start(|_| {}).await;
    site.get("/sub/y%20z.gkq", &[])
        .await
        .is(200, None, b"inner");
    for (path, status) in [
        ("/../outside", 400),
        ("/%2e%2e/outside", 400),
        ("/sub/../../outside", 400),
        ("/..%2foutside", 400),
        ("//outside", 400),
        ("/.hidden", 400),
        ("/escape", 403),
        ("/shown", 400),
        ("/loop", 404),
        ("/sub", 404),
        ("/none", 404),
        ("/x.rows/", 400),
        ("/x.rows/y", 404),
        ("/", 400),
    ] {
        let reply = site.get(path, &[]).await;
        assert_eq!(reply.status, status, "{path}");
        assert!(
            !reply.body.windows(6).any(|window| window == b"secret"),
            "{path}"
        );
    }
    let post = site
        .ask("POST /x.rows HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        .await;
    assert_eq!(
        (post.status, post.header("allow")),
        (405, Some("GET, HEAD"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_has_a_line_before_the_reply_is_whole() {
    let site = Site::start(|_| {}).await;
    site.get("/x.rows?signature=secret", &["range: bytes=0-9"])
        .await;
    let mut line = site.log().remove(0);
    assert!(line["time_ms"].as_u64().unwrap() > 1_600_000_000_000);
    line["time_ms"] = json!(0);
    assert_eq!(
        line,
        json!({
            "time_ms": 0, "method": "GET", "path": "/x.rows", "range": "bytes=0-9", "status": 206,
            "body_bytes_sent": 10, "protocol": "HTTP/1.1",
        })
    );
    site.get("/none", &[]).await;
    site.ask("HEAD /x.rows HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
        .await;
    let log = site.log();
    let facts = |line: &Value| {
        (
            line["status"].clone(),
            line["body_bytes_sent"].clone(),
            line["range"].clone(),
        )
    };
    assert_eq!(
        facts(&log[1]),
        (json!(404), json!("no such object\n".len()), Value::Null)
    );
    assert_eq!(facts(&log[2]), (json!(200), json!(0), Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_not_taken_is_counted_only_as_far_as_it_went() {
    let site = Site::start(|_| {}).await;
    let big = site.dir.path().join("site/huge.bin");
    std::fs::File::create(&big)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let address = site.server.local_addr();
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /huge.bin HTTP/1.1\r\nhost: t\r\n\r\n")
            .unwrap();
        let mut first = [0; 1_000];
        stream.read_exact(&mut first).unwrap();
    })
    .await
    .unwrap();
    // The server learns of the closed socket by itself; the line is what is waited for.
    let line = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match site.log().pop() {
                Some(line) => break line,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
    let sent = line.await.unwrap()["body_bytes_sent"].as_u64().unwrap();
    assert!(sent < 1 << 28, "{sent} bytes cannot have been sent");
}
