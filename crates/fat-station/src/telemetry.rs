//! The log on stderr, and the names and fields of the station's spans.
//! Spans repeat what the meters counted; a filter changes what is shown, never what is counted.
//! A field that is recorded late must be declared, or it is dropped in silence: all are here.

use crate::cli::LogFormat;
use crate::error::Error;
use crate::progress::Stderr;
use std::io::{IsTerminal as _, Write};
use tracing::{Span, field};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Installs the log for the whole process.
///
/// # Errors
/// [`Error::Config`] for a filter that does not parse, or where a log is installed already.
pub fn install(format: LogFormat, filter: &str) -> Result<(), Error> {
    let layer = layer(format, filter, || Stderr)?;
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| Error::config(format!("log: {error}")))
}

/// The layer that writes the log in `format` to `writer`.
///
/// # Errors
/// [`Error::Config`] for a filter that does not parse.
pub fn layer<W>(
    format: LogFormat,
    filter: &str,
    writer: W,
) -> Result<Box<dyn Layer<Registry> + Send + Sync>, Error>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| Error::config(format!("--log {filter}: {error}")))?;
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let plain = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(coloured);
    Ok(match format {
        LogFormat::Text => plain.with_target(false).with_filter(filter).boxed(),
        // One event when a span closes carries all its fields and its times.
        LogFormat::Json => plain
            .json()
            .with_ansi(false)
            .with_span_events(FmtSpan::CLOSE)
            .with_filter(filter)
            .boxed(),
    })
}

/// Span of a read of rows that the resident matrix answers. Reads of the store have the store's own
/// `embed.fetch`, with the rows hit, missed and coalesced and what they moved.
pub(crate) fn resident_rows(phase: &'static str, rows: usize) -> Span {
    tracing::info_span!("embed.fetch", phase, rows_asked = rows, resident = rows)
}

/// Span of one payload of the knot, from its place to its digest.
pub(crate) fn knot_block(block: &str, bytes: u64) -> Span {
    tracing::debug_span!("knot.block", block, bytes, from = field::Empty)
}

/// Span of a prompt's forward passes.
pub(crate) fn prefill(prompt_tokens: usize) -> Span {
    tracing::info_span!(
        "prefill",
        prompt_tokens,
        chunks = field::Empty,
        seconds = field::Empty
    )
}

/// Span of all decode steps of one answer.
pub(crate) fn decode() -> Span {
    tracing::info_span!(
        "decode",
        generated_tokens = field::Empty,
        finish_reason = field::Empty,
        seconds = field::Empty,
    )
}

/// Writes a line for people to stderr; a closed stderr is nobody's loss.
pub fn say(text: &str) {
    // In one piece, so that no bar comes between a line and its end.
    let _ = Stderr.write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use tracing::span::{Attributes, Id, Record};
    use tracing_subscriber::layer::Context;

    type Fields = BTreeMap<String, String>;

    /// Sees every field of every span, late ones included.
    #[derive(Clone, Default)]
    struct Capture(Arc<Mutex<BTreeMap<u64, (String, Fields)>>>);

    struct Visit<'a>(&'a mut Fields);

    impl field::Visit for Visit<'_> {
        fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
            self.0.insert(field.name().to_owned(), format!("{value:?}"));
        }
    }

    impl<S: tracing::Subscriber> Layer<S> for Capture {
        fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
            let mut fields = Fields::new();
            attributes.record(&mut Visit(&mut fields));
            let name = attributes.metadata().name().to_owned();
            self.0.lock().unwrap().insert(id.into_u64(), (name, fields));
        }

        fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
            let mut spans = self.0.lock().unwrap();
            values.record(&mut Visit(&mut spans.get_mut(&id.into_u64()).unwrap().1));
        }
    }

    fn captured(work: impl FnOnce()) -> BTreeMap<String, Fields> {
        let capture = Capture::default();
        let subscriber = tracing_subscriber::registry().with(capture.clone());
        tracing::subscriber::with_default(subscriber, work);
        let spans = capture.0.lock().unwrap();
        spans.values().cloned().collect()
    }

    #[test]
    fn every_late_field_arrives() {
        let spans = captured(|| {
            let span = prefill(9);
            span.record("chunks", 1).record("seconds", 0.5);
            let span = decode();
            span.record("generated_tokens", 3)
                .record("finish_reason", "stop")
                .record("seconds", 0.1);
            knot_block("lm_head.weight", 64).record("from", "origin");
            drop(resident_rows("decode", 2));
        });
        let expected: [(&str, &[(&str, &str)]); 4] = [
            (
                "prefill",
                &[("prompt_tokens", "9"), ("chunks", "1"), ("seconds", "0.5")],
            ),
            (
                "decode",
                &[
                    ("generated_tokens", "3"),
                    ("finish_reason", "\"stop\""),
                    ("seconds", "0.1"),
                ],
            ),
            (
                "knot.block",
                &[
                    ("block", "\"lm_head.weight\""),
                    ("bytes", "64"),
                    ("from", "\"origin\""),
                ],
            ),
            (
                "embed.fetch",
                &[
                    ("phase", "\"decode\""),
                    ("rows_asked", "2"),
                    ("resident", "2"),
                ],
            ),
        ];
        for (name, fields) in expected {
            let seen: Vec<(&str, &str)> = spans[name]
                .iter()
                .map(|(field, value)| (field.as_str(), value.as_str()))
                .collect();
            let mut fields = fields.to_vec();
            fields.sort_unstable();
            assert_eq!(seen, fields, "{name}");
        }
    }

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_json_log_shows_late_fields_when_the_span_closes() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let layer = layer(LogFormat::Json, "info", move || writer.clone()).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            decode().record("generated_tokens", 77);
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(line["span"]["name"], "decode");
        assert_eq!(line["span"]["generated_tokens"], 77);
        assert_eq!(line["fields"]["message"], "close");
        assert!(super::layer(LogFormat::Text, "fat_station=loud", std::io::sink).is_err());
    }
}
