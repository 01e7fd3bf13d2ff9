//! Format pages against the files that implement them. A page carries lines `path/to/layout.rs: <BLAKE3>`; when the
//! file changes, the page must be read again and its line renewed.

use anyhow::Result;

use crate::repository;

pub(super) fn faults() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let pages = super::tracked_files()?.into_iter().filter(|path| {
        path.starts_with("docs/format")
            && path.extension().is_some_and(|extension| extension == "md")
    });
    for page in pages {
        let text = std::fs::read_to_string(repository::root().join(&page))?;
        let ties: Vec<(&str, &str)> = text.lines().filter_map(tie_in).collect();
        if ties.is_empty() {
            faults.push(format!(
                "{}: no line ties the page to a source file",
                page.display()
            ));
        }
        for (path, stated) in ties {
            let file = repository::root().join(path);
            match std::fs::read(&file) {
                Err(error) => faults.push(format!("{}: {path}: {error}", page.display())),
                Ok(bytes) => {
                    let found = blake3::hash(&bytes).to_string();
                    if found != stated {
                        faults.push(format!(
                            "{}: {path} has BLAKE3 {found}, the page was written for {stated}; read the page again, then renew the line",
                            page.display()
                        ));
                    }
                }
            }
        }
    }
    Ok(faults)
}

/// `crates/x/src/layout.rs: <64 hex digits>`, with or without code marks around it.
fn tie_in(line: &str) -> Option<(&str, &str)> {
    let (path, digest) = line.trim().trim_matches(['`', '-', ' ']).split_once(": ")?;
    let (path, digest) = (
        path.trim_matches(['`', ' ']),
        digest.trim_matches(['`', ' ']),
    );
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_rust = std::path::Path::new(path)
        .extension()
        .is_some_and(|extension| extension == "rs");
    (is_digest && is_rust).then_some((path, digest))
}

#[cfg(test)]
mod tests {
    use super::tie_in;

    #[test]
    fn a_tie_is_a_rust_path_and_a_digest() {
        let digest = "a".repeat(64);
        let bare = format!("crates/x/src/layout.rs: {digest}");
        assert_eq!(
            tie_in(&bare),
            Some(("crates/x/src/layout.rs", digest.as_str()))
        );
        let marked = format!("- `crates/x/src/layout.rs: {digest}`");
        assert_eq!(
            tie_in(&marked),
            Some(("crates/x/src/layout.rs", digest.as_str()))
        );
        assert_eq!(tie_in("crates/x/src/layout.rs: short"), None);
        assert_eq!(tie_in("a sentence: with a colon"), None);
    }
}
