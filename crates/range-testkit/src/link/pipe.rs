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
    let mut queue: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut on_the_way_bytes = 0;
    // When the line takes the next piece; `None` once the source has ended.
    let mut takes_at = Some(line.opens);
    let mut ends_at = None;
    let mut was_idle = false;
    loop {
        let due = queue.front().map(|(due, _)| *due).or(ends_at);
        let room = on_the_way_bytes < MAX_ON_THE_WAY_BYTES;
        let readable_at = takes_at.filter(|_| room);
        if due.is_none() && readable_at.is_none() {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or(line.opens)), if due.is_some() => {
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
            read = take(&mut from, &mut buffer, readable_at.unwrap_or(line.opens), &mut was_idle),
                if readable_at.is_some() =>
            {
                let (count, waiting_since) = read?;
                if count == 0 {
                    takes_at = None;
                    ends_at = Some(Instant::now() + line.one_way);
                } else {
                    let entered = line.bucket.take(count as u64, waiting_since);
                    queue.push_back((entered + line.one_way, buffer[..count].to_vec()));
                    on_the_way_bytes += count;
                    takes_at = Some(entered);
                }
            }
        }
    }
}

/// Reads a piece once the line is free, and since when it had been waiting. `was_idle` outlives a
/// call that is abandoned: what comes after an idle moment is credited with no wait.
async fn take(
    from: &mut OwnedReadHalf,
    buffer: &mut [u8],
    free_at: Instant,
    was_idle: &mut bool,
) -> io::Result<(usize, Instant)> {
    sleep_until(free_at).await;
    if !*was_idle {
        match from.try_read(buffer) {
            // It was there already: the line has been busy from the moment it was free.
            Ok(count) => return Ok((count, free_at)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => *was_idle = true,
            Err(error) => return Err(error),
        }
    }
    let count = from.read(buffer).await?;
    *was_idle = false;
    Ok((count, Instant::now()))
}
