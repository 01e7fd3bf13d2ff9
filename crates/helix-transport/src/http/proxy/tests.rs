//! Which origin goes through which proxy, as a table; and what is never shown.

use super::*;

fn settings(pairs: &[(&str, &str)]) -> ProxySettings {
    ProxySettings::from_variables(|name| {
        let found = pairs.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// The proxy's name for `url`, or `direct`.
fn route(settings: &ProxySettings, url: &str) -> String {
    let via = settings.via(&url.parse().unwrap()).unwrap();
    via.map_or_else(|| "direct".to_owned(), |via| via.name)
}

#[test]
fn each_scheme_has_its_variable_in_both_cases_and_all_proxy_for_the_rest() {
    for (pairs, http, https) in [
        (vec![], "direct", "direct"),
        (
            vec![("HTTP_PROXY", "http://p:3128")],
            "http://p:3128",
            "direct",
        ),
        (vec![("http_proxy", "p:3128")], "http://p:3128", "direct"),
        (
            vec![("HTTPS_PROXY", "http://p:3128")],
            "direct",
            "http://p:3128",
        ),
        (vec![("https_proxy", "https://p")], "direct", "https://p"),
        (
            vec![("ALL_PROXY", "http://p:1")],
            "http://p:1",
            "http://p:1",
        ),
        (
            vec![("all_proxy", "http://p:1"), ("HTTP_PROXY", "http://q:2")],
            "http://q:2",
            "http://p:1",
        ),
        (
            vec![("HTTPS_PROXY", "http://p:1"), ("https_proxy", "http://q:2")],
            "direct",
            "http://p:1",
        ),
        // Set to nothing is set: no proxy.
        (
            vec![("HTTPS_PROXY", ""), ("https_proxy", "http://q:2")],
            "direct",
            "direct",
        ),
    ] {
        let settings = settings(&pairs);
        assert_eq!(
            route(&settings, "http://origin.example/"),
            http,
            "{pairs:?}"
        );
        assert_eq!(
            route(&settings, "https://origin.example/"),
            https,
            "{pairs:?}"
        );
    }
}

#[test]
fn inside_cgi_a_requests_own_field_names_no_proxy() {
    let settings = settings(&[("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://evil:1")]);
    assert_eq!(route(&settings, "http://origin.example/"), "direct");
}

#[test]
fn no_proxy_names_hosts_domains_addresses_networks_and_ports() {
    for (no, url, direct) in [
        ("*", "http://a.example/", true),
        ("a.example", "http://a.example/", true),
        ("A.Example", "http://a.example/", true),
        ("example", "http://a.example/", true),
        (".example", "http://a.example/", true),
        (".a.example", "http://a.example/", true),
        ("*.example", "http://a.example/", true),
        ("example", "http://notexample/", false),
        ("b.example, c.example", "http://a.example/", false),
        ("b.example, a.example", "http://a.example/", true),
        ("a.example:8080", "http://a.example:8080/", true),
        ("a.example:8080", "http://a.example/", false),
        ("a.example:80", "http://a.example/", true),
        ("a.example:443", "https://a.example/", true),
        ("10.1.2.3", "http://10.1.2.3/", true),
        ("10.1.2.3", "http://10.1.2.30/", false),
        ("10.0.0.0/8", "http://10.1.2.3:99/", true),
        ("10.0.0.0/8", "http://11.1.2.3/", false),
        ("10.1.2.3:81", "http://10.1.2.3:81/", true),
        ("10.1.2.3:81", "http://10.1.2.3:82/", false),
        ("2001:db8::/32", "http://[2001:db8::1]/", true),
        ("2001:db8::1", "http://[2001:db8::1]/", true),
        ("[2001:db8::1]:81", "http://[2001:db8::1]:81/", true),
        ("[2001:db8::1]:81", "http://[2001:db8::1]/", false),
        ("", "http://a.example/", false),
        (",,", "http://a.example/", false),
    ] {
        let settings = settings(&[("ALL_PROXY", "http://p:1"), ("NO_PROXY", no)]);
        let expected = if direct { "direct" } else { "http://p:1" };
        assert_eq!(route(&settings, url), expected, "NO_PROXY={no} {url}");
    }
}

#[test]
fn loopback_is_never_proxied() {
    let settings = settings(&[("ALL_PROXY", "http://p:1")]);
    for url in [
        "http://localhost/",
        "http://LOCALHOST.:8080/",
        "http://api.localhost/",
        "http://127.0.0.1:1/",
        "https://127.9.9.9/",
        "http://[::1]:80/",
        "http://[::ffff:127.0.0.1]/",
    ] {
        assert_eq!(route(&settings, url), "direct", "{url}");
    }
    assert_eq!(route(&settings, "http://localhost.example/"), "http://p:1");
}

#[test]
fn a_variable_that_names_no_proxy_is_refused_by_name_where_it_would_be_used() {
    for value in ["socks5://p:1", "ftp://p", "http://", "http://[::1", "a b"] {
        let settings = settings(&[("HTTPS_PROXY", value)]);
        let refusal = settings
            .via(&"https://a.example/".parse().unwrap())
            .unwrap_err();
        assert_eq!(refusal.variable, "HTTPS_PROXY", "{value}");
        // It is not for these, so it does not stand in their way.
        assert_eq!(route(&settings, "http://a.example/"), "direct");
        assert_eq!(route(&settings, "https://127.0.0.1/"), "direct");
    }
}

#[test]
fn credentials_are_sent_as_basic_and_shown_nowhere() {
    let settings = settings(&[("HTTP_PROXY", "http://me:p%40ss@p.example:3128")]);
    let via = settings
        .via(&"http://a.example/".parse().unwrap())
        .unwrap()
        .unwrap();
    // base64 of `me:p@ss`
    assert_eq!(via.authorization.as_ref().unwrap(), "Basic bWU6cEBzcw==");
    assert!(via.authorization.as_ref().unwrap().is_sensitive());
    let shown = format!("{settings:?} {via:?} {}", via.name);
    assert!(
        !shown.contains("p%40ss") && !shown.contains("bWU6"),
        "{shown}"
    );
    assert_eq!(via.name, "http://p.example:3128");
}
