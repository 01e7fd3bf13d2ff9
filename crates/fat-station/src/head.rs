//! The resident head: logits from the tied matrix or from `lm_head`, read once, in its stored form.
//! It is loaded while the prompt is computed; whoever needs logits waits for it here, and may use its
//! rows as they arrive.

mod early_rows;

use crate::error::Error;
use crate::knot::Arrivals;
use decoder_models::LmHead;
use early_rows::early_rows;
pub(crate) use early_rows::{Chunk, EarlyRows};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use gkq_v2::Dtype;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

type Loaded = Result<Arc<LmHead>, Arc<Error>>;

/// A head that is there or on its way. Clones wait for the same load.
#[derive(Clone)]
pub struct Head {
    loading: Shared<BoxFuture<'static, Loaded>>,
    early: Arc<Mutex<Option<EarlyRows>>>,
}

/// How the rows of a head are stored.
#[derive(Debug, Clone, Copy)]
pub struct StoredRows {
    /// Element type.
    pub dtype: Dtype,
    /// Bytes of a row.
    pub row_bytes: usize,
}

impl Head {
    /// Starts to load at once; the load is tried once, and every waiter gets its outcome. `load` is
    /// given what is to be told of the head's arrival, if its `rows` are stored one after the other.
    pub fn start<L>(rows: Option<StoredRows>, load: impl FnOnce(Arc<dyn Arrivals>) -> L) -> Self
    where
        L: Future<Output = Result<LmHead, Error>> + Send + 'static,
    {
        let (arrivals, early): (Arc<dyn Arrivals>, _) = match rows {
            Some(rows) => {
                let (cutter, early) = early_rows(rows.dtype, rows.row_bytes);
                (Arc::new(cutter), Some(early))
            }
            None => (Arc::new(()), None),
        };
        let early = Arc::new(Mutex::new(early));
        let (task, unused) = (tokio::spawn(load(arrivals)), Arc::clone(&early));
        let loading = async move {
            let outcome = task.await;
            // Who has not asked by now has the head itself.
            take(&unused);
            match outcome {
                Ok(outcome) => outcome.map(Arc::new).map_err(Arc::new),
                Err(_panicked) => Err(Arc::new(Error::Lost {
                    what: "the load of the head",
                })),
            }
        };
        Self {
            loading: loading.boxed().shared(),
            early,
        }
    }

    /// The head's rows as they arrive, for the first who asks while it is on its way.
    pub(crate) fn early_rows(&self) -> Option<EarlyRows> {
        take(&self.early)
    }

    /// The head, as soon as it is there.
    ///
    /// # Errors
    /// [`Error::Head`] with what kept it from being loaded.
    pub async fn get(&self) -> Result<Arc<LmHead>, Error> {
        self.loading
            .clone()
            .await
            .map_err(|source| Error::Head { source })
    }
}

fn take(early: &Mutex<Option<EarlyRows>>) -> Option<EarlyRows> {
    early.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.loading.peek() {
            None => "loading",
            Some(Ok(_)) => "resident",
            Some(Err(_)) => "failed",
        };
        write!(f, "Head({state})")
    }
}
