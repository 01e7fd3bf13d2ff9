//! Progress of a long transfer: a bar where stderr is a terminal, else a log line every 5 s.
//! It shows, it does not count: the meters do.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// One transfer's progress.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    object: String,
    begun: Instant,
    line_due: Mutex<Instant>,
}

impl Progress {
    /// A transfer of `total_bytes` of `object`; nothing is shown for nothing.
    pub(crate) fn start(object: &str, total_bytes: u64) -> Self {
        let bar = if total_bytes == 0 {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(total_bytes)
        };
        if let Ok(style) = ProgressStyle::with_template(
            "{bar:30} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} eta {eta}",
        ) {
            bar.set_style(style);
        }
        let begun = Instant::now();
        Self {
            bar,
            object: object.to_owned(),
            begun,
            line_due: Mutex::new(begun + LINE_INTERVAL),
        }
    }

    /// `bytes` more have arrived.
    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
        if !self.bar.is_hidden() {
            return;
        }
        let now = Instant::now();
        {
            let mut due = self.line_due.lock().unwrap_or_else(PoisonError::into_inner);
            if now < *due {
                return;
            }
            *due = now + LINE_INTERVAL;
        }
        let received = self.bar.position();
        let seconds = now.duration_since(self.begun).as_secs_f64();
        tracing::info!(
            object = self.object,
            received_bytes = received,
            total_bytes = self.bar.length(),
            bytes_per_s = (received as f64 / seconds).round(),
            "loading"
        );
    }
}

impl Drop for Progress {
    /// The transfer is over, well or not: what is printed next starts on a clean line.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_ends_with_the_transfer_however_that_ends() {
        let progress = Progress::start("knot", 100);
        let bar = progress.bar.clone();
        progress.add(40);
        assert!(!bar.is_finished());
        drop(progress);
        assert!(bar.is_finished());
    }
}
