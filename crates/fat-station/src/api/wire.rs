//! The JSON of requests and answers, field by field as OpenAI's API reference has it, with llama.cpp's
//! `top_k` and `min_p` beside. Wrong types are refused by name, and so are known fields that would
//! change the answer and are not served; fields nobody knows are ignored.
//!
//! | field | absent or null |
//! |---|---|
//! | `prompt` | refused |
//! | `max_tokens` | 16, as OpenAI |
//! | `temperature` | 0, the most likely token each time; OpenAI has 1. As `run`: the same request has the same answer |
//! | `top_p`, `top_k`, `min_p` | 1, 0, 0: every token stays |
//! | `seed` | a fresh one |
//! | `stop` | none |

use super::error::ApiError;
use crate::engine::sampler::SamplingOptions;
use crate::engine::session::{FinishReason, GenerateOptions};
use axum::Json;
use serde::Serialize;
use serde_json::{Map, Value};

/// OpenAI's default for completions.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Most stop texts of a request.
const STOPS_MAX: usize = 16;

/// What a field that is not served may say, because it changes nothing.
#[derive(Debug, Clone, Copy)]
enum Neutral {
    Number(f64),
    False,
    EmptyText,
    /// `{}` or `[]`.
    Empty,
    /// `{"type": "text"}`.
    TextFormat,
}

/// Fields of OpenAI's and llama.cpp's APIs that would change the answer and are not served.
const NOT_SERVED: &[(&str, Neutral)] = &[
    ("stream", Neutral::False),
    ("echo", Neutral::False),
    ("n", Neutral::Number(1.0)),
    ("best_of", Neutral::Number(1.0)),
    ("suffix", Neutral::EmptyText),
    ("presence_penalty", Neutral::Number(0.0)),
    ("frequency_penalty", Neutral::Number(0.0)),
    ("repeat_penalty", Neutral::Number(1.0)),
    ("repetition_penalty", Neutral::Number(1.0)),
    ("typical_p", Neutral::Number(1.0)),
    ("mirostat", Neutral::Number(0.0)),
    ("logit_bias", Neutral::Empty),
    ("ignore_eos", Neutral::False),
    ("grammar", Neutral::EmptyText),
    ("json_schema", Neutral::Empty),
    ("response_format", Neutral::TextFormat),
];

impl Neutral {
    fn is(self, value: &Value) -> bool {
        match self {
            Self::Number(number) => value.as_f64() == Some(number),
            Self::False => value == &Value::Bool(false),
            Self::EmptyText => value.as_str() == Some(""),
            Self::Empty => {
                value.as_object().is_some_and(Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty)
            }
            Self::TextFormat => value["type"] == "text",
        }
    }

    fn name(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::False => "false".to_owned(),
            Self::EmptyText => "an empty string".to_owned(),
            Self::Empty => "empty".to_owned(),
            Self::TextFormat => "of type text".to_owned(),
        }
    }
}

/// A checked request.
#[derive(Debug)]
pub(super) struct CompletionRequest {
    pub(super) prompt: String,
    pub(super) options: GenerateOptions,
}

impl CompletionRequest {
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| ApiError::body(format!("the body is not JSON: {error}")))?;
        let Value::Object(fields) = value else {
            return Err(ApiError::body(format!(
                "the body must be a JSON object, found {}",
                kind(&value)
            )));
        };
        refuse_what_is_not_served(&fields)?;
        let prompt = text(&fields, "prompt")?
            .ok_or_else(|| ApiError::parameter("prompt", "prompt is missing"))?;
        let sampling = SamplingOptions {
            temperature: number(&fields, "temperature")?.unwrap_or(0.0),
            top_k: whole(&fields, "top_k")?.unwrap_or(0),
            top_p: number(&fields, "top_p")?.unwrap_or(1.0),
            min_p: number(&fields, "min_p")?.unwrap_or(0.0),
            seed: whole(&fields, "seed")?.map(|seed| seed as u64),
        };
        let options = GenerateOptions {
            max_tokens: whole(&fields, "max_tokens")?.unwrap_or(DEFAULT_MAX_TOKENS),
            sampling,
            stop: stops(&fields)?,
            ..GenerateOptions::default()
        };
        if options.max_tokens == 0 {
            return Err(ApiError::parameter(
                "max_tokens",
                "max_tokens must be at least 1, found 0",
            ));
        }
        sampling.validate()?;
        Ok(Self { prompt, options })
    }
}

/// Fields that would change the answer if they were honoured: to ignore them would be to lie.
fn refuse_what_is_not_served(fields: &Map<String, Value>) -> Result<(), ApiError> {
    for &(name, neutral) in NOT_SERVED {
        if let Some(value) = present(fields, name).filter(|value| !neutral.is(value)) {
            let (neutral, found) = (neutral.name(), kind(value));
            let message =
                format!("{name} is not served: it must be {neutral} or left out, found {found}");
            return Err(ApiError::parameter(name, message));
        }
    }
    match present(fields, "logprobs") {
        Some(_) => Err(ApiError::parameter(
            "logprobs",
            "logprobs are not served; leave them out",
        )),
        None => Ok(()),
    }
}

/// A field's value; `null` is the same as absent, as OpenAI's clients send it.
fn present<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn wrong_type(name: &str, expected: &str, found: &Value) -> ApiError {
    ApiError::parameter(
        name,
        format!("{name} must be {expected}, found {}", kind(found)),
    )
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, ApiError> {
    let Some(value) = present(fields, name) else {
        return Ok(None);
    };
    let text = value
        .as_str()
        .ok_or_else(|| wrong_type(name, "a string", value))?;
    Ok(Some(text.to_owned()))
}

fn whole(fields: &Map<String, Value>, name: &str) -> Result<Option<usize>, ApiError> {
    let Some(value) = present(fields, name) else {
        return Ok(None);
    };
    let number = value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok());
    number
        .map(Some)
        .ok_or_else(|| wrong_type(name, "a whole number of at least 0", value))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "sampling is computed from f32 options"
)]
fn number(fields: &Map<String, Value>, name: &str) -> Result<Option<f32>, ApiError> {
    let Some(value) = present(fields, name) else {
        return Ok(None);
    };
    let number = value
        .as_f64()
        .ok_or_else(|| wrong_type(name, "a number", value))?;
    Ok(Some(number as f32))
}

fn stops(fields: &Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let Some(value) = present(fields, "stop") else {
        return Ok(Vec::new());
    };
    let wrong = || wrong_type("stop", "a string or an array of strings", value);
    let stops = match value {
        Value::String(stop) => vec![stop.clone()],
        Value::Array(stops) => stops
            .iter()
            .map(|stop| stop.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect::<Result<_, _>>()?,
        _ => return Err(wrong()),
    };
    if stops.len() > STOPS_MAX {
        let message = format!(
            "stop may have {STOPS_MAX} texts at most, found {}",
            stops.len()
        );
        return Err(ApiError::parameter("stop", message));
    }
    Ok(stops)
}

/// What a value is, for people. A number is shown: it may be the wrong one of its type.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// `text_completion`.
#[derive(Debug, Serialize)]
pub(super) struct CompletionResponse {
    pub(super) id: String,
    pub(super) object: &'static str,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) choices: [Choice; 1],
    pub(super) usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) degraded: Option<Degraded>,
}

/// Present only in an answer that is not the model's own.
#[derive(Debug, Serialize)]
pub(super) struct Degraded {
    /// Positions whose embedding row was approximated, as its origin could not be reached.
    pub(super) approximated_rows: u64,
}

impl Degraded {
    pub(super) fn of(approximated_rows: u64) -> Option<Self> {
        (approximated_rows > 0).then_some(Self { approximated_rows })
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Choice {
    pub(super) text: String,
    pub(super) index: u32,
    pub(super) logprobs: Option<()>,
    pub(super) finish_reason: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Usage {
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    pub(super) total_tokens: usize,
}

impl CompletionResponse {
    pub(super) fn new(model: &str, text: String, finish: FinishReason, usage: Usage) -> Self {
        let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            id: format!("cmpl-{:032x}", rand::random::<u128>()),
            object: "text_completion",
            created: created.unwrap_or_default().as_secs(),
            model: model.to_owned(),
            choices: [Choice {
                text,
                index: 0,
                logprobs: None,
                finish_reason: finish.name(),
            }],
            usage,
            degraded: None,
        }
    }
}

/// `{"error": {...}}`.
#[derive(Debug, Serialize)]
pub(super) struct ErrorBody {
    pub(super) error: ErrorObject,
}

#[derive(Debug, Serialize)]
pub(super) struct ErrorObject {
    pub(super) message: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n_prompt_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n_ctx: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(super) struct Status {
    status: &'static str,
}

pub(super) fn status(status: &'static str) -> Json<Status> {
    Json(Status { status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;

    fn refusal(body: &str) -> String {
        let error = CompletionRequest::parse(body.as_bytes()).unwrap_err();
        assert_eq!(error.into_response().status(), 400, "{body}");
        format!(
            "{:?}",
            CompletionRequest::parse(body.as_bytes()).unwrap_err()
        )
    }

    #[test]
    fn a_full_request_is_understood() {
        let body = r#"{"model": "m", "prompt": "Hi", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9,
            "seed": 7, "stop": ["a", "b"], "user": "ignored", "n": 1, "stream": false, "logprobs": null,
            "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "suffix": "",
            "response_format": {"type": "text"}}"#;
        let request = CompletionRequest::parse(body.as_bytes()).unwrap();
        assert_eq!(request.prompt, "Hi");
        assert_eq!(request.options.max_tokens, 5);
        assert_eq!(request.options.stop, ["a", "b"]);
        let expected = SamplingOptions {
            temperature: 0.5,
            top_p: 0.9,
            seed: Some(7),
            ..SamplingOptions::default()
        };
        assert_eq!(request.options.sampling, expected);
        let plain = CompletionRequest::parse(br#"{"prompt": "x", "stop": "."}"#).unwrap();
        assert_eq!(plain.options.max_tokens, 16);
        assert_eq!(plain.options.stop, ["."]);
        assert_eq!(plain.options.sampling, SamplingOptions::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, name) in [
            ("{", "not JSON"),
            ("[1]", "found an array"),
            ("{}", "prompt is missing"),
            (
                r#"{"prompt": ["a"]}"#,
                "prompt must be a string, found an array",
            ),
            (
                r#"{"prompt": "a", "max_tokens": "5"}"#,
                "max_tokens must be a whole number",
            ),
            (r#"{"prompt": "a", "max_tokens": -1}"#, "found -1"),
            (r#"{"prompt": "a", "max_tokens": 1.5}"#, "found 1.5"),
            (r#"{"prompt": "a", "max_tokens": 0}"#, "at least 1"),
            (
                r#"{"prompt": "a", "temperature": "hot"}"#,
                "temperature must be a number",
            ),
            (
                r#"{"prompt": "a", "temperature": -0.5}"#,
                "temperature must be",
            ),
            (r#"{"prompt": "a", "top_p": 2}"#, "top_p must be"),
            (r#"{"prompt": "a", "seed": true}"#, "seed must be"),
            (r#"{"prompt": "a", "stop": 5}"#, "stop must be"),
            (r#"{"prompt": "a", "stop": ["x", 5]}"#, "stop must be"),
            (r#"{"prompt": "a", "stream": true}"#, "stream"),
            (
                r#"{"prompt": "a", "stream": 1}"#,
                "stream is not served: it must be false",
            ),
            (
                r#"{"prompt": "a", "n": 2}"#,
                "n is not served: it must be 1",
            ),
            (r#"{"prompt": "a", "n": "x"}"#, "found a string"),
            (
                r#"{"prompt": "a", "presence_penalty": 0.5}"#,
                "presence_penalty",
            ),
            (
                r#"{"prompt": "a", "frequency_penalty": -1}"#,
                "frequency_penalty",
            ),
            (
                r#"{"prompt": "a", "logit_bias": {"5": -100}}"#,
                "logit_bias",
            ),
            (r#"{"prompt": "a", "suffix": "b"}"#, "suffix"),
            (r#"{"prompt": "a", "best_of": 3}"#, "best_of"),
            (
                r#"{"prompt": "a", "response_format": {"type": "json_object"}}"#,
                "response_format",
            ),
            (r#"{"prompt": "a", "logprobs": 3}"#, "logprobs"),
        ] {
            let refused = refusal(body);
            assert!(refused.contains(name), "{body}: {refused}");
        }
        let many = vec!["\"s\""; STOPS_MAX + 1].join(",");
        assert!(refusal(&format!(r#"{{"prompt": "a", "stop": [{many}]}}"#)).contains("at most"));
    }
}
