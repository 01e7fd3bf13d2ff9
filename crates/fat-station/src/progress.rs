//! Progress of a long transfer: a bar where stderr is a terminal, else a log line every 5 s. It
//! shows, it does not count: the meters do. What is shown never goes back.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::future::Future;
use std::io::Write;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Between two lines where there is no bar.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// All bars of the process: several transfers run side by side.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// One transfer's progress.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    object: String,
    begun: Instant,
}

impl Progress {
    /// A transfer of `total_bytes` of `object`; nothing is shown for nothing.
    pub(crate) fn start(object: &str, total_bytes: u64) -> Self {
        let bar = if total_bytes == 0 {
            ProgressBar::hidden()
        } else {
            BARS.add(ProgressBar::new(total_bytes))
        };
        if let Ok(style) = ProgressStyle::with_template(
            "{bar:30} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} eta {eta}",
        ) {
            bar.set_style(style);
        }
        Self {
            bar,
            object: object.to_owned(),
            begun: Instant::now(),
        }
    }

    /// `bytes` more have arrived.
    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// `bytes` of the total need not come: they are here already.
    pub(crate) fn spare(&self, bytes: u64) {
        self.bar.dec_length(bytes);
    }

    /// `bytes` have to come beside the total: they came wrong, or another station did not fetch them.
    pub(crate) fn more(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Does `work`, with a line every 5 s where there is no bar, also while nothing arrives.
    pub(crate) async fn while_shown<T>(&self, work: impl Future<Output = T>) -> T {
        let mut lines = tokio::time::interval_at(self.begun + LINE_INTERVAL, LINE_INTERVAL);
        lines.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = lines.tick() => self.line(),
            }
        }
    }

    fn line(&self) {
        if !self.bar.is_hidden() {
            return;
        }
        let (received, total) = (self.bar.position(), self.bar.length().unwrap_or_default());
        let rate = received as f64 / self.begun.elapsed().as_secs_f64();
        let left = total.saturating_sub(received);
        // Nothing has arrived: nobody knows.
        let eta_s = (received > 0).then(|| (left as f64 / rate).ceil());
        tracing::info!(
            object = self.object,
            received_bytes = received,
            total_bytes = total,
            bytes_per_s = rate.round(),
            eta_s,
            "loading"
        );
    }
}

impl Drop for Progress {
    /// The transfer is over, well or not: what is printed next starts on a clean line.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        BARS.remove(&self.bar);
    }
}

/// Stderr that bars make room for, so that no line is drawn over.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        BARS.suspend(|| std::io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::LogFormat;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt as _;

    #[test]
    fn the_bar_ends_with_the_transfer_however_that_ends() {
        let progress = Progress::start("knot", 100);
        let bar = progress.bar.clone();
        progress.add(40);
        assert!(!bar.is_finished());
        drop(progress);
        assert!(bar.is_finished());
    }

    #[test]
    fn what_is_here_already_is_not_waited_for_and_nothing_goes_back() {
        let progress = Progress::start("knot", 100);
        progress.spare(30);
        progress.add(70);
        assert_eq!(
            (progress.bar.position(), progress.bar.length()),
            (70, Some(70))
        );
        progress.more(20);
        assert_eq!(
            (progress.bar.position(), progress.bar.length()),
            (70, Some(90))
        );
    }

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Virtual time: nothing here waits.
    #[tokio::test(start_paused = true)]
    async fn without_a_terminal_a_line_comes_every_five_seconds_also_while_nothing_arrives() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let layer = crate::telemetry::layer(LogFormat::Json, "info", move || writer.clone());
        let log = tracing_subscriber::registry().with(layer.unwrap());
        let _logged = tracing::subscriber::set_default(log);
        let progress = Progress {
            bar: ProgressBar::hidden(),
            object: "knot".to_owned(),
            begun: Instant::now(),
        };
        progress.bar.set_length(1_000);
        let work = async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            progress.add(250);
            tokio::time::sleep(Duration::from_secs(15)).await;
        };
        progress.while_shown(work).await;
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let shown = |field: &str| -> Vec<serde_json::Value> {
            lines
                .iter()
                .map(|line| line["fields"][field].clone())
                .collect()
        };
        assert_eq!(shown("received_bytes"), [0, 250, 250, 250]);
        assert_eq!(shown("total_bytes"), [1_000; 4]);
        assert_eq!(lines[0]["fields"]["eta_s"], serde_json::Value::Null);
        assert_eq!(lines[1]["fields"]["bytes_per_s"], 25.0);
        assert_eq!(lines[1]["fields"]["eta_s"], 30.0);
    }
}
