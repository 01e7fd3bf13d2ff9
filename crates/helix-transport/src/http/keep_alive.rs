//! `Keep-Alive: timeout=5, max=100`: how long a server says it keeps an idle HTTP/1.1 connection. The
//! field is older than any specification of it (RFC 2068 section 19.7.1, draft-thomson-hybi-http-timeout);
//! what cannot be read is ignored.

use std::time::Duration;

use hyper::HeaderMap;

/// Taken off the announced time: our request is under way while the server's clock runs.
const MARGIN: Duration = Duration::from_secs(1);

/// How long the connection may lie idle and be used again; `None` where nothing was said.
pub(super) fn parse(fields: &HeaderMap) -> Option<Duration> {
    let value = fields.get("keep-alive")?.to_str().ok()?;
    let number = |name: &str| {
        value.split(',').find_map(|parameter| {
            let (found, number) = parameter.split_once('=')?;
            let number = number.trim().trim_matches('"');
            found
                .trim()
                .eq_ignore_ascii_case(name)
                .then(|| number.parse::<u32>().ok())?
        })
    };
    if number("max") == Some(0) {
        return Some(Duration::ZERO);
    }
    let announced = Duration::from_secs(u64::from(number("timeout")?));
    Some(announced.saturating_sub(MARGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_send() {
        for (value, expected_s) in [
            ("timeout=5, max=100", Some(4)),
            ("timeout=5", Some(4)),
            ("max=99, Timeout=\"15\"", Some(14)),
            ("timeout=1", Some(0)),
            ("timeout=0", Some(0)),
            ("timeout=60, max=0", Some(0)),
            ("max=5", None),
            ("timeout=soon", None),
            ("timeout=99999999999", None),
            ("300", None),
            ("", None),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert("keep-alive", value.parse().unwrap());
            assert_eq!(
                parse(&fields),
                expected_s.map(Duration::from_secs),
                "{value}"
            );
        }
        assert_eq!(parse(&HeaderMap::new()), None);
    }
}
