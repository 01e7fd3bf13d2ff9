//! Where the payloads of one fetch come together: each place is filled once, with its twins, and told.

use super::WantedPayload;
use crate::error::Error;
use crate::knot::arrivals::Arrivals;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The payloads of one fetch, as far as they are here.
#[derive(Debug)]
pub(super) struct Landing<'a> {
    wanted: &'a [WantedPayload],
    /// Of equal payloads the place of the first, for each place.
    first: Vec<usize>,
    found: Mutex<Vec<Option<Bytes>>>,
    arrivals: Arc<dyn Arrivals>,
}

impl<'a> Landing<'a> {
    /// With what is here already; empty payloads always are.
    pub(super) fn new(
        wanted: &'a [WantedPayload],
        cached: Vec<Option<Bytes>>,
        arrivals: Arc<dyn Arrivals>,
    ) -> Self {
        let mut seen = HashMap::new();
        let first = wanted
            .iter()
            .enumerate()
            .map(|(at, payload)| *seen.entry((payload.blake3, payload.bytes())).or_insert(at));
        let landing = Self {
            wanted,
            first: first.collect(),
            found: Mutex::new(vec![None; wanted.len()]),
            arrivals,
        };
        for (at, bytes) in cached.into_iter().enumerate() {
            match bytes {
                _ if wanted[at].bytes() == 0 => landing.land(at, &Bytes::new()),
                Some(bytes) => landing.land(at, &bytes),
                None => {}
            }
        }
        landing
    }

    pub(super) fn wanted(&self) -> &'a [WantedPayload] {
        self.wanted
    }

    /// Places to be fetched: of equal payloads the first.
    pub(super) fn missing(&self) -> Vec<usize> {
        let found = self.found();
        (0..self.wanted.len())
            .filter(|&at| found[at].is_none() && self.first[at] == at)
            .collect()
    }

    /// Tells of bytes that are not checked.
    pub(super) fn piece(&self, at: usize, offset: u64, piece: &Bytes) {
        self.arrivals.piece(at, offset, piece);
    }

    /// Fills the places of the payload at `at`, which is checked, and of those that equal it.
    pub(super) fn land(&self, at: usize, bytes: &Bytes) {
        let twins = (0..self.wanted.len()).filter(|&other| self.first[other] == self.first[at]);
        for at in twins {
            let before = self.found()[at].replace(bytes.clone());
            if before.is_none() {
                self.arrivals.arrived(at, bytes);
            }
        }
    }

    /// All payloads in the order asked.
    pub(super) fn payloads(self) -> Result<Vec<Bytes>, Error> {
        let found = self
            .found
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let lost = Error::Lost {
            what: "a payload of the knot",
        };
        found.into_iter().collect::<Option<_>>().ok_or(lost)
    }

    fn found(&self) -> MutexGuard<'_, Vec<Option<Bytes>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
