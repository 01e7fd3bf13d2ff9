//! The progress bar of long work: on stderr, and only where a person looks at it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar that counts bytes; its length comes with [`Self::set_total`].
    pub(crate) fn new(what: &'static str) -> Self {
        // indicatif draws nothing where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let template = "{prefix} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(what);
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }

    pub(crate) fn set_total(&self, bytes: u64) {
        self.0.set_length(bytes);
    }

    pub(crate) fn on(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
