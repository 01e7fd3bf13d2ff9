//! What a redirect may lead to, and what a refused URL looks like. Pure. RFC 9110 section 15.4 is the
//! specification; that credentials stay with their origin and TLS is never left are ours.

use url::Url;

use crate::redact::redacted;

/// Query parameters that sign a URL: S3 and R2 (both versions), Google, Azure, CloudFront, OSS, COS.
const SIGNATURES: [&str; 9] = [
    "x-amz-signature",
    "x-goog-signature",
    "x-oss-signature",
    "q-signature",
    "awsaccesskeyid",
    "key-pair-id",
    "ossaccesskeyid",
    "signature",
    "sig",
];

/// Whether the URL carries a signature that can expire.
pub(super) fn is_signed(url: &Url) -> bool {
    url.query_pairs()
        .any(|(name, _)| SIGNATURES.contains(&name.to_ascii_lowercase().as_str()))
}

/// Where `location` leads from the last of `visited`, or why it is not followed.
pub(super) fn follow(visited: &[Url], location: &str, max: u32) -> Result<Url, String> {
    let Some(from) = visited.last() else {
        return Err("nothing to follow from".to_owned());
    };
    let to = from
        .join(location)
        .map_err(|error| format!("Location is not a URL: {error}"))?;
    let shown = || redacted(&to);
    match (from.scheme(), to.scheme()) {
        ("http", "http" | "https") | ("https", "https") => {}
        (from, to) => return Err(format!("from {from} to {to}: {}", shown())),
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err(format!("Location holds credentials: {}", shown()));
    }
    if visited.contains(&to) {
        return Err(format!("loop back to {}", shown()));
    }
    if visited.len() > usize::try_from(max).unwrap_or(usize::MAX) {
        return Err(format!("more than {max} in a row"));
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_location_leads() {
        let at = |url: &str| vec![Url::parse(url).unwrap()];
        for (from, location, expected) in [
            ("http://a/x/y?q", "z", Ok("http://a/x/z")),
            ("http://a/x", "//b/z", Ok("http://b/z")),
            ("http://a/x", "https://a/x", Ok("https://a/x")),
            ("https://a/x", "?sig=1", Ok("https://a/x?sig=1")),
            (
                "https://a/x",
                "http://a/z?sig=1",
                Err("from https to http: http://a/z"),
            ),
            (
                "https://a/x",
                "file:///etc/passwd",
                Err("from https to file: file:///etc/passwd"),
            ),
            (
                "http://a/x",
                "http://me:pw@b/",
                Err("Location holds credentials: http://b/"),
            ),
            ("http://a/x", "", Err("loop back to http://a/x")),
            (
                "http://a/x",
                "http://[",
                Err("Location is not a URL: invalid IPv6 address"),
            ),
        ] {
            let found = follow(&at(from), location, 5);
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found.map(String::from), expected, "{from} {location}");
        }
        let visited: Vec<_> = (0..6)
            .map(|n| Url::parse(&format!("http://a/{n}")).unwrap())
            .collect();
        assert_eq!(
            follow(&visited, "/9", 5),
            Err("more than 5 in a row".to_owned())
        );
        assert!(follow(&visited[..5], "/9", 5).is_ok());
    }

    #[test]
    fn signatures_are_known_by_their_parameters() {
        for (url, signed) in [
            ("https://b.s3/x?X-Amz-Algorithm=A&X-Amz-Signature=1f", true),
            (
                "https://b.s3/x?AWSAccessKeyId=k&Signature=s&Expires=1",
                true,
            ),
            ("https://acc.blob/x?sv=2024&sig=abc", true),
            ("https://cdn/x?Expires=1&Signature=s&Key-Pair-Id=K", true),
            ("https://hub/x?download=true", false),
            ("https://hub/x", false),
        ] {
            assert_eq!(is_signed(&Url::parse(url).unwrap()), signed, "{url}");
        }
    }
}
