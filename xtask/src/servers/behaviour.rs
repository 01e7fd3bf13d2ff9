//! What a server answers to the requests that matter for rows, in words for the page.

use anyhow::{Context, Result, ensure};

use super::ask::{self, Answer};

/// Bytes of the object that is asked for.
const PROBE_BYTES: u32 = 1 << 20;

/// The object: no two ranges of it are alike for as far as a test looks (a multiplicative hash of the position).
pub(super) fn probe_object() -> Vec<u8> {
    (0..PROBE_BYTES)
        .map(|position| position.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

/// Answers of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behaviour {
    pub(super) single: String,
    pub(super) suffix: String,
    /// To 2, 10 and 64 ranges in one request.
    pub(super) several: String,
    pub(super) wrong_if_match: String,
    pub(super) beyond_the_end: String,
    pub(super) gzip_offered: String,
}

/// Asks for the object at `url`.
///
/// # Errors
/// If the server does not answer, or answers a single range with bytes that are not its bytes.
pub(super) fn of(url: &str) -> Result<Behaviour> {
    let object = probe_object();
    let range = |value: &str| ask::get(url, &[("Range", value)]);
    let single = content(&range("bytes=1000-1009")?, object.get(1000..1010))?;
    let suffix = content(&range("bytes=-10")?, object.get(object.len() - 10..))?;
    let mut several = Vec::new();
    for count in [2, 10, 64] {
        several.push(parts(&range(&scattered(count))?, count));
    }
    several.dedup();
    let wrong = ask::get(
        url,
        &[("Range", "bytes=0-9"), ("If-Match", "\"another-version\"")],
    )?;
    let beyond = range("bytes=2000000-2000009")?;
    let known = match (beyond.status, beyond.header("content-range")) {
        (416, None) => ", no length",
        _ => "",
    };
    let gzip = ask::get(url, &[("Range", "bytes=0-9"), ("Accept-Encoding", "gzip")])?;
    Ok(Behaviour {
        single,
        suffix,
        several: several.join("; "),
        wrong_if_match: match wrong.status {
            412 => "412".to_owned(),
            206 => "ignored".to_owned(),
            other => other.to_string(),
        },
        beyond_the_end: format!("{}{known}", beyond.status),
        gzip_offered: match gzip.header("content-encoding") {
            None => format!("{} as it is", gzip.status),
            Some(coding) => format!("{} {coding}", gzip.status),
        },
    })
}

/// Ten bytes each, far enough apart that no server merges them.
fn scattered(count: usize) -> String {
    let ranges: Vec<String> = (0..count)
        .map(|index| format!("{}-{}", index * 10_000, index * 10_000 + 9))
        .collect();
    format!("bytes={}", ranges.join(","))
}

fn content(answer: &Answer, expected: Option<&[u8]>) -> Result<String> {
    let expected = expected.context("a range outside of the probe object")?;
    match answer.status {
        206 => {
            ensure!(
                answer.body == expected,
                "a range of the probe object came with other bytes"
            );
            Ok("206".to_owned())
        }
        200 => Ok("200, everything".to_owned()),
        other => Ok(other.to_string()),
    }
}

/// How several ranges were answered.
fn parts(answer: &Answer, asked: usize) -> String {
    let is_multipart = answer
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("multipart/byteranges"));
    if answer.status == 200 {
        return "200, everything".to_owned();
    }
    if answer.status != 206 {
        return answer.status.to_string();
    }
    if !is_multipart {
        return "206, one range".to_owned();
    }
    let heads = answer.body.to_ascii_lowercase();
    let mark = b"\r\ncontent-range:";
    let found = heads
        .windows(mark.len())
        .filter(|window| window == mark)
        .count();
    if found == asked {
        "206, each".to_owned()
    } else {
        format!("206, {found} of {asked}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multipart(parts: usize) -> Answer {
        let body: String = (0..parts)
            .map(|part| format!("--b\r\nContent-Range: bytes {part}-{part}/9\r\n\r\nx\r\n"))
            .collect();
        let reply = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=b\r\n\r\n{body}"
        );
        ask::parsed(reply.as_bytes()).unwrap_or_else(|| unreachable!("a reply made above"))
    }

    #[test]
    fn parts_are_counted_by_their_content_range() {
        assert_eq!(parts(&multipart(10), 10), "206, each");
        assert_eq!(parts(&multipart(10), 64), "206, 10 of 64");
    }

    #[test]
    fn the_probe_object_differs_at_the_ranges_asked_for() {
        let object = probe_object();
        let first = &object[..10];
        for index in 1..64 {
            assert_ne!(&object[index * 10_000..index * 10_000 + 10], first);
        }
    }
}
