//! The front of a GGUF, number by number, over ranged reads: a window that moves forwards and forgets
//! what it has passed. Every count and length is compared with the bytes that are left before
//! anything is done for it.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "bytes from strangers are parsed here: every step is checked"
)]

use bytes::{Buf, Bytes};

use super::super::{Container, Front};
use super::MAX_TEXT_BYTES;
use crate::Error;

/// First piece behind the prefix; each further one is twice as long.
const FIRST_PIECE_BYTES: u64 = 256 * 1024;
/// Longest piece: what is read beyond the end of the front is at most this.
const MAX_PIECE_BYTES: u64 = 2 * 1024 * 1024;
/// Most that is fetched of one front. Vocabularies of 262,144 tokens take 7 MB.
const MAX_FETCHED_BYTES: u64 = 128 * 1024 * 1024;

pub(super) struct Window<'f, 's> {
    front: &'f Front<'s>,
    /// What is fetched and not yet passed.
    bytes: Bytes,
    position: u64,
    piece_bytes: u64,
    fetched_bytes: u64,
}

impl<'f, 's> Window<'f, 's> {
    pub(super) fn new(front: &'f Front<'s>) -> Self {
        Self {
            bytes: front.prefix.clone(),
            front,
            position: 0,
            piece_bytes: FIRST_PIECE_BYTES,
            fetched_bytes: 0,
        }
    }

    /// Offset in the file of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    fn left(&self) -> u64 {
        self.front.len_bytes.saturating_sub(self.position)
    }

    pub(super) async fn u32(&mut self, what: &str) -> Result<u32, Error> {
        self.take(what).await.map(u32::from_le_bytes)
    }

    pub(super) async fn u64(&mut self, what: &str) -> Result<u64, Error> {
        self.take(what).await.map(u64::from_le_bytes)
    }

    /// A number of items of at least `least_bytes` each, which the rest of the file can hold.
    pub(super) async fn count(
        &mut self,
        what: &str,
        least_bytes: u64,
        limit: u64,
    ) -> Result<u64, Error> {
        let count = self.u64(what).await?;
        let most = self.left().checked_div(least_bytes).unwrap_or(0).min(limit);
        if count <= most {
            return Ok(count);
        }
        let expected = format!("at most {most} in {} bytes", self.left());
        Err(self.malformed(what, &expected, count.to_string()))
    }

    /// A text of bounded length; what is not UTF-8 in it does not matter here.
    pub(super) async fn text(&mut self, what: &str) -> Result<String, Error> {
        let bytes = self.text_bytes(what).await?;
        self.fill(bytes, what).await?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let text = self.pass(bytes.min(self.bytes.len()));
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    pub(super) async fn skip_text(&mut self, what: &str) -> Result<(), Error> {
        let bytes = self.text_bytes(what).await?;
        self.skip(bytes, what).await
    }

    async fn text_bytes(&mut self, what: &str) -> Result<u64, Error> {
        self.count(what, 1, MAX_TEXT_BYTES).await
    }

    /// Moves on by `bytes`; what is not fetched of them stays unfetched.
    pub(super) async fn skip(&mut self, bytes: u64, what: &str) -> Result<(), Error> {
        if bytes > self.left() {
            return Err(self.short(bytes, what));
        }
        match usize::try_from(bytes) {
            Ok(within) if within <= self.bytes.len() => {
                self.pass(within);
            }
            _ => {
                self.bytes = Bytes::new();
                self.position = self.position.saturating_add(bytes);
            }
        }
        Ok(())
    }

    async fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        // The common case without a wait: most of a front is short numbers.
        if self.bytes.len() < N {
            self.fill(u64::try_from(N).unwrap_or(u64::MAX), what)
                .await?;
        }
        let taken = self.pass(N.min(self.bytes.len()));
        taken
            .first_chunk()
            .copied()
            .ok_or_else(|| self.short(u64::try_from(N).unwrap_or(u64::MAX), what))
    }

    fn pass(&mut self, bytes: usize) -> Bytes {
        let passed = self.bytes.copy_to_bytes(bytes);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.position = self.position.saturating_add(bytes);
        passed
    }

    /// Sees to it that the next `bytes` bytes are fetched.
    async fn fill(&mut self, bytes: u64, what: &str) -> Result<(), Error> {
        let have = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        if bytes <= have {
            return Ok(());
        }
        if bytes > self.left() {
            return Err(self.short(bytes, what));
        }
        let start = self.position.saturating_add(have);
        let least = bytes.saturating_sub(have);
        let rest = self.front.len_bytes.saturating_sub(start);
        let piece = self.piece_bytes.max(least).min(rest);
        self.fetched_bytes = self.fetched_bytes.saturating_add(piece);
        if self.fetched_bytes > MAX_FETCHED_BYTES {
            let expected = format!("at most {MAX_FETCHED_BYTES} bytes of metadata");
            return Err(self.malformed("header", &expected, "more".into()));
        }
        let read = self.front.read(start, start.saturating_add(piece)).await?;
        self.bytes = [std::mem::take(&mut self.bytes), read].concat().into();
        self.piece_bytes = self.piece_bytes.saturating_mul(2).min(MAX_PIECE_BYTES);
        Ok(())
    }

    fn short(&self, bytes: u64, what: &str) -> Error {
        let expected = format!("{bytes} more bytes at {}", self.position);
        self.malformed(what, &expected, self.left().to_string())
    }

    pub(super) fn malformed(&self, part: &str, expected: &str, found: String) -> Error {
        let part: String = part.chars().take(200).collect();
        self.front.malformed(Container::Gguf, part, expected, found)
    }
}
