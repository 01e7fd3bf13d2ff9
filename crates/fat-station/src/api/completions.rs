//! `POST /v1/completions`: waits for its turn, tokenises, reads the prompt's rows, computes, the
//! first and the last on a blocking thread. A client that goes away ends its session at the next step.

use super::Service;
use super::error::ApiError;
use super::wire::{CompletionRequest, CompletionResponse, Degraded, Usage};
use crate::embedding::EmbeddedPrompt;
use crate::engine::Waiting;
use crate::engine::session::{FinishReason, TokenSink, generate};
use crate::error::Error;
use crate::language::PromptForm;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use std::sync::Arc;
use tokio::runtime::Handle;
use tracing::Instrument as _;

/// The text of an answer.
#[derive(Default)]
struct Text(String);

impl TokenSink for Text {
    fn text(&mut self, piece: &str) -> Result<(), Error> {
        self.0.push_str(piece);
        Ok(())
    }
}

pub(super) async fn complete(
    State(service): State<Arc<Service>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<CompletionResponse>, ApiError> {
    let body = body.map_err(|rejection| ApiError::unread(&rejection))?;
    let CompletionRequest { prompt, options } = CompletionRequest::parse(&body)?;
    let model = Arc::clone(service.model()?);
    model.language.check_length(&prompt)?;
    let turn = service.admission.turn().await?;
    let model_of_thread = Arc::clone(&model);
    // The turn goes along: work for a client that is gone still is work.
    let tokenise = move || {
        let tokens = model_of_thread.language.prompt(&prompt, PromptForm::Raw);
        (tokens, turn)
    };
    let tokenised = tokio::task::spawn_blocking(tokenise).await;
    let (tokens, turn) = tokenised.map_err(|_panicked| Error::Lost { what: "the tokens" })?;
    let tokens = tokens?;
    let prompt_tokens = tokens.len();
    let span = tracing::info_span!("completion", prompt_tokens);
    let prompt = EmbeddedPrompt::read(tokens, &model.embedding, &model.traffic)
        .instrument(span.clone())
        .await?;

    // The guard cancels the session when this future is dropped: when the client is gone.
    let cancel = service.cancel.child_token();
    let _gone = cancel.clone().drop_guard();
    let waiting = Waiting {
        runtime: Handle::current(),
        cancel,
    };
    let service_of_thread = Arc::clone(&service);
    let work = move || {
        // The turn ends with the thread, not with the client.
        let _turn = turn;
        let _entered = span.enter();
        let mut text = Text::default();
        let generation = generate(&model, prompt, &options, &waiting, &mut text)?;
        let tally = &service_of_thread.tally;
        tally.add(
            prompt_tokens,
            generation.tokens.len(),
            generation.first_token,
        );
        Ok::<_, Error>((model, text.0, generation))
    };
    let outcome = tokio::task::spawn_blocking(work).await;
    let (model, text, generation) = outcome.map_err(|_panicked| Error::Lost {
        what: "the computation",
    })??;
    if generation.finish == FinishReason::Cancelled {
        return Err(ApiError::ending());
    }
    let completion_tokens = generation.tokens.len();
    let usage = Usage {
        prompt_tokens,
        completion_tokens,
        total_tokens: prompt_tokens + completion_tokens,
    };
    let degraded = Degraded::of(generation.approximated_rows);
    Ok(Json(CompletionResponse {
        degraded,
        ..CompletionResponse::new(&model.name, text, generation.finish, usage)
    }))
}
