//! Where a Hugging Face directory keeps its chat template: a file of its own, or inside
//! `tokenizer_config.json` as text or as a list of named templates. Nothing is rendered here.

use std::path::Path;

use serde_json::Value;

use super::hugging_face::read_json;
use super::plain_file::{self, MAX_TEMPLATE_BYTES};
use crate::Error;

/// The template of a directory; the newer place wins, as in transformers.
pub(super) fn find(
    directory: &Path,
    tokenizer_config: Option<&Value>,
) -> Result<Option<String>, Error> {
    let own = directory.join("chat_template.jinja");
    if let Some(text) = plain_file::read_text(&own, MAX_TEMPLATE_BYTES)? {
        return Ok(Some(text));
    }
    let own = directory.join("chat_template.json");
    if let Some(file) = read_json(&own)?
        && let Some(template) = file.get("chat_template").and_then(choose)
    {
        return within_limit(&own, template).map(Some);
    }
    let template = tokenizer_config
        .and_then(|config| config.get("chat_template"))
        .and_then(choose);
    template
        .map(|text| within_limit(&directory.join("tokenizer_config.json"), text))
        .transpose()
}

/// Refuses a template that no station should have to compile; `path` is where it lies.
pub(super) fn within_limit(path: &Path, template: String) -> Result<String, Error> {
    if template.len() as u64 <= MAX_TEMPLATE_BYTES {
        return Ok(template);
    }
    Err(Error::malformed(
        path,
        "chat template",
        format!("at most {MAX_TEMPLATE_BYTES} bytes"),
        template.len().to_string(),
    ))
}

/// Text as it is; of a list the template called `default`, else the first.
pub(super) fn choose(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(named) => {
            let is_default =
                |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some("default");
            let entry = named.iter().find(is_default).or_else(|| named.first())?;
            entry
                .get("template")
                .and_then(Value::as_str)
                .map(str::to_owned)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::choose;
    use serde_json::json;

    #[test]
    fn a_list_gives_its_default() {
        assert_eq!(choose(&json!("t")).as_deref(), Some("t"));
        let list =
            json!([{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]);
        assert_eq!(choose(&list).as_deref(), Some("b"));
        assert_eq!(
            choose(&json!([{"name": "rag", "template": "c"}])).as_deref(),
            Some("c")
        );
        assert_eq!(choose(&json!([])), None);
        assert_eq!(choose(&json!(null)), None);
    }
}
