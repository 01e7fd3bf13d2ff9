//! Where one object is asked for at present: at its own URL, or where that one's redirects ended. Kept
//! until the place fails in any way, since a signed location expires and a mirror goes down; then
//! the own URL is asked again, by one request for all that failed together. What a redirect may
//! lead to is decided in `redirect`.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use url::Url;

use crate::redact::redacted;

/// A URL that answered, and whether the object's own origin was never left on the way to it: only
/// then may it see credentials.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) url: Url,
    pub(super) credentials: bool,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.url))
    }
}

/// What a request starts from.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// Where the redirects ended; `None` is the object's own URL.
    pub(super) place: Option<Place>,
    generation: u64,
}

/// What has become of a refused start while the request waited for its turn.
#[derive(Debug)]
pub(super) enum Since {
    /// Nothing: it is this request that asks the own URL again.
    Nothing,
    /// Another request did and was answered: start from here.
    Answered(Start),
    /// Another request did and was refused as well.
    Refused,
    /// Another request did and got no reply: everyone for itself.
    Unanswered,
}

#[derive(Debug, Default)]
pub(super) struct Route {
    state: Mutex<State>,
    /// Held by the request that asks the own URL again.
    pub(super) turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    place: Option<Place>,
    /// Grows with every answer after a refusal.
    generation: u64,
    /// The last generation whose renewal failed, and whether by a refusal.
    failed: Option<(u64, bool)>,
}

impl Route {
    pub(super) fn start(&self) -> Start {
        let state = self.state();
        Start {
            place: state.place.clone(),
            generation: state.generation,
        }
    }

    /// A request was answered at `place`.
    pub(super) fn answered(&self, place: Option<Place>) {
        let mut state = self.state();
        if place.is_some() {
            state.place = place;
        }
        if state.failed.take().is_some() {
            state.generation += 1;
        }
    }

    /// A request that began at `start` failed: its place is not started from again.
    pub(super) fn forget(&self, start: &Start) {
        let mut state = self.state();
        if start.place.is_some() && state.place == start.place {
            state.place = None;
        }
    }

    /// To be asked with the turn held.
    pub(super) fn since(&self, start: &Start) -> Since {
        let state = self.state();
        match state.failed {
            Some((generation, refused)) if generation == start.generation => {
                if refused {
                    Since::Refused
                } else {
                    Since::Unanswered
                }
            }
            _ if state.generation > start.generation => Since::Answered(Start {
                place: state.place.clone(),
                generation: state.generation,
            }),
            _ => Since::Nothing,
        }
    }

    /// The own URL was asked again for `start`, and answered.
    pub(super) fn renewed(&self, start: &Start) {
        let mut state = self.state();
        state.generation = state.generation.max(start.generation + 1);
    }

    /// The own URL was asked again for `start`, in vain.
    pub(super) fn not_renewed(&self, start: &Start, refused: bool) {
        self.state().failed = Some((start.generation, refused));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
