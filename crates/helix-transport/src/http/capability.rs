//! What an origin has shown it can do with several ranges in one request. Learned from real
//! traffic, remembered for a day, in a small file where one is given. Not a probe: the requests are
//! made elsewhere. The measurements behind the numbers are in docs/decisions/0007.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

mod file;

/// Ranges of a canary: the fewest that tell multipart from a first range alone.
pub(super) const CANARY_RANGES: usize = 2;
/// Most ranges of any request: half of the lowest limit met in servers that have one of their own
/// and say so (128 and up); the header then fits 2 KiB.
pub(super) const MAX_RANGES: usize = 64;
/// Ranges of the first request behind a canary: lighttpd 1.4.69 answers ten and drops the others
/// without a word. From there the number doubles with each request that was answered in full.
const FIRST_RANGES: usize = 10;
/// How long what was learned is believed.
const BELIEVED: Duration = Duration::from_secs(24 * 60 * 60);
/// Replies that may break off before an origin is taken for one that cannot do it.
const MAX_BROKEN: u8 = 3;
/// Origins kept; the oldest knowledge makes room.
const MAX_ORIGINS: usize = 256;

/// What is known of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MultiRange {
    /// Nothing but, perhaps, replies that broke off.
    #[default]
    Unknown,
    /// One range a request.
    Single,
    /// Several: `answered` is the largest number answered in full, `most` the largest worth trying.
    Several { answered: u16, most: u16 },
}

/// What came of a request for several ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Multipart, every range in it.
    All { asked: usize },
    /// Multipart, but only `came` of them.
    Fewer { asked: usize, came: usize },
    /// Anything else: a status, one range of several, a body that cannot be read.
    Refused { asked: usize },
    /// The connection broke or was silent: the origin may not be to blame.
    Broken,
}

impl MultiRange {
    /// Ranges worth asking in one request; 1 where that is all an origin is trusted with.
    pub(super) fn most_ranges(self) -> usize {
        match self {
            Self::Unknown | Self::Single => 1,
            Self::Several { answered, most } => usize::from(most)
                .min(FIRST_RANGES.max(2 * usize::from(answered)))
                .clamp(1, MAX_RANGES),
        }
    }

    fn after(self, seen: Seen) -> Self {
        let count = |ranges: usize| u16::try_from(ranges.min(MAX_RANGES)).unwrap_or(u16::MAX);
        match (self, seen) {
            // Another request has learned the worse meanwhile: that stays.
            (Self::Single, _) | (_, Seen::Broken) => self,
            (Self::Unknown, Seen::All { asked }) => Self::Several {
                answered: count(asked),
                most: count(MAX_RANGES),
            },
            (Self::Several { answered, most }, Seen::All { asked }) => Self::Several {
                answered: answered.max(count(asked)),
                most,
            },
            (_, Seen::Fewer { came, .. }) if came >= CANARY_RANGES => Self::Several {
                answered: count(came),
                most: count(came),
            },
            (_, Seen::Refused { asked }) if asked > CANARY_RANGES => {
                let half = count((asked / 2).max(CANARY_RANGES));
                Self::Several {
                    answered: half,
                    most: half,
                }
            }
            (_, Seen::Fewer { .. } | Seen::Refused { .. }) => Self::Single,
        }
    }
}

/// Seconds since 1970.
type Clock = dyn Fn() -> u64 + Send + Sync;

/// The knowledge of one client, by origin (`scheme://host:port`, nothing else of a URL).
pub(super) struct Capabilities {
    file: Option<PathBuf>,
    clock: Arc<Clock>,
    state: Mutex<State>,
    canary_back: Notify,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<String, Known>,
    /// Origins a canary is out for, by any read.
    canaries: HashSet<String>,
    broken: BTreeMap<String, u8>,
}

/// What is known of one origin, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    learned_unix_s: u64,
    multi_range: MultiRange,
}

impl Known {
    fn is_believed(&self, now_unix_s: u64) -> bool {
        // What was learned in the future was learned by another clock.
        now_unix_s
            .checked_sub(self.learned_unix_s)
            .is_some_and(|age_s| age_s < BELIEVED.as_secs())
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capabilities")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Capabilities {
    /// Knowledge kept in `file` too, if one is given; it is read now, once.
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self::with_clock(file, Arc::new(unix_now))
    }

    fn with_clock(file: Option<PathBuf>, clock: Arc<Clock>) -> Self {
        let known = file.as_deref().map(|path| file::read(path, clock()));
        Self {
            file,
            clock,
            state: Mutex::new(State {
                known: known.unwrap_or_default(),
                ..State::default()
            }),
            canary_back: Notify::new(),
        }
    }

    pub(super) fn of(&self, origin: &str) -> MultiRange {
        let now = (self.clock)();
        match self.state().known.get(origin) {
            Some(known) if known.is_believed(now) => known.multi_range,
            _ => MultiRange::Unknown,
        }
    }

    /// The right to send a canary, for one read at a time, while nothing is known.
    pub(super) fn canary(&self, origin: &str) -> Option<Canary<'_>> {
        if self.of(origin) != MultiRange::Unknown {
            return None;
        }
        let free = self.state().canaries.insert(origin.to_owned());
        free.then_some(Canary {
            capabilities: self,
            origin: origin.to_owned(),
        })
    }

    /// When the next canary, of any origin and read, is back.
    pub(super) fn canary_back(&self) -> Notified<'_> {
        self.canary_back.notified()
    }

    /// Learns from a request for several ranges. A file is written off the runtime's threads, and
    /// only where something new was learned: a few times a day and origin.
    pub(super) async fn saw(&self, origin: &str, seen: Seen) {
        if let Some(note) = self.learn(origin, seen) {
            // A task that was not begun, or panicked, is a note that was not kept.
            let _ = tokio::task::spawn_blocking(move || note.keep()).await;
        }
    }

    /// What is to be written down, if anything.
    fn learn(&self, origin: &str, seen: Seen) -> Option<Note> {
        let now = (self.clock)();
        let mut state = self.state();
        let before = match state.known.get(origin) {
            Some(known) if known.is_believed(now) => known.multi_range,
            _ => MultiRange::Unknown,
        };
        let seen = match seen {
            // Broken again and again while nothing else is known is an answer too.
            Seen::Broken if before == MultiRange::Unknown => {
                let broken = state.broken.entry(origin.to_owned()).or_default();
                *broken += 1;
                if *broken < MAX_BROKEN {
                    return None;
                }
                Seen::Refused {
                    asked: CANARY_RANGES,
                }
            }
            other => other,
        };
        let multi_range = before.after(seen);
        if multi_range == before {
            return None;
        }
        state.broken.remove(origin);
        tracing::debug!(origin, ?multi_range, ?seen, "several ranges in one request");
        let known = Known {
            learned_unix_s: now,
            multi_range,
        };
        state.known.insert(origin.to_owned(), known);
        bound(&mut state.known);
        Some(Note {
            path: self.file.clone()?,
            origin: origin.to_owned(),
            known,
            now,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One origin's line in the file, to be written.
struct Note {
    path: PathBuf,
    origin: String,
    known: Known,
    now: u64,
}

impl Note {
    fn keep(&self) {
        if let Err(error) = self.write() {
            // Known in memory all the same: the next start learns it again.
            let path = self.path.display();
            tracing::debug!(%path, %error, "what origins can do is not kept");
        }
    }

    fn write(&self) -> io::Result<()> {
        file::remember(&self.path, &self.origin, self.known, self.now)
    }
}

/// A canary that is out. Dropping it lets another read send one, if still nothing is known.
#[derive(Debug)]
pub(super) struct Canary<'a> {
    capabilities: &'a Capabilities,
    origin: String,
}

impl Drop for Canary<'_> {
    fn drop(&mut self) {
        self.capabilities.state().canaries.remove(&self.origin);
        self.capabilities.canary_back.notify_waiters();
    }
}

/// Lets the oldest knowledge go.
fn bound(known: &mut BTreeMap<String, Known>) {
    while known.len() > MAX_ORIGINS {
        let oldest = known
            .iter()
            .min_by_key(|(_, known)| known.learned_unix_s)
            .map(|(origin, _)| origin.clone());
        match oldest {
            Some(origin) => known.remove(&origin),
            None => return,
        };
    }
}

fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
