//! Failures as OpenAI's error objects. Which status a failure has is decided here and nowhere else.

use super::wire::{ErrorBody, ErrorObject};
use crate::error::{Error, FailureClass};
use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// A refusal, ready to be sent.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    body: Box<ErrorObject>,
    retry_after_s: Option<u32>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let body = Box::new(ErrorObject {
            message: message.into(),
            kind,
            param: None,
            code: None,
            n_prompt_tokens: None,
            n_ctx: None,
        });
        Self {
            status,
            body,
            retry_after_s: None,
        }
    }

    /// 400 for a parameter that is missing, of a wrong type or out of range.
    pub(super) fn parameter(name: &str, message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message);
        error.body.param = Some(name.to_owned());
        error
    }

    /// 400 for a body that is not a JSON object.
    pub(super) fn body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A body that did not arrive whole, or is too large.
    pub(super) fn unread(rejection: &BytesRejection) -> Self {
        Self::new(
            rejection.status(),
            "invalid_request_error",
            rejection.body_text().to_lowercase(),
        )
    }

    pub(super) fn loading() -> Self {
        Self::unavailable("the model is loading")
    }

    pub(super) fn busy() -> Self {
        Self::unavailable("as many requests are waiting as this station holds")
    }

    pub(super) fn ending() -> Self {
        Self::unavailable("the station is shutting down")
    }

    fn unavailable(message: &str) -> Self {
        let mut error = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable_error",
            message,
        );
        error.retry_after_s = Some(1);
        error
    }

    pub(super) fn not_found() -> Self {
        let message = "no such route; there are GET /live, GET /health, POST /v1/completions";
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "this route does not know the method";
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "invalid_request_error",
            message,
        )
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.chain();
        match error {
            Error::Request { parameter, .. } => Self::parameter(parameter, message),
            Error::ContextOverflow {
                prompt_tokens,
                context,
            } => {
                let mut refusal = Self::parameter("prompt", message);
                refusal.body.code = Some("context_length_exceeded");
                refusal.body.n_prompt_tokens = Some(prompt_tokens);
                refusal.body.n_ctx = Some(context);
                refusal
            }
            Error::PromptLength { context, .. } => {
                let mut refusal = Self::parameter("prompt", message);
                refusal.body.code = Some("context_length_exceeded");
                refusal.body.n_ctx = Some(context);
                refusal
            }
            Error::Template { .. } => Self::parameter("prompt", message),
            Error::Cancelled => Self::ending(),
            error => {
                // The operator needs the whole account, the caller what it means for them.
                tracing::error!(error = message, "a request failed");
                match error.class() {
                    FailureClass::Unreachable => Self::new(
                        StatusCode::BAD_GATEWAY,
                        "origin_error",
                        "the origin of the model's rows cannot be reached",
                    ),
                    FailureClass::Integrity => Self::new(
                        StatusCode::BAD_GATEWAY,
                        "origin_error",
                        "the origin sent bytes that do not match the model",
                    ),
                    _ => Self::new(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "server_error",
                        "the station failed; its log has the reason",
                    ),
                }
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorBody { error: *self.body })).into_response();
        if let Some(seconds) = self.retry_after_s {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
