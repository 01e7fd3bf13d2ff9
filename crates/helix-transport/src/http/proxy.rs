//! [`ProxySettings`]: which proxy, if any, leads to an origin; and [`Via`], the way through it. The rules
//! of `NO_PROXY` (domains, addresses, networks) are hyper-util's matcher; ours are what it leaves
//! out: entries with a port, and that loopback is never proxied. RFC 9110 sections 7.1 and 9.3.6 are the
//! specification of what a proxy is sent. No SOCKS, no PAC files, no system settings.

use std::fmt;
use std::net::IpAddr;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::proxy::matcher::Matcher;

/// The proxies of a client, as the usual variables name them.
///
/// | variable | what |
/// |---|---|
/// | `HTTPS_PROXY` | for `https` origins, through a CONNECT tunnel: the proxy sees host and port, nothing else |
/// | `HTTP_PROXY` | for `http` origins, asked in absolute form; ignored inside CGI (`REQUEST_METHOD` is set), where a client could set it by a header |
/// | `ALL_PROXY` | for either, where its own variable is not set |
/// | `NO_PROXY` | what is reached directly: `*`, `host`, `.domain` (both with all subdomains), addresses, `network/bits`, each with an optional `:port`; by commas |
///
/// Lower-case names count where the upper-case one is not set. A proxy is `[http://|https://][user:password@]host[:port]`;
/// credentials are sent to it as `Basic` and shown nowhere. `localhost` and loopback addresses are
/// always reached directly: a proxy's loopback is another machine's.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    https: String,
    http: String,
    all: String,
    no: String,
}

impl ProxySettings {
    /// No proxy, whatever the environment says.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// What the environment says.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// What `variable` says of the names above; for tests and for embedding.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |upper: &str| variable(upper).or_else(|| variable(&upper.to_lowercase()));
        let in_cgi = variable("REQUEST_METHOD").is_some();
        let settings = |name: &str| first(name).unwrap_or_default().trim().to_owned();
        Self {
            https: settings("HTTPS_PROXY"),
            // Inside CGI the upper-case name may be a request's `Proxy:` field (CVE-2016-5385).
            http: if in_cgi {
                variable("http_proxy").unwrap_or_default().trim().to_owned()
            } else {
                settings("HTTP_PROXY")
            },
            all: settings("ALL_PROXY"),
            no: settings("NO_PROXY"),
        }
    }

    /// The way to the origin of `uri`; `None` where it is reached directly.
    pub(super) fn via(&self, uri: &Uri) -> Result<Option<Via>, ProxyRefusal> {
        let (variable, chosen) = match uri.scheme_str() {
            Some("https") if !self.https.is_empty() => ("HTTPS_PROXY", &self.https),
            Some("http") if !self.http.is_empty() => ("HTTP_PROXY", &self.http),
            _ => ("ALL_PROXY", &self.all),
        };
        let host = uri.host().unwrap_or_default();
        if chosen.is_empty() || is_loopback(host) {
            return Ok(None);
        }
        let port = uri.port_u16().or(match uri.scheme_str() {
            Some("https") => Some(443),
            _ => Some(80),
        });
        let refuse = |reason| ProxyRefusal { variable, reason };
        if let Some((scheme, _)) = chosen.split_once("://")
            && !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https")
        {
            return Err(refuse("only http and https proxies are spoken to"));
        }
        // An entry without a proxy to go with it would tell the matcher nothing: give it ours.
        let matcher = Matcher::builder()
            .all(chosen)
            .no(entries_for_port(&self.no, port))
            .build();
        let bare = Matcher::builder().all(chosen).build();
        if bare.intercept(uri).is_none() {
            return Err(refuse("not a proxy's address"));
        }
        Ok(matcher.intercept(uri).map(|intercept| Via {
            name: name_of(intercept.uri()),
            uri: intercept.uri().clone(),
            authorization: intercept.basic_auth().cloned(),
        }))
    }
}

impl fmt::Debug for ProxySettings {
    /// Which are set, without what could be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| match text.rsplit_once('@') {
            Some((_, address)) => format!("(credentials)@{address}"),
            None => text.to_owned(),
        };
        f.debug_struct("ProxySettings")
            .field("https", &shown(&self.https))
            .field("http", &shown(&self.http))
            .field("all", &shown(&self.all))
            .field("no", &self.no)
            .finish()
    }
}

/// A proxy variable that cannot be used; direct connections would not be what its owner meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProxyRefusal {
    pub(super) variable: &'static str,
    pub(super) reason: &'static str,
}

/// The way to an origin through a proxy.
#[derive(Clone)]
pub(super) struct Via {
    /// `scheme://host:port`, for people.
    pub(super) name: String,
    /// The same, to connect to. Without a port it is that of the scheme (curl would take 1080).
    pub(super) uri: Uri,
    /// `Proxy-Authorization`, marked sensitive.
    pub(super) authorization: Option<HeaderValue>,
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn name_of(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("{scheme}://{authority}")
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| match address {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => {
                address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
            }
        })
}

/// The entries of `NO_PROXY` that speak of this port, without it.
fn entries_for_port(no: &str, port: Option<u16>) -> String {
    let kept = no.split(',').map(str::trim).filter_map(|entry| {
        // `[::1]:80` and `host:80` have a port; `::1` and `fe80::/10` only look as if.
        let (host, entry_port) = match entry.rsplit_once(':') {
            Some((host, digits)) if !host.contains(':') || host.ends_with(']') => {
                match digits.parse::<u16>() {
                    Ok(entry_port) => (host, Some(entry_port)),
                    Err(_no_port) => (entry, None),
                }
            }
            _ => (entry, None),
        };
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        // `*.example.org` is common and means `.example.org`.
        let host = host
            .strip_prefix('*')
            .filter(|rest| rest.starts_with('.'))
            .unwrap_or(host);
        (entry_port.is_none() || entry_port == port).then_some(host)
    });
    kept.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
