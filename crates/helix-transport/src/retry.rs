//! When to try again, how long to wait, and when to stop: the only place that decides it. Not a
//! queue and not a circuit breaker. The waits are "full jitter" (Brooker, *Exponential backoff and
//! jitter*, AWS Architecture Blog 2015); the budget follows Finagle's `RetryBudget`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::GaveUp;
use crate::{Error, ErrorKind};

/// Bounds for the repetitions of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; at least one is made. For a streamed read they count
    /// from the last byte that arrived.
    pub attempts: u32,
    /// Upper bound of the random wait before the second attempt; doubles with every further one.
    pub base_delay: Duration,
    /// Upper bound of any random wait.
    pub max_delay: Duration,
    /// A longer `Retry-After` is not waited for: the read fails at once.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    /// 3 attempts, 100 ms doubling to 2 s, `Retry-After` up to 30 s: made for a user who waits for
    /// the first token, not for a nightly job.
    fn default() -> Self {
        Self {
            attempts: 3,
            base_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(2),
            max_retry_after: Duration::from_secs(30),
        }
    }
}

/// Tokens a full budget holds: an outage costs an origin at most that many extra requests at once.
const BUDGET_TOKENS: f64 = 32.0;
/// What an accepted reply gives back: lasting retries stay below a tenth of the traffic.
const TOKENS_PER_SUCCESS: f64 = 0.1;
/// What a second gives back, so that an idle origin does not stay without retries.
const TOKENS_PER_SECOND: f64 = 1.0;

/// Repetitions at least that far apart are two bursts, with a warning each.
const BURST_GAP: Duration = Duration::from_secs(10);

/// The retries an origin may still be burdened with, shared by all reads from it.
#[derive(Debug)]
pub(crate) struct RetryBudget(Mutex<Bucket>);

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    refilled: Instant,
    /// When the last repetition was logged, and how many were since the last warning.
    last_retry: Option<Instant>,
    silent: u64,
}

impl RetryBudget {
    pub(crate) fn full() -> Self {
        Self(Mutex::new(Bucket {
            tokens: BUDGET_TOKENS,
            refilled: Instant::now(),
            last_retry: None,
            silent: 0,
        }))
    }

    pub(crate) fn reward(&self) {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.tokens = (bucket.tokens + TOKENS_PER_SUCCESS).min(BUDGET_TOKENS);
    }

    /// Whether a repetition begins a burst, the first after a quiet time; then, how many repetitions
    /// have gone unmentioned since the last one began.
    fn begin_burst(&self) -> Option<u64> {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let goes_on = bucket
            .last_retry
            .is_some_and(|last| now.duration_since(last) < BURST_GAP);
        bucket.last_retry = Some(now);
        if goes_on {
            bucket.silent += 1;
            return None;
        }
        Some(std::mem::take(&mut bucket.silent))
    }

    fn take(&self) -> bool {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let elapsed_s = now.duration_since(bucket.refilled).as_secs_f64();
        bucket.refilled = now;
        bucket.tokens = (bucket.tokens + elapsed_s * TOKENS_PER_SECOND).min(BUDGET_TOKENS);
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

/// One warning for the first repetition of a burst, the others for whoever looks closely: a hundred
/// rows that fail together have one cause. Errors here hold no query and no credentials.
fn log(object: &str, failed: u32, delay: Duration, error: &Error, burst: Option<u64>) {
    let delay_ms = delay.as_secs_f64() * 1e3;
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match burst {
        Some(silent) => tracing::warn!(
            object,
            failed,
            delay_ms,
            %error,
            %cause,
            silent_retries_before = silent,
            "range reads fail and are tried again; more of the kind are logged at debug level"
        ),
        None => {
            tracing::debug!(object, failed, delay_ms, %error, %cause, "range read is tried again")
        }
    }
}

/// The failures of one read so far.
#[derive(Debug)]
pub(crate) struct Retries {
    policy: RetryPolicy,
    failed: u32,
    /// Whether a lie was doubted before, and whether the present one is.
    doubted: bool,
    doubting: bool,
}

impl Retries {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            failed: 0,
            doubted: false,
            doubting: false,
        }
    }

    /// Bytes arrived: what failed before is forgotten.
    pub(crate) fn progress(&mut self) {
        self.failed = 0;
    }

    /// Tells that the origin has answered before: a reply that is no answer may then be that of one
    /// node among others, and is asked again, once a read. An origin that never could is told at once.
    pub(crate) fn doubt(&mut self, error: &Error) {
        let is_lie = match error {
            Error::Redirect { .. } | Error::Changed { .. } => false,
            other => matches!(other.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported),
        };
        self.doubting = is_lie && !self.doubted;
        self.doubted |= self.doubting;
    }

    /// Waits until the next attempt may start, or returns the error to give to the caller.
    pub(crate) async fn wait_after(
        &mut self,
        error: Error,
        object: &str,
        budget: &RetryBudget,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let doubting = std::mem::take(&mut self.doubting);
        if error.kind() != ErrorKind::Transient && !doubting {
            return Err(error);
        }
        self.failed += 1;
        let delay = self.delay(&error, rand::random::<f64>());
        let reason = if self.failed >= self.policy.attempts {
            Some(GaveUp::Attempts)
        } else if delay > self.policy.max_retry_after
            || deadline.is_some_and(|deadline| Instant::now() + delay >= deadline)
        {
            Some(GaveUp::Wait)
        } else if !budget.take() {
            Some(GaveUp::Budget)
        } else {
            None
        };
        if let Some(reason) = reason {
            let object = object.to_owned();
            return Err(Error::GaveUp {
                object,
                attempts: self.failed,
                reason,
                last: Box::new(error),
            });
        }
        log(object, self.failed, delay, &error, budget.begin_burst());
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// `jitter` in `[0, 1)`. What the origin asks for is kept, and the jitter comes on top of it:
    /// all clients were told the same second.
    fn delay(&self, error: &Error, jitter: f64) -> Duration {
        let doublings = self.failed.saturating_sub(1).min(31);
        let bound = self
            .policy
            .base_delay
            .saturating_mul(1 << doublings)
            .min(self.policy.max_delay);
        let asked = match error.last_attempt() {
            Error::Status {
                retry_after: Some(asked),
                ..
            } => *asked,
            _ => Duration::ZERO,
        };
        asked.saturating_add(bound.mul_f64(jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteRange;

    fn status(status: u16, retry_after: Option<u64>) -> Error {
        Error::Status {
            object: "o".into(),
            range: ByteRange { start: 0, end: 1 },
            status,
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_third_failure_is_final_and_waits_stay_within_their_bounds() {
        let budget = RetryBudget::full();
        let mut retries = Retries::new(RetryPolicy::default());
        let start = Instant::now();
        retries
            .wait_after(status(503, None), "o", &budget, None)
            .await
            .unwrap();
        assert!(start.elapsed() <= Duration::from_millis(101));
        retries
            .wait_after(status(503, None), "o", &budget, None)
            .await
            .unwrap();
        assert!(start.elapsed() <= Duration::from_millis(302));
        let error = retries
            .wait_after(status(503, None), "o", &budget, None)
            .await
            .unwrap_err();
        assert_eq!(error.attempts(), 3);
        assert_eq!(error.kind(), ErrorKind::Transient);
        assert!(matches!(
            error,
            Error::GaveUp {
                reason: GaveUp::Attempts,
                ..
            }
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_kept_up_to_the_limit() {
        let budget = RetryBudget::full();
        let mut retries = Retries::new(RetryPolicy::default());
        let start = Instant::now();
        retries
            .wait_after(status(429, Some(7)), "o", &budget, None)
            .await
            .unwrap();
        assert!(start.elapsed() >= Duration::from_secs(7));
        let error = retries
            .wait_after(status(429, Some(31)), "o", &budget, None)
            .await
            .unwrap_err();
        assert!(matches!(
            error,
            Error::GaveUp {
                reason: GaveUp::Wait,
                attempts: 2,
                ..
            }
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_past_the_deadline_is_not_begun() {
        let budget = RetryBudget::full();
        let mut retries = Retries::new(RetryPolicy::default());
        let start = Instant::now();
        let deadline = Some(start + Duration::from_secs(2));
        let error = retries
            .wait_after(status(503, Some(3)), "o", &budget, deadline)
            .await
            .unwrap_err();
        assert!(matches!(
            error,
            Error::GaveUp {
                reason: GaveUp::Wait,
                ..
            }
        ));
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn what_is_not_transient_is_returned_as_it_is() {
        let budget = RetryBudget::full();
        let mut retries = Retries::new(RetryPolicy::default());
        for code in [400, 401, 403, 404, 410, 501] {
            let error = retries
                .wait_after(status(code, None), "o", &budget, None)
                .await
                .unwrap_err();
            assert!(matches!(error, Error::Status { status, .. } if status == code));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_runs_dry_and_refills_with_time_and_success() {
        let budget = RetryBudget::full();
        let taken = (0..100).filter(|_| budget.take()).count();
        assert_eq!(taken, 32);
        for _ in 0..11 {
            budget.reward();
        }
        assert!(budget.take());
        assert!(!budget.take());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!((0..100).filter(|_| budget.take()).count(), 3);
    }

    #[test]
    fn jitter_spans_zero_to_the_doubling_bound() {
        let mut retries = Retries::new(RetryPolicy::default());
        let expected_ms = [100, 200, 400, 800, 1600, 2000, 2000];
        for bound in expected_ms {
            retries.failed += 1;
            assert_eq!(retries.delay(&status(500, None), 0.0), Duration::ZERO);
            assert_eq!(
                retries.delay(&status(500, None), 1.0),
                Duration::from_millis(bound)
            );
        }
    }
}
