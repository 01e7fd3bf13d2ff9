//! The format page belongs to this layout: it carries the digest of the layout file.

use std::path::Path;

#[test]
fn the_page_carries_the_digest_of_the_layout() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let layout = std::fs::read(crate_dir.join("src/layout.rs")).unwrap();
    let page = std::fs::read_to_string(crate_dir.join("../../docs/format/gkq-v2.md")).unwrap();
    let line = format!(
        "crates/gkq-v2/src/layout.rs: {}",
        blake3::hash(&layout).to_hex()
    );
    assert!(
        page.lines().any(|found| found.trim() == line),
        "src/layout.rs changed: bring docs/format/gkq-v2.md up to date, then write there\n{line}"
    );
}
