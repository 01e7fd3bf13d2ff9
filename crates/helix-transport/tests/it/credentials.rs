//! The bearer token: to one origin, through no redirect away from it, in no text.

use helix_transport::{Credentials, HttpBackend, HttpConfig, RangeSource};
use range_testkit::{Fault, FaultServer, Script};

use crate::logs::Captured;
use crate::setup::{PATH, batch, chain, object, quick, range};

const TOKEN: &str = "hf_s3cret";

fn with_token(origin: &str) -> HttpConfig {
    HttpConfig {
        credentials: Some(Credentials::bearer(origin, TOKEN).unwrap()),
        ..quick()
    }
}

async fn serve(script: Script) -> FaultServer {
    FaultServer::start(PATH, object(), script).await.unwrap()
}

fn tokens(server: &FaultServer) -> Vec<Option<String>> {
    let entries = server.log().entries();
    entries
        .into_iter()
        .map(|entry| entry.authorization)
        .collect()
}

fn sent() -> Option<String> {
    Some(format!("Bearer {TOKEN}"))
}

#[tokio::test]
async fn a_token_is_sent_to_its_origin_and_not_to_where_that_one_redirects() {
    let store = serve(Script::honest()).await;
    // The same host: another port is another origin.
    let front = serve(Script::list([
        Fault::Redirect("/inside".into()),
        Fault::Redirect(store.url(PATH)),
    ]))
    .await;
    front.put("/inside", object());
    let backend = HttpBackend::new(&front.url(PATH), with_token(&front.url("/"))).unwrap();
    for n in 0..3 {
        backend.read(range(n, n + 10), &batch()).await.unwrap();
    }
    // Its own path redirected within the origin, then away.
    assert_eq!(tokens(&front), [sent(), sent()]);
    assert_eq!(tokens(&store), [None, None, None]);
}

#[tokio::test]
async fn a_chain_that_leads_back_does_not_bring_the_token_back() {
    let front = serve(Script::honest()).await;
    let away = serve(Script::always(Fault::Redirect(front.url("/back")))).await;
    front.put("/back", object());
    front.set_script(Script::list([Fault::Redirect(away.url(PATH))]));
    let backend = HttpBackend::new(&front.url(PATH), with_token(&front.url("/"))).unwrap();
    for n in 0..2 {
        backend.read(range(n, n + 10), &batch()).await.unwrap();
    }
    assert_eq!(tokens(&front), [sent(), None, None]);
    assert_eq!(tokens(&away), [None]);
}

#[tokio::test]
async fn another_origins_token_is_not_sent_at_all() {
    let server = serve(Script::honest()).await;
    for other in [
        "https://127.0.0.1/",
        "http://127.0.0.1/",
        "http://localhost/",
    ] {
        let backend = HttpBackend::new(&server.url(PATH), with_token(other)).unwrap();
        backend.read(range(0, 10), &batch()).await.unwrap();
    }
    assert_eq!(tokens(&server), [None, None, None]);
}

#[tokio::test]
async fn from_https_to_http_no_redirect_is_followed() {
    let plain = serve(Script::honest()).await;
    let (tls, root) = crate::tls::authority_for(&["localhost"], &["http/1.1"]);
    let origin = crate::origin::Origin::start_redirecting(&plain.url(PATH), tls).await;
    let config = HttpConfig {
        credentials: with_token(&format!("https://localhost:{}", origin.address.port()))
            .credentials,
        ..crate::tls::trusting(&root)
    };
    let url = format!("https://localhost:{}/x", origin.address.port());
    let backend = HttpBackend::new(&url, config).unwrap();
    let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("from https to http"), "{text}");
    assert!(plain.log().is_empty());
}

/// Everything that fails, with every target of every crate below us at its chattiest.
#[tokio::test]
async fn no_log_no_error_and_no_debug_text_holds_a_secret() {
    let captured = Captured::at(tracing::Level::TRACE);
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = unused.local_addr().unwrap();
    drop(unused);
    let store = serve(Script::always(Fault::Status {
        code: 403,
        retry_after: None,
    }))
    .await;
    let elsewhere = format!("{}?X-Amz-Signature=s3cret", store.url(PATH));
    let nowhere = format!("http://{closed}/x?X-Amz-Security-Token=s3cret");
    let mut texts = String::new();
    for fault in [
        Fault::Redirect(elsewhere),
        Fault::Redirect(nowhere),
        Fault::Redirect("file:///x?s3cret".into()),
        Fault::Redirect("http://me:s3cret@127.0.0.1/x".into()),
        Fault::HangUp,
        Fault::Silence,
        Fault::Garbage,
        Fault::WholeObject,
        Fault::Status {
            code: 401,
            retry_after: None,
        },
    ] {
        let front = serve(Script::always(fault)).await;
        let url = format!("{}?sig=s3cret#s3cret", front.url(PATH));
        let backend = HttpBackend::new(&url, with_token(&front.url("/"))).unwrap();
        let error = backend.read(range(0, 10), &batch()).await.unwrap_err();
        texts += &format!(
            "{} {error:?} {backend:?} {:?}\n",
            chain(&error),
            with_token(&url)
        );
    }
    assert!(!texts.contains("s3cret"), "{texts}");
    let logged = captured.text();
    assert!(logged.contains("range reads fail"), "{logged}");
    for line in logged.lines() {
        assert!(!line.contains("s3cret"), "{line}");
    }
}
