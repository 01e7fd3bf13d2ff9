//! The ids that end a generation: the union of what config, generation config and tokenizer say.
//! They often disagree (`<|im_end|>` here, `<|endoftext|>` there), and each of them is right.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use crate::Error;

/// Ids of `eos_token_id`: a number, a list of them or `null`. `path` is for errors.
pub(super) fn eos_of(path: &Path, config: &Value) -> Result<Vec<u32>, Error> {
    let number = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            let expected = "token ids, from 0 to 4294967295";
            Error::malformed(path, "eos_token_id", expected, value.to_string())
        })
    };
    match config.get("eos_token_id") {
        Some(Value::Array(ids)) => ids.iter().map(number).collect(),
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(id) => Ok(vec![number(id)?]),
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
        let ids = |value| eos_of("c.json".as_ref(), &json!({ "eos_token_id": value }));
        assert_eq!(ids(json!(7)).unwrap(), [7]);
        assert_eq!(ids(json!([1, 106])).unwrap(), [1, 106]);
        assert_eq!(ids(json!(null)).unwrap(), Vec::<u32>::new());
        for wrong in [
            json!(-1),
            json!(1.5),
            json!("2"),
            json!([1, 4_294_967_296_u64]),
        ] {
            let error = ids(wrong.clone()).unwrap_err().to_string();
            assert!(error.contains("eos_token_id"), "{wrong}: {error}");
        }
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
