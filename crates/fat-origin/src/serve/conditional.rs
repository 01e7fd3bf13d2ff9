//! Preconditions of a request (RFC 9110, section 13) against one strong entity tag. Pure.

use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE};

/// What the preconditions leave to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answer the request; the range counts.
    Proceed,
    /// Answer with the whole object: `If-Range` names another version.
    IgnoreRange,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates `If-Match`, `If-None-Match` and `If-Range`, in the order of section 13.2.2.
pub(super) fn evaluate(headers: &HeaderMap, etag: &str) -> Outcome {
    if let Some(matched) = any_listed(headers, &IF_MATCH, |tag| tag == etag)
        && !matched
    {
        return Outcome::Failed;
    }
    // If-None-Match compares weakly: the opaque part decides.
    let weakly = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag) == etag;
    if any_listed(headers, &IF_NONE_MATCH, weakly) == Some(true) {
        return Outcome::NotModified;
    }
    // A date in If-Range can't match: this server sends no Last-Modified to take it from.
    match headers.get(&IF_RANGE) {
        Some(value) if value.as_bytes() != etag.as_bytes() => Outcome::IgnoreRange,
        _ => Outcome::Proceed,
    }
}

/// `None` without the header; else whether one of its tags, or `*`, matches.
fn any_listed(
    headers: &HeaderMap,
    name: &HeaderName,
    matches: impl Fn(&str) -> bool,
) -> Option<bool> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    Some(values.any(|value| {
        // Our own tag holds no comma, so splitting at commas cannot make one that matches.
        value.to_str().is_ok_and(|list| {
            list.split(',')
                .map(str::trim)
                .any(|tag| tag == "*" || matches(tag))
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::{Outcome, evaluate};
    use hyper::HeaderMap;
    use hyper::header::HeaderName;

    #[track_caller]
    fn check(headers: &[(&'static str, &'static str)], expected: &Outcome) {
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        assert_eq!(evaluate(&map, "\"one\""), *expected, "{headers:?}");
    }

    #[test]
    fn preconditions_follow_the_standard() {
        check(&[], &Outcome::Proceed);
        check(&[("if-match", "\"one\"")], &Outcome::Proceed);
        check(&[("if-match", "\"two\", \"one\"")], &Outcome::Proceed);
        check(&[("if-match", "*")], &Outcome::Proceed);
        check(&[("if-match", "\"two\"")], &Outcome::Failed);
        check(&[("if-match", "W/\"one\"")], &Outcome::Failed);
        check(&[("if-none-match", "\"one\"")], &Outcome::NotModified);
        check(&[("if-none-match", "W/\"one\"")], &Outcome::NotModified);
        check(&[("if-none-match", "*")], &Outcome::NotModified);
        check(&[("if-none-match", "\"two\"")], &Outcome::Proceed);
        check(&[("if-range", "\"one\"")], &Outcome::Proceed);
        check(&[("if-range", "W/\"one\"")], &Outcome::IgnoreRange);
        check(
            &[("if-range", "Tue, 01 Jan 2030 00:00:00 GMT")],
            &Outcome::IgnoreRange,
        );
        check(
            &[("if-match", "\"two\""), ("if-none-match", "\"one\"")],
            &Outcome::Failed,
        );
    }
}
