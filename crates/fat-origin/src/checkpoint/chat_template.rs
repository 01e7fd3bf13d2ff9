//! Where a Hugging Face directory keeps its chat template: a file of its own, or inside
//! `tokenizer_config.json` as text or as a list of named templates. Nothing is rendered here.

use std::path::Path;

use serde_json::Value;

use super::hugging_face::{read_json, read_text};
use crate::Error;

/// The template of a directory; the newer place wins, as in transformers.
pub(super) fn find(
    directory: &Path,
    tokenizer_config: Option<&Value>,
) -> Result<Option<String>, Error> {
    if let Some(text) = read_text(&directory.join("chat_template.jinja"))? {
        return Ok(Some(text));
    }
    if let Some(file) = read_json(&directory.join("chat_template.json"))?
        && let Some(template) = file.get("chat_template").and_then(choose)
    {
        return Ok(Some(template));
    }
    Ok(tokenizer_config
        .and_then(|config| config.get("chat_template"))
        .and_then(choose))
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
