//! [`Pace`]: the least a read must get on with while it waits for its origin. The stall limit alone lets a
//! byte every four seconds pass for ever, and so does an origin that stalls, is asked again, gives one
//! byte and stalls again; this bounds the whole read by its size. Only waiting counts: a caller that
//! takes its time between two pieces costs nothing.

use std::time::Duration;

use super::HttpConfig;

/// Slow windows after which a read is given up: one more than the retries of a row batch.
const SLOW_WINDOWS: u32 = 3;

/// Waiting time and bytes of one read, in windows, over all its attempts.
#[derive(Debug)]
pub(super) struct Pace {
    window: Duration,
    window_bytes: u64,
    waited: Duration,
    bytes: u64,
    slow: u32,
}

impl Pace {
    pub(super) fn new(config: &HttpConfig) -> Self {
        let window_ms = u64::try_from(config.pace_window.as_millis()).unwrap_or(u64::MAX);
        Self {
            window: config.pace_window,
            window_bytes: config.pace_bytes_per_s.saturating_mul(window_ms) / 1000,
            waited: Duration::ZERO,
            bytes: 0,
            slow: 0,
        }
    }

    /// The stretch that is measured.
    pub(super) fn window(&self) -> Duration {
        self.window
    }

    /// Adds a wait and what it brought; whether it has closed a window that was too slow.
    pub(super) fn add(&mut self, bytes: u64, waited: Duration) -> bool {
        self.waited = self.waited.saturating_add(waited);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.waited < self.window {
            return false;
        }
        let slow = self.bytes < self.window_bytes;
        self.slow += u32::from(slow);
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        slow
    }

    /// Slow windows so far, once there were too many of them.
    pub(super) fn given_up(&self) -> Option<u32> {
        (self.slow >= SLOW_WINDOWS).then_some(self.slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace::new(&HttpConfig {
            pace_bytes_per_s: 100,
            pace_window: Duration::from_secs(30),
            ..HttpConfig::default()
        })
    }

    #[test]
    fn a_byte_every_four_seconds_is_given_up_after_three_windows() {
        let mut pace = pace();
        let mut pieces = 0;
        while pace.given_up().is_none() {
            pace.add(1, Duration::from_secs(4));
            pieces += 1;
        }
        // A window closes with the first piece behind its 30 s: 8 pieces each.
        assert_eq!((pieces, pace.given_up()), (24, Some(3)));
    }

    #[test]
    fn what_keeps_the_pace_goes_on_for_ever_and_waits_without_length_cost_nothing() {
        let mut pace = pace();
        for _ in 0..10_000 {
            assert!(!pace.add(400, Duration::from_secs(4)));
            assert!(!pace.add(1, Duration::ZERO));
        }
        assert_eq!(pace.given_up(), None);
    }
}
