//! TLS with a certificate authority made for the test: ALPN, trust anchors, SSL_CERT_FILE.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use helix_transport::{Error, ErrorKind, HttpBackend, HttpConfig, RangeSource};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use crate::origin::Origin;
use crate::setup::{batch, chain, object, quick, range};

/// An acceptor for `localhost` and 127.0.0.1, and its authority as PEM.
fn authority(protocols: &[&str]) -> (TlsAcceptor, String) {
    authority_for(&["localhost", "127.0.0.1"], protocols)
}

pub(crate) fn authority_for(names: &[&str], protocols: &[&str]) -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);

    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let secret = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], secret)
        .unwrap();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    (TlsAcceptor::from(Arc::new(config)), root.pem())
}

pub(crate) fn trusting(root: &str) -> HttpConfig {
    HttpConfig {
        extra_roots_pem: root.as_bytes().to_vec(),
        ..quick()
    }
}

#[tokio::test]
async fn a_cold_batch_makes_one_connection_where_alpn_says_http2() {
    let (tls, root) = authority(&["h2", "http/1.1"]);
    let origin = Origin::start(object(), 109, Some(tls)).await;
    let url = format!("https://localhost:{}/x", origin.address.port());
    let backend = HttpBackend::new(&url, trusting(&root)).unwrap();
    let options = batch();
    let reads = (0..109).map(|n| backend.read(range(n * 90, n * 90 + 90), &options));
    for (n, outcome) in futures::future::join_all(reads)
        .await
        .into_iter()
        .enumerate()
    {
        let start = n as u64 * 90;
        assert_eq!(&outcome.unwrap()[..], object().slice(start, start + 90));
    }
    assert_eq!(origin.seen.connections.load(SeqCst), 1);
    assert_eq!(origin.seen.http2_requests.load(SeqCst), 109);
    assert_eq!(backend.request_cost_bytes(), 100);
}

#[tokio::test]
async fn a_cold_batch_makes_sixteen_where_alpn_says_http1() {
    let (tls, root) = authority(&["http/1.1"]);
    let origin = Origin::start(object(), 1, Some(tls)).await;
    let url = format!("https://127.0.0.1:{}/x", origin.address.port());
    let backend = HttpBackend::new(&url, trusting(&root)).unwrap();
    let options = batch();
    let reads = (0..109).map(|n| backend.read(range(n * 90, n * 90 + 90), &options));
    let outcomes = futures::future::join_all(reads).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert!(origin.seen.connections.load(SeqCst) <= 16);
    assert_eq!(origin.seen.http2_requests.load(SeqCst), 0);
    assert_eq!(
        (backend.parallelism(), backend.request_cost_bytes()),
        (16, 620)
    );
}

#[tokio::test]
async fn an_unknown_authority_is_refused_and_not_tried_again() {
    let (tls, _root) = authority(&["h2"]);
    let (_other_tls, other_root) = authority(&["h2"]);
    let origin = Origin::start(object(), 1, Some(tls)).await;
    let url = format!("https://localhost:{}/x", origin.address.port());
    let backend = HttpBackend::new(&url, trusting(&other_root)).unwrap();
    let options = batch();
    let reads = (0..20).map(|n| backend.read(range(n, n + 1), &options));
    for outcome in futures::future::join_all(reads).await {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Tls { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
    // Those who waited for the first handshake share its failure.
    assert_eq!(origin.seen.connections.load(SeqCst), 1);
    assert_eq!(options.meter.snapshot().requests, 0);
}

#[tokio::test]
async fn a_name_that_the_certificate_lacks_is_refused() {
    let (tls, root) = authority_for(&["elsewhere.example"], &[]);
    let origin = Origin::start(object(), 1, Some(tls)).await;
    let url = format!("https://localhost:{}/x", origin.address.port());
    let backend = HttpBackend::new(&url, trusting(&root)).unwrap();
    let error = backend.read(range(0, 1), &batch()).await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    assert_eq!(origin.seen.requests.load(SeqCst), 0);
}

#[test]
fn anchors_that_are_no_pem_are_refused_by_name() {
    let broken = "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
    let error = HttpBackend::new("https://localhost/x", trusting(broken)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Setting {
                setting: "extra_roots_pem",
                ..
            }
        ),
        "{error}"
    );
}

/// The variables belong to a process, so this test is run once more by others, with them set.
#[tokio::test]
async fn child_with_anchors_from_the_environment() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    let backend = HttpBackend::new(&url, quick()).unwrap();
    match backend.read(range(10, 20), &batch()).await {
        Ok(bytes) => assert_eq!(&bytes[..], object().slice(10, 20)),
        Err(error) => panic!("{:?}: {}", error.kind(), chain(&error)),
    }
}

const URL: &str = "HELIX_TEST_URL";

/// What the child test wrote, and whether it passed.
async fn child(url: &str, variables: &[(&'static str, &Path)]) -> (bool, String) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "tls::child_with_anchors_from_the_environment"])
        .env(URL, url)
        .env_remove("SSL_CERT_FILE")
        .env_remove("SSL_CERT_DIR");
    for (name, value) in variables {
        command.env(name, value);
    }
    let run = move || command.output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

#[tokio::test]
async fn ssl_cert_file_and_ssl_cert_dir_name_the_trust_anchors() {
    let (tls, root) = authority(&["h2"]);
    let (_, other_root) = authority(&["h2"]);
    let origin = Origin::start(object(), 1, Some(tls)).await;
    let url = format!("https://localhost:{}/x", origin.address.port());
    let directory = tempfile::tempdir().unwrap();
    let (file, dir) = (
        directory.path().join("roots.pem"),
        directory.path().join("certs"),
    );
    let (other, missing) = (
        directory.path().join("other.pem"),
        directory.path().join("none"),
    );
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&file, &root).unwrap();
    // As `openssl rehash` names them; any name is read.
    std::fs::write(dir.join("0a1b2c3d.0"), &root).unwrap();
    std::fs::write(&other, &other_root).unwrap();

    for variables in [
        vec![("SSL_CERT_FILE", &*file)],
        vec![("SSL_CERT_DIR", &*dir)],
        vec![("SSL_CERT_FILE", &*other), ("SSL_CERT_DIR", &*dir)],
    ] {
        let (passed, text) = child(&url, &variables).await;
        assert!(passed, "{variables:?}: {text}");
    }
    assert_eq!(origin.seen.requests.load(SeqCst), 3);

    // In place of the system's anchors, so another authority's are no help; and a variable that
    // leads nowhere is told by name.
    for (variables, kind, told) in [
        (
            vec![("SSL_CERT_FILE", &*other)],
            "Config",
            "TLS handshake refused",
        ),
        (
            vec![("SSL_CERT_FILE", &*missing)],
            "Config",
            "SSL_CERT_FILE=",
        ),
        (vec![("SSL_CERT_DIR", &*missing)], "Config", "SSL_CERT_DIR="),
    ] {
        let (passed, text) = child(&url, &variables).await;
        assert!(
            !passed && text.contains(told) && text.contains(kind),
            "{variables:?}: {text}"
        );
    }
    assert_eq!(origin.seen.requests.load(SeqCst), 3);
}
