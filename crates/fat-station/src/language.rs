//! What turns text into tokens and says where they end: tokenizer, chat template, the union of all
//! end-of-sequence ids, the length of the context. It knows no weights.

use crate::chat::{ChatTemplate, Message};
use crate::error::Error;
use crate::knot::{OpenKnot, Purpose, WantedPayload};
use crate::traffic::Traffic;
use compact_tokenizer::{AddSpecial, Tokenizer};
use decoder_models::DecoderConfig;
use gkq_v2::{Knot, SectionKind};
use std::collections::BTreeSet;

/// Bytes of a prompt for each token of the context. The longest tokens of published vocabularies are
/// runs of 128 spaces; what is longer than twice that on average cannot fit, and is not tokenised to
/// find out.
const PROMPT_BYTES_PER_TOKEN: usize = 256;

/// Tokenizer and template of one model.
#[derive(Debug)]
pub struct Language {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// The chat template, where the model carries one.
    pub chat: Option<ChatTemplate>,
    /// Tokens that end an answer.
    pub eos: BTreeSet<u32>,
    /// Most tokens of a prompt and its answer together.
    pub context: usize,
}

/// How a prompt is given to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptForm {
    /// As a user's message through the chat template, where the model carries one.
    Chat,
    /// As it is, with the tokens that the model adds around every text.
    Raw,
    /// As it is, with nothing added.
    Bare,
}

impl Language {
    /// Reads the language sections of `knot`. `max_context` lowers the model's own context.
    ///
    /// # Errors
    /// [`Error::Config`] where the knot has no tokenizer, [`Error::Tokenizer`] and
    /// [`Error::Template`] for damaged ones, [`Error::Origin`] where it cannot be fetched.
    pub async fn load(
        knot: &OpenKnot,
        config: &DecoderConfig,
        max_context: Option<usize>,
        traffic: &Traffic,
    ) -> Result<Self, Error> {
        let object = || knot.locator().to_string();
        let section = knot
            .front()
            .section(SectionKind::Tokenizer)
            .ok_or_else(|| {
                Error::config(format!("knot {} has no tokenizer section", knot.locator()))
            })?;
        let wanted = [WantedPayload::section(section, "tokenizer")];
        let payloads = knot.payloads(&wanted, Purpose::words(), traffic).await?;
        let bytes = payloads.into_iter().next().ok_or(Error::Lost {
            what: "the tokenizer's payload",
        })?;
        // A vocabulary of 262,144 entries is checked in some milliseconds: off the runtime.
        let tokenizer = tokio::task::spawn_blocking(move || Tokenizer::from_bytes(bytes))
            .await
            .map_err(|_panicked| Error::Lost {
                what: "the tokenizer",
            })?
            .map_err(|source| Error::Tokenizer {
                object: object(),
                source: Box::new(source),
            })?;
        let eos = end_of_sequence(config, knot.front(), &tokenizer)?;
        // Parsing is bounded, by the size of a template, and waits for a thread: other parts of the
        // model may be loading on this one.
        let chat = chat_template(knot.front(), &tokenizer)?;
        let own = config.max_position_embeddings;
        let context = max_context.map_or(own, |limit| limit.min(own));
        Ok(Self {
            tokenizer,
            chat,
            eos,
            context,
        })
    }

    /// Tokens of a text, however many.
    ///
    /// # Errors
    /// [`Error::Template`] where the template refuses it.
    pub fn tokens(&self, text: &str, form: PromptForm) -> Result<Vec<u32>, Error> {
        Ok(match (&self.chat, form) {
            // The template writes the special tokens itself.
            (Some(chat), PromptForm::Chat) => {
                let text = chat.render(&[Message::user(text)])?;
                self.tokenizer.encode(&text, AddSpecial::No)
            }
            (_, PromptForm::Bare) => self.tokenizer.encode(text, AddSpecial::No),
            _ => self.tokenizer.encode(text, AddSpecial::Yes),
        })
    }

    /// Refuses by its length alone a prompt that cannot fit the context.
    ///
    /// # Errors
    /// [`Error::PromptLength`] above 256 bytes for each token of the context.
    pub fn check_length(&self, text: &str) -> Result<(), Error> {
        let limit_bytes = self.context.saturating_mul(PROMPT_BYTES_PER_TOKEN);
        if text.len() > limit_bytes {
            return Err(Error::PromptLength {
                prompt_bytes: text.len(),
                limit_bytes,
                context: self.context,
            });
        }
        Ok(())
    }

    /// Tokens of a prompt.
    ///
    /// # Errors
    /// Those of [`Language::check_length`] and [`Language::tokens`]; [`Error::Request`] for a prompt without a single token,
    /// [`Error::ContextOverflow`] where no room is left to answer.
    pub fn prompt(&self, text: &str, form: PromptForm) -> Result<Vec<u32>, Error> {
        self.check_length(text)?;
        let tokens = self.tokens(text, form)?;
        if tokens.is_empty() {
            let message = "prompt must have at least one token, found none".to_owned();
            return Err(Error::Request {
                parameter: "prompt",
                message,
            });
        }
        if tokens.len() >= self.context {
            return Err(Error::ContextOverflow {
                prompt_tokens: tokens.len(),
                context: self.context,
            });
        }
        Ok(tokens)
    }
}

/// The union of what config, generation config and tokenizer call an end: each alone is known to
/// be incomplete for some published model.
fn end_of_sequence(
    config: &DecoderConfig,
    front: &Knot,
    tokenizer: &Tokenizer,
) -> Result<BTreeSet<u32>, Error> {
    let mut eos: BTreeSet<u32> = config.eos_token_ids.iter().copied().collect();
    eos.extend(tokenizer.eos_ids());
    if let Some(text) = front.text(SectionKind::GenerationConfig) {
        eos.extend(generation_eos(text)?);
    }
    Ok(eos)
}

/// `eos_token_id` of a generation_config.json: absent, a number or a list of numbers.
fn generation_eos(text: &str) -> Result<Vec<u32>, Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Ids {
        One(u32),
        Several(Vec<u32>),
    }
    #[derive(serde::Deserialize)]
    struct GenerationConfig {
        #[serde(default)]
        eos_token_id: Option<Ids>,
    }
    let config: GenerationConfig = serde_json::from_str(text)
        .map_err(|error| Error::config(format!("generation config of the knot: {error}")))?;
    Ok(match config.eos_token_id {
        None => Vec::new(),
        Some(Ids::One(id)) => vec![id],
        Some(Ids::Several(ids)) => ids,
    })
}

fn chat_template(front: &Knot, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, Error> {
    let Some(source) = front.text(SectionKind::ChatTemplate) else {
        return Ok(None);
    };
    let config: serde_json::Value = match front.text(SectionKind::TokenizerConfig) {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| Error::config(format!("tokenizer config of the knot: {error}")))?,
        None => serde_json::Value::Null,
    };
    let text_of = |id: u32| tokenizer.token_text(id);
    let bos = special(&config["bos_token"]).or_else(|| tokenizer.bos_id().and_then(text_of));
    let first_eos = || tokenizer.eos_ids().iter().next().copied().and_then(text_of);
    let eos = special(&config["eos_token"]).or_else(first_eos);
    ChatTemplate::new(source, bos, eos).map(Some)
}

/// A special token of a tokenizer_config.json: a string, or an object with its `content`.
fn special(value: &serde_json::Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value["content"].as_str())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_sequence_is_a_number_a_list_or_absent() {
        assert_eq!(
            generation_eos(r#"{"eos_token_id": 7, "top_p": 0.9}"#).unwrap(),
            [7]
        );
        assert_eq!(
            generation_eos(r#"{"eos_token_id": [7, 9]}"#).unwrap(),
            [7, 9]
        );
        assert!(
            generation_eos(r#"{"eos_token_id": null}"#)
                .unwrap()
                .is_empty()
        );
        assert!(generation_eos("{}").unwrap().is_empty());
        let error = generation_eos(r#"{"eos_token_id": "x"}"#)
            .unwrap_err()
            .to_string();
        assert!(error.contains("generation config"), "{error}");
    }

    #[test]
    fn special_tokens_are_strings_or_objects() {
        assert_eq!(special(&serde_json::json!("<s>")).as_deref(), Some("<s>"));
        assert_eq!(
            special(&serde_json::json!({"content": "<s>"})).as_deref(),
            Some("<s>")
        );
        assert_eq!(special(&serde_json::Value::Null), None);
    }
}
