//! Chat templates: Jinja as Hugging Face transformers renders it (trimmed blocks, `tojson` without
//! HTML escapes, `strftime_now`, `raise_exception`, Python's string methods, `{% generation %}`).
//! It does not tokenise. Specification: transformers' `apply_chat_template`.
//!
//! A template is a program of whoever published the model: its source, its steps, the memory it
//! takes and the stack it stands on are bounded. It runs to its end on the calling thread's time.

use crate::calendar;
use crate::error::Error;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};

const NAME: &str = "chat_template";

/// Largest source. Published templates with tools have some 15 KiB.
const SOURCE_BYTES: usize = 64 << 10;

/// Longest tag. Published templates stay below 1 KiB; the parser's time grows with the square of a chain
/// of operators, and fuel is charged for rendering only.
const TAG_BYTES: usize = 8 << 10;

/// Budget of a rendering: one for a step or for 64 bytes that are made on the way or written, so
/// 64 MB or a million steps. Published templates take some hundred steps a message.
const FUEL: u64 = 1 << 20;

/// Stack of the thread that parses and renders. The engine recurses along nested values and chains
/// of operators; within [`SOURCE_BYTES`] and [`FUEL`] these are at most some 100,000 deep. Only the
/// pages that are used become memory.
const STACK_BYTES: usize = 512 << 20;

/// Most bytes of one `tojson`.
const JSON_BYTES: usize = 1 << 20;

/// Widest indent of `tojson`.
const INDENT_SPACES: usize = 16;

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
    /// [`Error::Template`] with the line of the first mistake, or for a source of more than 64 KiB
    /// or a tag of more than 8 KiB.
    pub fn new(
        source: &str,
        bos_token: Option<String>,
        eos_token: Option<String>,
    ) -> Result<Self, Error> {
        if source.len() > SOURCE_BYTES {
            return Err(Error::Template {
                message: format!("{} bytes, the limit is {SOURCE_BYTES}", source.len()),
            });
        }
        let longest = longest_tag_bytes(source);
        if longest > TAG_BYTES {
            return Err(Error::Template {
                message: format!("a tag of {longest} bytes, the limit is {TAG_BYTES}"),
            });
        }
        let environment = on_deep_stack(|| Self::parse(source))?;
        Ok(Self {
            environment,
            bos_token,
            eos_token,
        })
    }

    fn parse(source: &str) -> Result<Environment<'static>, Error> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
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
        Ok(environment)
    }

    /// Text of the conversation, ending where the assistant begins to answer.
    ///
    /// # Errors
    /// [`Error::Template`] where the template refuses the messages, is wrong, or takes more steps
    /// or memory than a template may.
    pub fn render(&self, messages: &[Message]) -> Result<String, Error> {
        on_deep_stack(|| self.render_here(messages))
    }

    fn render_here(&self, messages: &[Message]) -> Result<String, Error> {
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

/// Runs `work` on a thread of its own, with [`STACK_BYTES`], and waits for it.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let lost = || Error::Lost {
        what: "the chat template",
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name(NAME.to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|_no_thread| lost())?;
        thread.join().map_err(|_panicked| lost())?
    })
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
    let too_much = |message| minijinja::Error::new(ErrorKind::InvalidOperation, message);
    if indent.is_some_and(|width| width > INDENT_SPACES) {
        return Err(too_much("tojson: indent is more than 16"));
    }
    // A value of few parts can hold them many times over: counted before it is unfolded.
    serde_json::to_writer(Bounded(JSON_BYTES), value).map_err(|error| {
        too_much("tojson: not a JSON value of at most 1 MiB").with_source(error)
    })?;
    let json = serde_json::to_value(value).map_err(|error| {
        minijinja::Error::new(ErrorKind::InvalidOperation, "tojson: not a JSON value")
            .with_source(error)
    })?;
    let mut text = String::new();
    write_json(&json, indent, 0, &mut text);
    if text.len() > JSON_BYTES {
        return Err(too_much("tojson: the text has more than 1 MiB"));
    }
    Ok(Value::from_safe_string(text))
}

/// Takes so many bytes, and keeps none.
struct Bounded(usize);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.ok_or_else(|| std::io::Error::other("too long"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Ends early once the text is beyond [`JSON_BYTES`], for the caller to find.
fn write_json(value: &serde_json::Value, indent: Option<usize>, depth: usize, text: &mut String) {
    use serde_json::Value as Json;
    let (open, close, length) = match value {
        Json::Array(items) => ('[', ']', items.len()),
        Json::Object(fields) => ('{', '}', fields.len()),
        scalar => return text.push_str(&scalar.to_string()),
    };
    let line = |depth: usize, text: &mut String| {
        if let Some(width) = indent.filter(|_| text.len() <= JSON_BYTES) {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    text.push(open);
    for at in 0..length {
        if text.len() > JSON_BYTES {
            return;
        }
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

/// Bytes of the longest `{{ .. }}` or `{% .. %}`, delimiters included; one without an end reaches to the
/// end of the source.
fn longest_tag_bytes(source: &str) -> usize {
    let mut longest = 0;
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let tag = &rest[start..];
        let close = match tag.as_bytes().get(1) {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            _ => {
                rest = tag.get(1..).unwrap_or_default();
                continue;
            }
        };
        let end = tag
            .find(close)
            .map_or(tag.len(), |start| start + close.len());
        longest = longest.max(end);
        rest = tag.get(end..).unwrap_or_default();
    }
    longest
}
