//! URLs as people may see them: no query, no userinfo, no fragment. A presigned URL's secret is
//! its query, so nothing else in this crate turns a URL into text.

use url::Url;

/// `scheme://host[:port]/path` of a URL.
pub(crate) fn redacted(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    // Fails only for URLs that cannot have userinfo.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.into()
}

/// The recognisable head of text that is no URL, cut before anything that could be a secret.
pub(crate) fn redacted_text(text: &str) -> String {
    if text.contains('@') {
        return "(not shown: may hold credentials)".to_owned();
    }
    let end = text.find(['?', '#']).unwrap_or(text.len());
    text[..end].chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_survive() {
        let url = Url::parse("https://me:pw@host:8443/a/b.rows?X-Sig=s3cret#frag").unwrap();
        assert_eq!(redacted(&url), "https://host:8443/a/b.rows");
        assert_eq!(redacted_text("hos t/x?sig=1"), "hos t/x");
        assert!(!redacted_text("user:pw@ho st").contains("pw"));
    }
}
