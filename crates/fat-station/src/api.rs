//! The HTTP side: the only place that knows OpenAI's JSON. It translates requests into the engine's
//! options and answers back; it computes nothing and reads no flags.
//!
//! | route | answer |
//! |---|---|
//! | `GET /live` | 200 as soon as the process listens |
//! | `GET /health` | 200 once the model is loaded, 503 before |
//! | `POST /v1/completions` | a completion, not streamed |

mod admission;
mod completions;
mod connection;
mod error;
mod wire;

pub use admission::Admission;
pub use connection::{ConnectionLimits, serve_connections};
pub use error::ApiError;

use crate::model::Model;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Largest request body: a prompt of a million tokens would not fit any context.
const BODY_BYTES: usize = 2 << 20;

/// What the handlers share.
#[derive(Debug)]
pub struct Service {
    model: OnceLock<Arc<Model>>,
    admission: Admission,
    tally: Tally,
    cancel: CancellationToken,
}

/// Totals of all answers, for the end-of-run summary.
#[derive(Debug, Default)]
pub struct Tally {
    prompt_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    first_token: OnceLock<Instant>,
}

impl Tally {
    fn add(&self, prompt_tokens: usize, generated_tokens: usize, first_token: Option<Instant>) {
        self.prompt_tokens
            .fetch_add(prompt_tokens as u64, Ordering::Relaxed);
        self.generated_tokens
            .fetch_add(generated_tokens as u64, Ordering::Relaxed);
        if let Some(first) = first_token {
            self.first_token.get_or_init(|| first);
        }
    }

    /// Tokens of all prompts.
    #[must_use]
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens.load(Ordering::Relaxed)
    }

    /// Tokens of all answers.
    #[must_use]
    pub fn generated_tokens(&self) -> u64 {
        self.generated_tokens.load(Ordering::Relaxed)
    }

    /// When the first token of all came.
    #[must_use]
    pub fn first_token(&self) -> Option<Instant> {
        self.first_token.get().copied()
    }
}

impl Service {
    /// A service without a model yet. Sessions end early when `cancel` is cancelled.
    #[must_use]
    pub fn new(admission: Admission, cancel: CancellationToken) -> Self {
        Self {
            model: OnceLock::new(),
            admission,
            tally: Tally::default(),
            cancel,
        }
    }

    /// From now on requests are answered by `model`.
    pub fn ready(&self, model: Arc<Model>) {
        // A station loads one model; a second call would be a mistake without consequences.
        let _ = self.model.set(model);
    }

    /// Totals so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    fn model(&self) -> Result<&Arc<Model>, ApiError> {
        self.model.get().ok_or_else(ApiError::loading)
    }
}

/// The routes over `service`.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/live", get(|| async { wire::status("live") }))
        .route("/health", get(health))
        .route("/v1/completions", post(completions::complete))
        .fallback(|| async { ApiError::not_found() })
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(service)
}

async fn health(State(service): State<Arc<Service>>) -> Response {
    match service.model.get() {
        Some(_) => wire::status("ok").into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, wire::status("loading")).into_response(),
    }
}
