//! The resident head: logits from the tied matrix or from `lm_head`, read once, in its stored form.
//! It is loaded while the prompt is computed; whoever needs logits waits for it here.

use crate::error::Error;
use decoder_models::LmHead;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

type Loaded = Result<Arc<LmHead>, Arc<Error>>;

/// A head that is there or on its way. Clones wait for the same load.
#[derive(Clone)]
pub struct Head {
    loading: Shared<BoxFuture<'static, Loaded>>,
}

impl Head {
    /// Starts to load at once; the load is tried once, and every waiter gets its outcome.
    pub fn start(load: impl Future<Output = Result<LmHead, Error>> + Send + 'static) -> Self {
        let task = tokio::spawn(load);
        let loading = async move {
            match task.await {
                Ok(outcome) => outcome.map(Arc::new).map_err(Arc::new),
                Err(_panicked) => Err(Arc::new(Error::Lost {
                    what: "the load of the head",
                })),
            }
        };
        Self {
            loading: loading.boxed().shared(),
        }
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
