//! [`Credentials`]: a bearer token for exactly one origin (RFC 6750 section 2.1). Not a cookie jar, not
//! a store of several identities, and never taken from a URL. Whether a request may carry it is
//! decided here, by its URL alone: a redirect to another scheme, host or port gets nothing.

use std::fmt;

use hyper::header::HeaderValue;
use url::Url;

use crate::Error;
use crate::redact::{redacted, redacted_text};

/// A bearer token and the one origin (scheme, host and port) that may see it.
///
/// It is sent to that origin only, and not even there once a chain of redirects has led
/// elsewhere: whoever the origin points to could point back with a path of its choice.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `scheme://host[:port]` as RFC 6454 writes it.
    origin: String,
    authorization: HeaderValue,
}

impl Credentials {
    /// `token` for the origin of `origin_url`; path and query of that URL don't matter.
    ///
    /// # Errors
    /// [`Error::Url`] if it is no `http` or `https` URL, [`Error::Setting`] if the token is empty or
    /// holds what a header cannot carry; neither text shows any of the token.
    pub fn bearer(origin_url: &str, token: &str) -> Result<Self, Error> {
        let url = Url::parse(origin_url).map_err(|error| Error::Url {
            url: redacted_text(origin_url),
            reason: error.to_string(),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Url {
                url: redacted(&url),
                reason: "a token is for an http or https origin".to_owned(),
            });
        }
        let token = token.trim();
        // b64token of RFC 6750 and anything else without spaces that servers hand out.
        let legal = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let value = legal.then(|| HeaderValue::from_str(&format!("Bearer {token}")));
        let Some(Ok(mut authorization)) = value else {
            return Err(Error::Setting {
                setting: "credentials",
                reason: "a bearer token is one word of visible ASCII characters".to_owned(),
            });
        };
        // hyper and h2 then write `Sensitive` where they would log it.
        authorization.set_sensitive(true);
        Ok(Self {
            origin: url.origin().ascii_serialization(),
            authorization,
        })
    }

    /// The field value, where a request to `url` may carry it.
    pub(super) fn for_url(&self, url: &Url) -> Option<&HeaderValue> {
        (url.origin().ascii_serialization() == self.origin).then_some(&self.authorization)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_for_one_scheme_host_and_port() {
        let credentials = Credentials::bearer("https://hub.example/a/b?c", "tok-1").unwrap();
        for (url, expected) in [
            ("https://hub.example/x", true),
            ("https://HUB.example:443/x?y", true),
            ("http://hub.example/x", false),
            ("https://hub.example:8443/x", false),
            ("https://cdn.hub.example/x", false),
            ("https://hub.example.evil/x", false),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(credentials.for_url(&url).is_some(), expected, "{url}");
        }
        let value = credentials.for_url(&Url::parse("https://hub.example").unwrap());
        assert_eq!(value.unwrap(), "Bearer tok-1");
    }

    #[test]
    fn no_text_holds_the_token() {
        let credentials = Credentials::bearer("https://hub.example/", "s3cret").unwrap();
        assert!(!format!("{credentials:?}").contains("s3cret"));
        for token in ["", "two s3cret", "s3cret\r\nX: y", "s3cr\u{e9}t"] {
            let error = Credentials::bearer("https://hub.example/", token).unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::Setting {
                        setting: "credentials",
                        ..
                    }
                ),
                "{error}"
            );
            assert!(!format!("{error} {error:?}").contains("s3cr"));
        }
        let error = Credentials::bearer("ftp://hub.example/", "s3cret").unwrap_err();
        assert!(matches!(error, Error::Url { .. }));
    }
}
