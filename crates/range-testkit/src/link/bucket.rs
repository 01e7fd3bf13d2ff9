//! The rate of one direction, as a virtual clock: each piece is given the moment its last byte
//! enters the line. Pieces are small and taken in turn, so connections share fairly.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How late a task may notice that the line was free and still lose nothing: timers round up to
/// whole milliseconds, and a busy machine adds its own. Only bytes that were waiting are credited,
/// so an idle line saves nothing up.
const MAX_LATENESS: Duration = Duration::from_millis(100);

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

    /// Takes `bytes` that have waited since `waiting_since` and returns when the last of them has
    /// entered the line: never in the past, so that catching up serves the rate and shortens no
    /// delay. The line itself is free from the exact moment on.
    pub(super) fn take(&self, bytes: u64, waiting_since: Instant) -> Instant {
        let now = Instant::now();
        let Some(rate) = self.rate_bytes_per_s else {
            return now;
        };
        let taking_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let taking = Duration::from_nanos(u64::try_from(taking_ns).unwrap_or(u64::MAX));
        let earliest = now
            .checked_sub(MAX_LATENESS)
            .unwrap_or(now)
            .max(waiting_since)
            .min(now);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(earliest) + taking;
        (*free_at).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pieces_queue_behind_each_other_and_the_rate_is_exact() {
        let bucket = Bucket::new(Some(1_000_000));
        let start = Instant::now();
        assert_eq!(
            bucket.take(10_000, start) - start,
            Duration::from_millis(10)
        );
        assert_eq!(bucket.take(5_000, start) - start, Duration::from_millis(15));
        assert_eq!(bucket.piece_bytes(), 2000);
        // An idle line saves nothing up.
        tokio::time::advance(Duration::from_secs(1)).await;
        let later = Instant::now();
        assert_eq!(
            bucket.take(10_000, later) - later,
            Duration::from_millis(10)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_task_keeps_the_rate_and_shortens_no_delay() {
        let bucket = Bucket::new(Some(1_000_000));
        let start = Instant::now();
        let free = bucket.take(10_000, start);
        // The task should have come at 10 ms, and comes at 17.
        tokio::time::advance(Duration::from_millis(17)).await;
        assert_eq!(bucket.take(4_000, free), Instant::now());
        assert_eq!(bucket.take(6_000, free) - start, Duration::from_millis(20));
    }
}
