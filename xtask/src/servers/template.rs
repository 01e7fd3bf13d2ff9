//! Configuration templates: `{{name}}` is replaced, nothing else is understood.
//!
//! The page about the servers shows the same templates, filled for a reader's machine, so that it cannot drift from
//! what was tested.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// `template` with every `{{name}}` replaced.
///
/// # Errors
/// If a name is left over.
pub(super) fn filled(template: &str, values: &[(&str, &str)]) -> Result<String> {
    let text = values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{{{name}}}}}"), value)
        });
    let rest = text.split_once("{{").map(|(_, rest)| rest);
    let left = rest
        .and_then(|rest| rest.split_once("}}"))
        .map(|(name, _)| name);
    ensure!(
        left.is_none(),
        "a configuration template asks for {{{{{}}}}}, which nobody gave",
        left.unwrap_or_default()
    );
    Ok(text)
}

/// Values as [`filled`] takes them.
pub(super) fn borrowed<'a, const N: usize>(
    values: &'a [(&'a str, String); N],
) -> [(&'a str, &'a str); N] {
    values
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()))
}

/// Writes a filled template to `path`.
///
/// # Errors
/// If a name is left over, or the file cannot be written.
pub(super) fn write(path: &Path, template: &str, values: &[(&str, &str)]) -> Result<()> {
    let text = filled(template, values)?;
    std::fs::write(path, text).with_context(|| format!("could not write {}", path.display()))
}

/// A path as a configuration holds it.
///
/// # Errors
/// If it has a character that a configuration would read as something else.
pub(super) fn plain(path: &Path) -> Result<&str> {
    let text = path.to_str().context("a path that is not UTF-8")?;
    ensure!(
        !text.contains(|letter: char| letter.is_whitespace() || "\"'{}$;\\#".contains(letter)),
        "{text}: the path has a character that a server's configuration would misread; set CARGO_TARGET_DIR elsewhere"
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_replaced_and_a_forgotten_one_is_named() -> Result<()> {
        assert_eq!(
            filled("a {{x}} {{y}} {{x}}", &[("x", "1"), ("y", "2")])?,
            "a 1 2 1"
        );
        let text = filled("a {{x}} {{y}}", &[("x", "1")]).map_err(|error| error.to_string());
        assert_eq!(
            text,
            Err("a configuration template asks for {{y}}, which nobody gave".into())
        );
        Ok(())
    }

    #[test]
    fn a_path_with_a_blank_is_refused() {
        assert!(plain(Path::new("/srv/my rows")).is_err());
        assert!(plain(Path::new("/srv/rows-1.0")).is_ok());
    }
}
