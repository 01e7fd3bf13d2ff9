//! The rate of one direction, as a virtual clock: each piece is given the moment its last byte
//! enters the line. Pieces are small and taken in turn, so connections share fairly.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time a late waker may make up for: the runtime's timer rounds up to whole milliseconds, and
/// without this a fast line would lose what each rounding costs.
const CATCH_UP: Duration = Duration::from_millis(3);

#[derive(Debug)]
pub(super) struct Bucket {
    rate_bytes_per_s: Option<u64>,
    free_at: Mutex<Instant>,
}

impl Bucket {
    pub(super) fn new(rate_bytes_per_s: Option<u64>) -> Self {
        Self {
            rate_bytes_per_s,
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// The most to take at once: about 2 ms of the line, at least one packet.
    pub(super) fn piece_bytes(&self) -> usize {
        let piece = self.rate_bytes_per_s.map_or(u64::MAX, |rate| rate / 500);
        usize::try_from(piece.clamp(1460, 64 << 10)).unwrap_or(1460)
    }

    /// Takes `bytes` and returns when the last of them has entered the line.
    pub(super) fn take(&self, bytes: u64) -> Instant {
        let now = Instant::now();
        let Some(rate) = self.rate_bytes_per_s else {
            return now;
        };
        let taking_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let taking = Duration::from_nanos(u64::try_from(taking_ns).unwrap_or(u64::MAX));
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        *free_at = (*free_at).max(earliest) + taking;
        *free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pieces_queue_behind_each_other_and_the_rate_is_exact() {
        let bucket = Bucket::new(Some(1_000_000));
        let start = Instant::now();
        let first = bucket.take(10_000);
        assert_eq!(first - start, Duration::from_millis(10));
        assert_eq!(bucket.take(5_000) - start, Duration::from_millis(15));
        tokio::time::advance(Duration::from_secs(1)).await;
        // An idle line saves nothing up beyond the catch-up.
        assert_eq!(bucket.take(10_000) - start, Duration::from_millis(1007));
        assert_eq!(bucket.piece_bytes(), 2000);
    }
}
