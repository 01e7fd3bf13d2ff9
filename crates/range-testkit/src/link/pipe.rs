//! One direction of one connection: a queue of pieces with their arrival times, filled at the rate
//! and emptied as they fall due, in one task.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::bucket::Bucket;

/// Bytes on the way at most; a full line stops reading, and TCP tells the sender. Far above what
/// any line of interest holds (1 Gbit/s for a second).
const MAX_ON_THE_WAY_BYTES: usize = 128 << 20;

/// Bytes that wait before the line at most, as in the buffer of a sender's socket.
const MAX_WAITING_BYTES: usize = 1 << 20;

pub(super) struct Line<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) one_way: Duration,
    /// No byte enters the line earlier.
    pub(super) opens: Instant,
    pub(super) delivered: &'a AtomicU64,
}

/// Moves bytes until the source ends, then ends the destination as late as a byte would be. The
/// destination is awaited only when something is due for it.
pub(super) async fn pump(
    mut from: OwnedReadHalf,
    to: impl Future<Output = Result<OwnedWriteHalf, RecvError>>,
    line: Line<'_>,
) -> io::Result<()> {
    let mut to = std::pin::pin!(to);
    let mut connected: Option<OwnedWriteHalf> = None;
    let mut buffer = vec![0; line.bucket.piece_bytes()];
    let mut waiting = Waiting::default();
    let mut queue: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut on_the_way_bytes = 0;
    // When the line takes the next piece.
    let mut free_at = line.opens;
    let mut ends_at = None;
    loop {
        let due = queue.front().map(|(due, _)| *due).or(ends_at);
        let takes = waiting.has_pieces() && on_the_way_bytes < MAX_ON_THE_WAY_BYTES;
        let reads = waiting.has_room();
        tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or(free_at)), if due.is_some() => {
                let to = match &mut connected {
                    Some(to) => to,
                    None => connected.insert(to.as_mut().await.map_err(io::Error::other)?),
                };
                let Some((_, piece)) = queue.pop_front() else {
                    to.shutdown().await?;
                    return Ok(());
                };
                on_the_way_bytes -= piece.len();
                to.write_all(&piece).await?;
                line.delivered.fetch_add(piece.len() as u64, Relaxed);
            }
            read = from.read(&mut buffer), if reads => {
                waiting.push(&buffer[..read?]);
                if waiting.is_over() {
                    ends_at = Some(Instant::now() + line.one_way);
                }
            }
            () = sleep_until(free_at), if takes => {
                if let Some((since, piece)) = waiting.pop() {
                    // Since when the line could have taken it.
                    let entered = line.bucket.take(piece.len() as u64, since.max(free_at));
                    on_the_way_bytes += piece.len();
                    queue.push_back((entered + line.one_way, piece));
                    free_at = entered;
                }
                if waiting.is_over() {
                    ends_at = Some(Instant::now() + line.one_way);
                }
            }
        }
    }
}

/// Pieces before the line, with the moment they were read: the sender's buffer. A link that read only
/// when the line is free would wait for the sender's TCP again and again, and lose a tenth of its rate.
#[derive(Default)]
struct Waiting {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    ended: bool,
}

impl Waiting {
    fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn has_room(&self) -> bool {
        !self.ended && self.bytes < MAX_WAITING_BYTES
    }

    /// Whether the source has ended and everything of it has been taken.
    fn is_over(&self) -> bool {
        self.ended && self.pieces.is_empty()
    }

    /// Takes what was read; nothing is the end.
    fn push(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            self.ended = true;
        } else {
            self.bytes += piece.len();
            self.pieces.push_back((Instant::now(), piece.to_vec()));
        }
    }

    fn pop(&mut self) -> Option<(Instant, Vec<u8>)> {
        let next = self.pieces.pop_front()?;
        self.bytes -= next.1.len();
        Some(next)
    }
}
