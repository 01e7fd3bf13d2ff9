//! The commands of a page: its fenced blocks of language `sh`, as they stand. Other blocks are not commands.

use anyhow::{Result, ensure};

/// All `sh` blocks of `page`, one after another.
///
/// # Errors
/// For a page without commands, a block that does not end, and commands in a block of another language, which
/// nobody would run.
pub(super) fn script(page: &str) -> Result<String> {
    let mut script = String::new();
    let mut open: Option<&str> = None;
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(language), None) => open = Some(language.trim()),
            (Some(_), Some(_)) => open = None,
            (None, Some("sh")) => {
                script.push_str(line);
                script.push('\n');
            }
            (None, Some(language)) => ensure!(
                !["fat-origin ", "fat-station ", "curl ", "hf "]
                    .iter()
                    .any(|program| line.starts_with(program)),
                "line {}: a command in a block of language `{language}`, which is not run: make it `sh`",
                number + 1
            ),
            (None, None) => {}
        }
    }
    ensure!(open.is_none(), "a fenced block does not end");
    ensure!(!script.is_empty(), "there is no command in it");
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::script;

    #[test]
    fn commands_are_taken_as_they_stand() {
        let page = "text\n```sh\na 'b'\n  c\n```\n```ini\nX=1\n```\n```sh\nd\n```\n";
        assert_eq!(script(page).unwrap(), "a 'b'\n  c\nd\n");
    }

    #[test]
    fn pages_that_would_hide_a_command_are_refused() {
        for page in [
            "no block",
            "```sh\nx\n",
            "```\nfat-origin pack x\n```\n```sh\nx\n```",
            "```console\ncurl x\n```",
        ] {
            script(page).unwrap_err();
        }
    }
}
