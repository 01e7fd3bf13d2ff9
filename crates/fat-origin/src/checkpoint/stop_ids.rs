//! The ids that end a generation: the union of what config, generation config and tokenizer say.
//! They often disagree (`<|im_end|>` here, `<|endoftext|>` there), and each of them is right.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Ids of `eos_token_id`: a number or a list.
pub(super) fn eos_of(config: &Value) -> Vec<u32> {
    let number = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match config.get("eos_token_id") {
        Some(Value::Array(ids)) => ids.iter().filter_map(number).collect(),
        Some(id) => number(id).into_iter().collect(),
        None => Vec::new(),
    }
}

/// `generation_config.json` (or an empty one) whose `eos_token_id` is the union, ascending. `None`
/// if there is neither a generation config nor an id.
pub(super) fn generation_config(original: Option<&Value>, ids: &BTreeSet<u32>) -> Option<String> {
    let mut config = match original {
        Some(Value::Object(fields)) => fields.clone(),
        _ if ids.is_empty() => return None,
        _ => Map::new(),
    };
    if !ids.is_empty() {
        config.insert("eos_token_id".to_owned(), ids.iter().copied().collect());
    }
    Some(Value::Object(config).to_string())
}

#[cfg(test)]
mod tests {
    use super::{eos_of, generation_config};
    use serde_json::json;

    #[test]
    fn ids_are_united_not_replaced() {
        assert_eq!(eos_of(&json!({"eos_token_id": 7})), [7]);
        assert_eq!(eos_of(&json!({"eos_token_id": [1, 106]})), [1, 106]);
        assert_eq!(eos_of(&json!({"eos_token_id": null})), Vec::<u32>::new());
        let config = json!({"top_k": 20, "eos_token_id": 2});
        let text = generation_config(Some(&config), &[2, 0].into()).unwrap();
        assert_eq!(text, r#"{"top_k":20,"eos_token_id":[0,2]}"#);
        assert_eq!(generation_config(None, &[].into()), None);
        assert_eq!(
            generation_config(None, &[5].into()).as_deref(),
            Some(r#"{"eos_token_id":[5]}"#)
        );
    }
}
