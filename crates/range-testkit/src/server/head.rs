//! How the head of a reply goes out: what comes before it, how fast, how far, and what lies behind the body.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;

use super::answer::{After, Reply};
use crate::Fault;

/// What no HTTP client can read.
const GARBAGE: &[u8] = b"\x16\x03\x01 this is no HTTP \x00\xff\r\n\r\n";

/// The parts of a fault that concern the head.
pub(super) struct HeadStyle {
    /// Interim replies.
    before: String,
    version: &'static str,
    fields: Vec<(String, String)>,
    garbage: bool,
    delay: Duration,
    drip: Option<(usize, Duration)>,
    cut: Option<(u64, After)>,
    /// Goes out behind the body.
    pub(super) behind: Vec<u8>,
}

impl HeadStyle {
    pub(super) fn of(fault: &Fault) -> Self {
        let mut style = Self {
            before: String::new(),
            version: "1.1",
            fields: Vec::new(),
            garbage: false,
            delay: Duration::ZERO,
            drip: None,
            cut: None,
            behind: Vec::new(),
        };
        for part in fault.parts() {
            match part {
                Fault::Interim { code, times } => {
                    let one = format!("HTTP/1.1 {code} Interim\r\nLink: </x>\r\n\r\n");
                    style.before = one.repeat(usize::try_from(*times).unwrap_or(0));
                }
                Fault::Http10 => style.version = "1.0",
                Fault::Fields(fields) => style.fields.extend(fields.iter().cloned()),
                Fault::Garbage => style.garbage = true,
                Fault::Delay(pause) => style.delay = *pause,
                Fault::SlowHead { piece_bytes, pause } => {
                    let piece_bytes = usize::try_from(*piece_bytes).unwrap_or(1).max(1);
                    style.drip = Some((piece_bytes, *pause));
                }
                Fault::TruncateHead { after_head_bytes } => {
                    style.cut = Some((*after_head_bytes, After::Close));
                }
                Fault::ResetHead { after_head_bytes } => {
                    style.cut = Some((*after_head_bytes, After::Reset));
                }
                Fault::RequestTimeout => {
                    let notice = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\
                                  Connection: close\r\n\r\n";
                    style.behind = notice.into();
                }
                _ => {}
            }
        }
        style
    }

    /// Writes the head; what follows if the script ends the reply with it.
    pub(super) async fn write(
        &self,
        reply: &Reply,
        writing: &mut WriteHalf<'_>,
    ) -> std::io::Result<Option<After>> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if self.garbage {
            writing.write_all(GARBAGE).await?;
            return Ok(Some(After::Close));
        }
        writing.write_all(self.before.as_bytes()).await?;
        let mut text = format!("HTTP/{} {} Scripted\r\n", self.version, reply.status);
        let fields = reply.fields.iter().map(|(name, value)| (*name, value));
        let added = self
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), value));
        for (name, value) in fields.chain(added) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let mut head = text.as_bytes();
        if let Some((bytes, after)) = self.cut {
            let end = usize::try_from(bytes).unwrap_or(usize::MAX).min(head.len());
            writing.write_all(&head[..end]).await?;
            return Ok(Some(after));
        }
        if let Some((piece_bytes, pause)) = self.drip {
            for piece in head.chunks(piece_bytes) {
                tokio::time::sleep(pause).await;
                writing.write_all(piece).await?;
            }
            head = &[];
        }
        writing.write_all(head).await?;
        Ok(None)
    }
}
