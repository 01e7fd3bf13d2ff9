//! SIGINT and SIGTERM: the first asks the work to end cleanly, the second ends the process at once.
//! Installed before anything is downloaded, with one for SIGXFSZ. What "cleanly" means is the work's own matter.

use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Whether the process was asked to end, and by which signal.
#[derive(Debug, Clone)]
pub struct Interrupt {
    token: CancellationToken,
    code: Arc<AtomicU8>,
}

const SIGINT_CODE: u8 = 130;
const SIGTERM_CODE: u8 = 143;

impl Interrupt {
    /// Installs the handlers. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Config`] where the system refuses a handler.
    pub fn install() -> Result<Self, Error> {
        let refused = |error: std::io::Error| Error::config(format!("signal handler: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
        // A write beyond `ulimit -f` then fails with EFBIG, as one on a full disk fails, and costs a
        // transfer; by default it would end the process. Whether the signal came is nobody's matter.
        let beyond_the_limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        drop(signal(beyond_the_limit).map_err(refused)?);
        let this = Self {
            token: CancellationToken::new(),
            code: Arc::new(AtomicU8::new(0)),
        };
        let told = this.clone();
        // Lives as long as the runtime: it is what ends the process in the worst case.
        tokio::spawn(async move {
            loop {
                let code = tokio::select! {
                    _ = interrupt.recv() => SIGINT_CODE,
                    _ = terminate.recv() => SIGTERM_CODE,
                };
                if told.token.is_cancelled() {
                    std::process::exit(i32::from(code));
                }
                told.code.store(code, Ordering::Relaxed);
                told.token.cancel();
            }
        });
        Ok(this)
    }

    /// The token that the first signal cancels.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The exit code of the signal that came, if one did: 128 + its number.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        Some(self.code.load(Ordering::Relaxed)).filter(|&code| code != 0)
    }
}
