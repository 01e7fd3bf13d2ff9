//! What is logged: one warning for a burst of retries, with its cause and without a secret.

use std::io::Write;
use std::sync::{Arc, Mutex};

use helix_transport::{HttpBackend, RangeSource};
use range_testkit::{Fault, Script};
use tracing::Level;
use tracing::subscriber::DefaultGuard;

use crate::setup::{batch, quick, range, serve};

/// What the current thread logs while this lives. A test's runtime has one thread.
pub(crate) struct Captured {
    lines: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Captured {
    pub(crate) fn at(level: Level) -> Self {
        let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
        let writer = Sink(Arc::clone(&lines));
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self {
            lines,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.lines.lock().unwrap()).into_owned()
    }
}

#[derive(Clone)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_burst_of_retries_is_one_warning_with_its_cause() {
    let captured = Captured::at(Level::WARN);
    let (server, _) = serve(Script::list(vec![Fault::HangUp; 20])).await;
    let url = format!("{}?sig=s3cret", server.url(crate::setup::PATH));
    let backend = HttpBackend::new(&url, quick()).unwrap();
    let options = batch();
    let reads = (0..40).map(|n| backend.read(range(n, n + 10), &options));
    futures::future::join_all(reads).await;
    assert!(options.meter.snapshot().retries >= 20);
    let text = captured.text();
    let warnings: Vec<_> = text
        .lines()
        .filter(|line| line.contains(" WARN "))
        .collect();
    assert_eq!(warnings.len(), 1, "{text}");
    assert!(
        warnings[0].contains("range reads fail and are tried again"),
        "{text}"
    );
    assert!(
        warnings[0].contains(&server.url(crate::setup::PATH)),
        "{text}"
    );
    assert!(warnings[0].contains("cause="), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}
