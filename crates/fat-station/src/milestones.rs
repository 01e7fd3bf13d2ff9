//! When a start reached what: moments from the process's first to its first token, and what was
//! computed until then. Only the first of each counts, so that a server shows how it began.

use serde::Serialize;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a start reaches, in the order of a cold one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Milestone {
    /// The knot's table: what there is, and where.
    Table,
    /// The tokenizer.
    Tokenizer,
    /// The rows of the first prompt.
    Rows,
    /// The last layer, or the final norm behind it.
    Layers,
    /// The head.
    Head,
}

const MILESTONES: usize = 5;

/// The milestones of a start.
#[derive(Debug, Default)]
pub struct Milestones {
    reached: [OnceLock<Instant>; MILESTONES],
    connect: OnceLock<Duration>,
    compute_ns: AtomicU64,
    begun: AtomicBool,
}

impl Milestones {
    /// Notes that `milestone` is reached now.
    pub fn reach(&self, milestone: Milestone) {
        let _ = self.reached[milestone as usize].set(Instant::now());
    }

    /// Notes how long the requests up to the table waited for connections.
    pub fn connected(&self, waited: Duration) {
        let _ = self.connect.set(waited);
    }

    /// Adds time that was computed since `begun`, unless a first token is there already.
    pub fn add_compute(&self, begun: Instant) {
        if !self.begun.load(Relaxed) {
            let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.compute_ns.fetch_add(nanos, Relaxed);
        }
    }

    /// Notes that a first token is there.
    pub fn first_token(&self) {
        self.begun.store(true, Relaxed);
    }

    /// What has been reached of a start that began at `started`.
    #[must_use]
    pub fn since(&self, started: Instant) -> StartSummary {
        let at = |milestone: Milestone| {
            let reached = self.reached[milestone as usize].get()?;
            Some(reached.duration_since(started).as_secs_f64())
        };
        StartSummary {
            connect_s: self.connect.get().map(Duration::as_secs_f64),
            table_s: at(Milestone::Table),
            tokenizer_s: at(Milestone::Tokenizer),
            rows_s: at(Milestone::Rows),
            blocks_s: at(Milestone::Layers),
            head_s: at(Milestone::Head),
            compute_s: Duration::from_nanos(self.compute_ns.load(Relaxed)).as_secs_f64(),
        }
    }
}

/// A start, step by step. Moments are seconds from the start of the process; what was not reached is
/// absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StartSummary {
    /// Duration: what the requests up to the knot's table waited for connections.
    pub connect_s: Option<f64>,
    /// Moment: the knot's table is here.
    pub table_s: Option<f64>,
    /// Moment: the tokenizer is here.
    pub tokenizer_s: Option<f64>,
    /// Moment: the rows of the first prompt are here.
    pub rows_s: Option<f64>,
    /// Moment: all layers are here.
    pub blocks_s: Option<f64>,
    /// Moment: the head is here.
    pub head_s: Option<f64>,
    /// Duration: computing until the first token, most of it while something else arrived.
    pub compute_s: f64,
}

impl fmt::Display for StartSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start:")?;
        let moments = [
            ("table", self.table_s),
            ("tokenizer", self.tokenizer_s),
            ("rows", self.rows_s),
            ("blocks", self.blocks_s),
            ("head", self.head_s),
        ];
        for (name, moment) in moments {
            if let Some(seconds) = moment {
                write!(f, " {name} at {seconds:.3} s,")?;
            }
        }
        if let Some(seconds) = self.connect_s {
            write!(f, " {seconds:.3} s connecting,")?;
        }
        write!(f, " {:.3} s computing", self.compute_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_counts_and_compute_ends_with_the_first_token() {
        let started = Instant::now();
        let milestones = Milestones::default();
        assert_eq!(milestones.since(started), StartSummary::default());
        milestones.reach(Milestone::Table);
        milestones.connected(Duration::from_millis(40));
        let table = milestones.since(started).table_s.unwrap();
        std::thread::sleep(Duration::from_millis(2));
        milestones.reach(Milestone::Table);
        milestones.reach(Milestone::Head);
        milestones.add_compute(started);
        let start = milestones.since(started);
        assert_eq!(start.table_s, Some(table));
        assert!(start.head_s.unwrap() > table);
        assert_eq!(start.connect_s, Some(0.04));
        assert!(start.compute_s >= 0.002);
        milestones.first_token();
        milestones.add_compute(started);
        assert_eq!(milestones.since(started).compute_s, start.compute_s);
    }

    #[test]
    fn what_was_not_reached_is_not_told() {
        let start = StartSummary {
            table_s: Some(0.05),
            compute_s: 0.25,
            ..StartSummary::default()
        };
        assert_eq!(
            start.to_string(),
            "start: table at 0.050 s, 0.250 s computing"
        );
    }
}
