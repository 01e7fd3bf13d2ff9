//! Chat templates: Jinja as Hugging Face transformers renders it (trimmed blocks, `tojson` without
//! HTML escapes, `strftime_now`, `raise_exception`, Python's string methods, `{% generation %}`).
//! It does not tokenise. Specification: transformers' `apply_chat_template`.

use crate::calendar;
use crate::error::Error;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};

const NAME: &str = "chat_template";

/// One message of a conversation.
#[derive(Debug, Clone)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A user's message.
    #[must_use]
    pub fn user(content: &str) -> Self {
        Self {
            role: "user".to_owned(),
            content: content.to_owned(),
        }
    }

    fn value(&self) -> Value {
        Value::from_pairs([
            ("role", self.role.as_str()),
            ("content", self.content.as_str()),
        ])
    }
}

/// A model's template, parsed once.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

impl ChatTemplate {
    /// Parses `source`. The special tokens are what the template sees as `bos_token` and
    /// `eos_token`.
    ///
    /// # Errors
    /// [`Error::Template`] with the line of the first mistake.
    pub fn new(
        source: &str,
        bos_token: Option<String>,
        eos_token: Option<String>,
    ) -> Result<Self, Error> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(|error| template_error(&error))?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", |format: String| {
            calendar::now().format(&format)
        });
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(|error| template_error(&error))?;
        Ok(Self {
            environment,
            bos_token,
            eos_token,
        })
    }

    /// Text of the conversation, ending where the assistant begins to answer.
    ///
    /// # Errors
    /// [`Error::Template`] where the template refuses the messages or is wrong.
    pub fn render(&self, messages: &[Message]) -> Result<String, Error> {
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| template_error(&error))?;
        template
            .render(context! {
                messages => messages.iter().map(Message::value).collect::<Value>(),
                add_generation_prompt => true,
                bos_token => self.bos_token.as_deref(),
                eos_token => self.eos_token.as_deref(),
            })
            .map_err(|error| template_error(&error))
    }
}

fn template_error(error: &minijinja::Error) -> Error {
    let mut message = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    if let Some(line) = error.line() {
        message = format!("line {line}: {message}");
    }
    Error::Template { message }
}

fn raise_exception(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// `{% generation %}` marks the assistant's tokens for training and does nothing here. Turning it
/// into a condition that holds keeps the white-space control of the tag.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open);
        text.push_str(before);
        let Some(close) = tag.find("%}") else {
            text.push_str(tag);
            return text;
        };
        let (tag, after) = tag.split_at(close + 2);
        let word = tag[2..close].trim_matches(['-', '+', ' ', '\t', '\n', '\r']);
        match word {
            "generation" => text.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => text.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => text.push_str(tag),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=...)`: separators `", "` and `": "` on
/// one line, `","` at the line ends of the indented form, and nothing escaped for HTML.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the template engine hands arguments over"
)]
fn to_json(
    value: &Value,
    indent: Option<usize>,
    kwargs: Kwargs,
) -> Result<Value, minijinja::Error> {
    let indent = indent.or(kwargs.get::<Option<usize>>("indent")?);
    for accepted in ["ensure_ascii", "separators", "sort_keys"] {
        // Accepted because templates name them with their default values.
        let _: Option<Value> = kwargs.get(accepted)?;
    }
    kwargs.assert_all_used()?;
    let json = serde_json::to_value(value).map_err(|error| {
        minijinja::Error::new(ErrorKind::InvalidOperation, "tojson: not a JSON value")
            .with_source(error)
    })?;
    let mut text = String::new();
    write_json(&json, indent, 0, &mut text);
    Ok(Value::from_safe_string(text))
}

fn write_json(value: &serde_json::Value, indent: Option<usize>, depth: usize, text: &mut String) {
    use serde_json::Value as Json;
    let (open, close, length) = match value {
        Json::Array(items) => ('[', ']', items.len()),
        Json::Object(fields) => ('{', '}', fields.len()),
        scalar => return text.push_str(&scalar.to_string()),
    };
    let line = |depth: usize, text: &mut String| {
        if let Some(width) = indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    text.push(open);
    for at in 0..length {
        if at > 0 {
            text.push_str(if indent.is_some() { "," } else { ", " });
        }
        line(depth + 1, text);
        match value {
            Json::Array(items) => write_json(&items[at], indent, depth + 1, text),
            Json::Object(fields) => {
                if let Some((key, field)) = fields.iter().nth(at) {
                    text.push_str(&Json::from(key.as_str()).to_string());
                    text.push_str(": ");
                    write_json(field, indent, depth + 1, text);
                }
            }
            _ => {}
        }
    }
    if length > 0 {
        line(depth, text);
    }
    text.push(close);
}

#[cfg(test)]
mod tests;
