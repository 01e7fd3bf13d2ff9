//! The head of a request, as far as a range server needs it. Not a general HTTP parser.

use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::tcp::ReadHalf;

/// A longer head ends the connection.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Request line and fields.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) target: String,
    fields: Vec<(String, String)>,
}

impl RequestHead {
    /// Reads one head; `None` if the peer closed between requests or sent none.
    pub(crate) async fn read(
        reader: &mut BufReader<ReadHalf<'_>>,
    ) -> std::io::Result<Option<Self>> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= MAX_HEAD_BYTES {
                return Ok(None);
            }
            match reader.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Self::parse(&String::from_utf8_lossy(&head)))
    }

    fn parse(head: &str) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let fields = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Some(Self {
            method,
            target,
            fields,
        })
    }

    /// The head as a proxy hands it on: path in place of URL, nothing that was for the proxy.
    pub(crate) fn in_origin_form(&self) -> String {
        let rest = self.target.split_once("://").map_or("", |(_, rest)| rest);
        let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
        let mut text = format!("{} {path} HTTP/1.1\r\n", self.method);
        for (name, value) in &self.fields {
            if name != "proxy-authorization" {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        text + "\r\n"
    }

    /// The target without its query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A field's value, by lower-case name.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        self.fields
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.clone())
    }

    /// `bytes=first-last` as a half-open range; `None` for several.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        match self.ranges()[..] {
            [range] => Some(range),
            _ => None,
        }
    }

    /// All of `bytes=first-last,first-last` as half-open ranges; none if one is malformed.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let value = self.field("range").unwrap_or_default();
        let texts = value.strip_prefix("bytes=").unwrap_or_default().split(',');
        let range = |text: &str| {
            let (first, last) = text.split_once('-')?;
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            Some((first, last.checked_add(1)?))
        };
        texts.map(range).collect::<Option<_>>().unwrap_or_default()
    }
}
