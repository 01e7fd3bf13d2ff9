//! Proxies: absolute form for http, a tunnel for https, refusals with their status, and what is reached
//! directly all the same.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering::SeqCst;

use helix_transport::{Error, ErrorKind, HttpBackend, HttpConfig, ProxySettings, RangeSource};
use range_testkit::{FaultServer, ProxyOptions, ProxyServer, Script};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::origin::Origin;
use crate::setup::{PATH, batch, chain, object, quick, range};
use crate::tls::{authority_for, trusting};

/// `me:p@ss` as Basic.
const AUTHORIZATION: &str = "Basic bWU6cEBzcw==";

fn through(variables: &[(&str, &str)]) -> HttpConfig {
    HttpConfig {
        proxy: ProxySettings::from_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        }),
        ..quick()
    }
}

async fn proxy_to(server: &FaultServer, authorization: Option<&str>) -> ProxyServer {
    let options = ProxyOptions {
        upstream: server.address(),
        authorization: authorization.map(str::to_owned),
        refusal: None,
    };
    ProxyServer::start(options).await.unwrap()
}

#[tokio::test]
async fn an_http_origin_is_asked_in_absolute_form_with_the_proxys_credentials() {
    let server = FaultServer::start(PATH, object(), Script::honest())
        .await
        .unwrap();
    let proxy = proxy_to(&server, Some(AUTHORIZATION)).await;
    let variable = format!("http://me:p%40ss@{}", proxy.address());
    let config = through(&[("http_proxy", &variable)]);
    let url = format!("http://origin.example:8080{PATH}?part=1");
    let backend = HttpBackend::new(&url, config).unwrap();
    for n in 0..3 {
        let bytes = backend.read(range(n, n + 10), &batch()).await.unwrap();
        assert_eq!(&bytes[..], object().slice(n, n + 10));
    }
    let log = proxy.log().entries();
    assert_eq!(log.len(), 3);
    for entry in &log {
        assert_eq!(
            (entry.method.as_str(), entry.path.as_str()),
            ("GET", url.as_str())
        );
        assert_eq!(entry.host.as_deref(), Some("origin.example:8080"));
        assert_eq!(entry.proxy_authorization.as_deref(), Some(AUTHORIZATION));
        assert_eq!(entry.connection, 0, "the connection to the proxy is kept");
    }
    assert_eq!(server.log().entries()[0].path, format!("{PATH}?part=1"));
}

#[tokio::test]
async fn an_https_origin_is_reached_through_a_tunnel_that_ends_at_the_origin() {
    let (tls, root) = authority_for(&["origin.example"], &["h2", "http/1.1"]);
    let origin = Origin::start(object(), 20, Some(tls)).await;
    let proxy = ProxyServer::start(ProxyOptions {
        upstream: origin.address,
        authorization: Some(AUTHORIZATION.to_owned()),
        refusal: None,
    });
    let proxy = proxy.await.unwrap();
    let variable = format!("http://me:p%40ss@{}", proxy.address());
    let config = HttpConfig {
        proxy: through(&[("HTTPS_PROXY", &variable)]).proxy,
        ..trusting(&root)
    };
    let backend = HttpBackend::new("https://origin.example/x?sig=s3cret", config).unwrap();
    let options = batch();
    let reads = (0..20).map(|n| backend.read(range(n * 90, n * 90 + 90), &options));
    for (n, outcome) in futures::future::join_all(reads)
        .await
        .into_iter()
        .enumerate()
    {
        let start = n as u64 * 90;
        assert_eq!(&outcome.unwrap()[..], object().slice(start, start + 90));
    }
    // ALPN is between us and the origin: one tunnel carries the batch.
    assert_eq!(origin.seen.http2_requests.load(SeqCst), 20);
    let log = proxy.log().entries();
    assert_eq!(log.len(), 1);
    assert_eq!(
        (log[0].method.as_str(), log[0].path.as_str()),
        ("CONNECT", "origin.example:443")
    );
    assert_eq!(log[0].host.as_deref(), Some("origin.example:443"));
    assert_eq!(log[0].proxy_authorization.as_deref(), Some(AUTHORIZATION));
    assert_eq!(log[0].authorization, None);
}

#[tokio::test]
async fn a_proxys_refusal_is_told_with_its_status_and_without_its_credentials() {
    for (status, kind, attempts, hint) in [
        (407, ErrorKind::Auth, 1, "it wants other credentials"),
        (403, ErrorKind::Auth, 1, "NO_PROXY"),
        (502, ErrorKind::Transient, 3, "refused with status 502"),
        (503, ErrorKind::Transient, 3, "refused with status 503"),
    ] {
        let proxy = ProxyServer::start(ProxyOptions {
            upstream: ([127, 0, 0, 1], 9).into(),
            authorization: None,
            refusal: Some(status),
        });
        let proxy = proxy.await.unwrap();
        let variable = format!("http://me:p%40ss@{}", proxy.address());
        let config = through(&[("ALL_PROXY", &variable)]);
        let backend = HttpBackend::new("https://origin.example/x?sig=s3cret", config).unwrap();
        let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.attempts()),
            (kind, attempts),
            "{error}"
        );
        let name = format!("http://{}", proxy.address());
        assert!(
            matches!(error.last_attempt(), Error::Proxy { status: found, proxy, .. }
                if *found == status && *proxy == name),
            "{error:?}"
        );
        let text = chain(&error);
        assert!(text.contains(hint), "{text}");
        for secret in ["s3cret", "p%40ss", "bWU6cEBzcw"] {
            assert!(
                !format!("{text} {error:?} {backend:?}").contains(secret),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_proxy_that_wants_credentials_for_plain_http_is_told_apart_from_the_origin() {
    let server = FaultServer::start(PATH, object(), Script::honest())
        .await
        .unwrap();
    let proxy = proxy_to(&server, Some("Basic b3RoZXI6b25l")).await;
    let variable = format!("http://me:p%40ss@{}", proxy.address());
    let url = format!("http://origin.example{PATH}");
    let backend = HttpBackend::new(&url, through(&[("HTTP_PROXY", &variable)])).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert!(matches!(error, Error::Proxy { status: 407, .. }), "{error}");
    assert!(server.log().is_empty());
}

#[tokio::test]
async fn a_proxy_that_is_down_is_named() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let variable = format!("http://me:s3cret@{address}");
    for url in ["http://origin.example/x", "https://origin.example/x"] {
        let config = through(&[("ALL_PROXY", &variable)]);
        let backend = HttpBackend::new(url, config).unwrap();
        let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transient);
        let text = chain(&error);
        let named = format!("proxy http://{address} cannot be reached");
        assert!(text.contains(&named), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn what_no_proxy_names_is_reached_directly() {
    let server = FaultServer::start(PATH, object(), Script::honest())
        .await
        .unwrap();
    let proxy = proxy_to(&server, None).await;
    let port = server.address().port();
    let proxied = format!("http://{}", proxy.address());
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for (no_proxy, direct) in [
        ("example", true),
        (&*format!("rows.example:{port}"), true),
        ("rows.example:1", false),
        ("other.example", false),
    ] {
        let asked_before = proxy.log().len();
        let config = HttpConfig {
            addresses: [("rows.example".to_owned(), vec![local])].into(),
            ..through(&[("HTTP_PROXY", &proxied), ("NO_PROXY", no_proxy)])
        };
        let url = format!("http://rows.example:{port}{PATH}");
        let backend = HttpBackend::new(&url, config).unwrap();
        backend.read(range(0, 10), &batch()).await.unwrap();
        let asked = proxy.log().len() - asked_before;
        assert_eq!(asked, usize::from(!direct), "NO_PROXY={no_proxy}");
    }
}

#[tokio::test]
async fn a_proxy_may_itself_be_spoken_to_over_tls() {
    let server = FaultServer::start(PATH, object(), Script::honest())
        .await
        .unwrap();
    let proxy = proxy_to(&server, None).await;
    let (tls, root) = authority_for(&["proxy.example"], &["http/1.1"]);
    let port = terminate_tls(tls, proxy.address()).await;
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let variable = format!("https://proxy.example:{port}");
    let config = HttpConfig {
        proxy: through(&[("HTTP_PROXY", &variable)]).proxy,
        addresses: [("proxy.example".to_owned(), vec![local])].into(),
        ..trusting(&root)
    };
    let backend = HttpBackend::new(&format!("http://origin.example{PATH}"), config).unwrap();
    let bytes = backend.read(range(5, 15), &batch()).await.unwrap();
    assert_eq!(&bytes[..], object().slice(5, 15));
    assert_eq!(proxy.log().len(), 1);
}

/// A port on which TLS is taken off and the rest handed to `upstream`.
async fn terminate_tls(tls: TlsAcceptor, upstream: std::net::SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let mut outer = tls.accept(stream).await.unwrap();
                let mut inner = TcpStream::connect(upstream).await.unwrap();
                // Either side may leave first.
                let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_variable_that_names_no_proxy_is_an_error_and_not_a_direct_connection() {
    let config = through(&[("HTTP_PROXY", "socks5://127.0.0.1:1080")]);
    let backend = HttpBackend::new("http://origin.example/x", config).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Setting {
                setting: "HTTP_PROXY",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Config);
}

/// The variables belong to a process, so the test runs itself once more with them set.
#[tokio::test]
async fn the_environment_is_followed_by_default() {
    const URL: &str = "HELIX_TEST_PROXIED_URL";
    if let Ok(url) = std::env::var(URL) {
        let config = HttpConfig {
            proxy: ProxySettings::from_env(),
            ..quick()
        };
        assert_eq!(config.proxy, HttpConfig::default().proxy);
        let backend = HttpBackend::new(&url, config).unwrap();
        let bytes = backend.read(range(10, 20), &batch()).await.unwrap();
        assert_eq!(&bytes[..], object().slice(10, 20));
        return;
    }
    let server = FaultServer::start(PATH, object(), Script::honest())
        .await
        .unwrap();
    let proxy = proxy_to(&server, None).await;
    let run = |url: String, no_proxy: &'static str| {
        let proxied = format!("http://{}", proxy.address());
        move || {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "proxies::the_environment_is_followed_by_default"])
                .env_remove("HTTP_PROXY")
                .env_remove("no_proxy")
                .env(URL, url)
                .env("http_proxy", proxied)
                .env("NO_PROXY", no_proxy)
                .output()
                .unwrap()
        }
    };
    let proxied = run(format!("http://origin.example{PATH}"), "10.0.0.0/8");
    let direct = run(server.url(PATH), "127.0.0.1");
    for (command, proxied_requests) in [(proxied, 1), (direct, 1)] {
        let output = tokio::task::spawn_blocking(command).await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert_eq!(proxy.log().len(), proxied_requests);
    }
    assert_eq!(server.log().len(), 2);
}
