//! The span `embed.fetch`: its late fields arrive, and they are the report's.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
};

use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt},
    registry::LookupSpan,
};

use crate::{
    source::Fault,
    table::{Table, config, ids},
};

type Fields = BTreeMap<&'static str, u64>;

/// Collects the fields of the `embed.fetch` spans of one thread, early and late, in order of
/// creation. It is the process's default, for a callsite that another test meets first on a thread
/// without any subscriber would be switched off for all; hence the thread.
#[derive(Clone)]
struct Capture {
    thread: ThreadId,
    spans: Arc<Mutex<Vec<(u64, Fields)>>>,
}

struct Numbers<'a>(&'a mut Fields);

impl Visit for Numbers<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), value);
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        panic!("field {field} is no number: {value:?}");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let here = thread::current().id() == self.thread;
        if here && attributes.metadata().name() == "embed.fetch" {
            let mut fields = Fields::new();
            attributes.record(&mut Numbers(&mut fields));
            self.spans.lock().unwrap().push((id.into_u64(), fields));
        }
    }
    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.spans.lock().unwrap();
        let span = spans
            .iter_mut()
            .rev()
            .find(|(span, _)| *span == id.into_u64());
        if let Some((_, fields)) = span {
            values.record(&mut Numbers(fields));
        }
    }
}

fn fields(pairs: [(&'static str, u64); 9]) -> Fields {
    pairs.into_iter().collect()
}

#[tokio::test]
async fn the_fetch_span_carries_what_the_batch_took() {
    // A current-thread runtime: the spans of this test are those of this thread.
    let capture = Capture {
        thread: thread::current().id(),
        spans: Arc::default(),
    };
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let table = Table::new(9000, 700);
    let source = table.source();
    let store = table.store(&source, config(100));

    store.rows(&ids([5, 5000, 5])).await.unwrap();
    store.rows(&ids([5000, 6])).await.unwrap();
    source.fault(3, Fault::Broken);
    store.rows(&ids([5, 7])).await.unwrap_err();

    let spans: Vec<Fields> = capture
        .spans
        .lock()
        .unwrap()
        .iter()
        .map(|(_, fields)| fields.clone())
        .collect();
    let expected = [
        [3, 0, 2, 0, 1400, 1400, 2, 1],
        [2, 1, 1, 0, 700, 700, 1, 1],
        // A batch that fails has its fields too.
        [2, 1, 1, 0, 0, 0, 1, 1],
    ]
    .map(
        |[
            asked,
            hit,
            missed,
            coalesced,
            received,
            useful,
            requests,
            round_trips,
        ]| {
            fields([
                ("rows_asked", asked),
                ("hit", hit),
                ("missed", missed),
                ("coalesced", coalesced),
                ("disk", 0),
                ("bytes_received", received),
                ("bytes_useful", useful),
                ("requests", requests),
                ("round_trips", round_trips),
            ])
        },
    );
    assert_eq!(spans, expected);
}
