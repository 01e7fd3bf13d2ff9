//! One forward pass at a time, a bounded queue before it, and an honest refusal beyond.

use super::error::ApiError;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The queue's places.
#[derive(Debug, Clone)]
pub struct Admission {
    places: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

/// The right to compute. Dropping it lets the next request in.
#[derive(Debug)]
pub struct Turn {
    _running: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Admission {
    /// One request runs, `waiting` more may wait.
    #[must_use]
    pub fn new(waiting: usize) -> Self {
        let places = waiting.saturating_add(1).min(Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(places)),
            running: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits for this request's turn, first come first served.
    ///
    /// # Errors
    /// 503 at once where the queue is full.
    pub async fn turn(&self) -> Result<Turn, ApiError> {
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_full| ApiError::busy())?;
        let running = Arc::clone(&self.running).acquire_owned().await;
        // Nobody closes the semaphore.
        let running = running.map_err(|_closed| ApiError::busy())?;
        Ok(Turn {
            _running: running,
            _place: place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn one_runs_some_wait_the_rest_is_refused() {
        let admission = Admission::new(1);
        let first = admission.turn().await.unwrap();
        let mut second = Box::pin(admission.turn());
        assert!((&mut second).now_or_never().is_none(), "waits");
        assert!(admission.turn().await.is_err(), "is refused");
        drop(first);
        let second = second.await.unwrap();
        let mut left = Box::pin(admission.turn());
        assert!((&mut left).now_or_never().is_none());
        drop(left);
        drop(second);
        admission.turn().await.unwrap();
    }
}
