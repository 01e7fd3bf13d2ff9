//! Batch single flight: however many callers miss a key at once, one load is made for it. Not a
//! cache: a flight is forgotten as soon as it has landed, whether well or badly.
//!
//! A caller claims all its missing keys in one step. Keys that nobody is loading become *led*: one
//! task is spawned for them together. Keys that another claim leads are *followed*. The task
//! belongs to the [`SingleFlight`], not to the caller: a caller that goes away strands nobody, and
//! dropping the [`SingleFlight`] ends all its tasks. A load that panics is told to all who wait.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{runtime::Handle, sync::watch, task::JoinSet};

/// Loads in flight by key; `T` is what a load gives for all its keys together.
pub(crate) struct SingleFlight<K, T> {
    flights: Arc<Mutex<HashMap<K, Flight<T>>>>,
    loaders: Mutex<JoinSet<()>>,
}

/// What a caller got for the keys of one claim.
pub(crate) struct Claim<K, V, T> {
    /// Keys that had arrived between the caller's look-up and its claim.
    pub found: Vec<(K, V)>,
    /// Keys that this claim loads, in the order they were asked, and their load.
    pub led: Option<(Vec<K>, Flight<T>)>,
    /// Keys that earlier claims load.
    pub followed: Vec<(K, Flight<T>)>,
}

/// One load under way.
pub(crate) struct Flight<T>(watch::Receiver<Option<Arc<T>>>);

/// The load ended without a result: it panicked or was aborted with its runtime.
#[derive(Debug)]
pub(crate) struct Stopped;

impl<T> Clone for Flight<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Flight<T> {
    /// Waits until the load ends. How long that may take is bounded by the load itself.
    pub(crate) async fn landed(mut self) -> Result<Arc<T>, Stopped> {
        let landed = self.0.wait_for(Option::is_some).await.ok();
        landed
            .and_then(|result| result.as_ref().map(Arc::clone))
            .ok_or(Stopped)
    }
}

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self {
            flights: Arc::default(),
            loaders: Mutex::default(),
        }
    }
}

impl<K, T> fmt::Debug for SingleFlight<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight")
            .field("keys", &lock(&self.flights).len())
            .finish()
    }
}

impl<K, T> SingleFlight<K, T>
where
    K: Copy + Eq + Hash + Send + 'static,
    T: Send + Sync + 'static,
{
    /// Claims `keys`, which must be distinct, and spawns `load` on `runtime` for those that are
    /// neither in flight nor, by now, found by `recheck`.
    ///
    /// A load must make its result visible to `recheck` before it returns: the keys leave the
    /// board only afterwards, so that no caller can fall between the two and load them again.
    pub(crate) fn claim<V, L, F>(
        &self,
        runtime: &Handle,
        keys: &[K],
        recheck: impl Fn(&K) -> Option<V>,
        load: L,
    ) -> Claim<K, V, T>
    where
        L: FnOnce(Vec<K>) -> F,
        F: Future<Output = T> + Send + 'static,
    {
        let mut claim = Claim {
            found: Vec::new(),
            led: None,
            followed: Vec::new(),
        };
        let mut led = Vec::new();
        let (sender, receiver) = watch::channel(None);
        let flight = Flight(receiver);
        let departed = {
            let mut flights = lock(&self.flights);
            for key in keys {
                if let Some(flight) = flights.get(key) {
                    claim.followed.push((*key, flight.clone()));
                } else if let Some(value) = recheck(key) {
                    claim.found.push((*key, value));
                } else {
                    flights.insert(*key, flight.clone());
                    led.push(*key);
                }
            }
            Departed {
                flights: Arc::clone(&self.flights),
                keys: led.clone(),
            }
        };
        if led.is_empty() {
            return claim;
        }
        // From here on `departed` takes the keys off the board however the load ends, also if
        // it never starts.
        let loading = load(led.clone());
        let task = async move {
            let result = loading.await;
            drop(departed);
            // Nobody left to listen is no fault: the rows are cached all the same.
            sender.send_replace(Some(Arc::new(result)));
        };
        let mut loaders = lock(&self.loaders);
        while loaders.try_join_next().is_some() {}
        loaders.spawn_on(task, runtime);
        claim.led = Some((led, flight));
        claim
    }
}

/// Takes its keys off the board when dropped.
struct Departed<K: Eq + Hash, T> {
    flights: Arc<Mutex<HashMap<K, Flight<T>>>>,
    keys: Vec<K>,
}

impl<K: Eq + Hash, T> Drop for Departed<K, T> {
    fn drop(&mut self) {
        let mut flights = lock(&self.flights);
        for key in &self.keys {
            flights.remove(key);
        }
    }
}

/// No user code runs under these locks but `recheck`, and every step leaves the map whole, so a
/// poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
