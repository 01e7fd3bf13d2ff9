//! What a fetch is for, and who is told while it goes on.

use super::streams::Rank;
use crate::traffic::Kind;
use bytes::Bytes;
use std::fmt::Debug;
use std::sync::Arc;

/// Is told what arrives of the payloads of one fetch; `at` is a payload's place in the list of those
/// wanted. Called where bytes are taken from the wire: it must not wait.
pub trait Arrivals: Debug + Send + Sync {
    /// Whatever has to be asked for stands in line: what asks now comes behind it.
    fn in_line(&self) {}

    /// Bytes of a payload that nobody has checked, at `offset` of it. They come in order; an offset
    /// of 0 again means that those before were wrong. A payload that is here already, or that another
    /// station fetches, has no pieces.
    fn piece(&self, _at: usize, _offset: u64, _piece: &Bytes) {}

    /// A payload, whole and checked.
    fn arrived(&self, at: usize, payload: &Bytes);
}

/// Nobody is told.
impl Arrivals for () {
    fn arrived(&self, _at: usize, _payload: &Bytes) {}
}

/// What a fetch is for.
#[derive(Debug, Clone)]
pub struct Purpose {
    /// How its bytes are counted.
    pub kind: Kind,
    /// When it is needed.
    pub rank: Rank,
    /// Who is told.
    pub arrivals: Arc<dyn Arrivals>,
}

impl From<Kind> for Purpose {
    fn from(kind: Kind) -> Self {
        let rank = match kind {
            Kind::Head => Rank::Head,
            Kind::Blocks | Kind::Probe => Rank::Layers,
        };
        Self {
            kind,
            rank,
            arrivals: Arc::new(()),
        }
    }
}

impl Purpose {
    /// The tokenizer.
    #[must_use]
    pub fn words() -> Self {
        Self {
            rank: Rank::Words,
            ..Self::from(Kind::Blocks)
        }
    }

    /// The same, with somebody who is told.
    #[must_use]
    pub fn telling(self, arrivals: Arc<dyn Arrivals>) -> Self {
        Self { arrivals, ..self }
    }
}
