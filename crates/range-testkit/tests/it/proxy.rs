//! The proxy answers as it was told, asked over plain sockets.

use range_testkit::{FaultServer, Object, ProxyOptions, ProxyServer, Script};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn ask(proxy: &ProxyServer, request: &str) -> String {
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    String::from_utf8_lossy(&reply).into_owned()
}

async fn start(authorization: Option<&str>, refusal: Option<u16>) -> (FaultServer, ProxyServer) {
    let object = Object::bytes(b"0123456789".to_vec());
    let server = FaultServer::start("/o", object, Script::honest())
        .await
        .unwrap();
    let options = ProxyOptions {
        upstream: server.address(),
        authorization: authorization.map(str::to_owned),
        refusal,
    };
    let proxy = ProxyServer::start(options).await.unwrap();
    (server, proxy)
}

#[tokio::test]
async fn a_tunnel_carries_whatever_follows() {
    let (server, proxy) = start(Some("Basic x"), None).await;
    let inner = "GET /o HTTP/1.1\r\nHost: a\r\nRange: bytes=2-4\r\n\r\n";
    let head = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nProxy-Authorization: Basic x\r\n\r\n";
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut established = vec![0; "HTTP/1.1 200 Established\r\n\r\n".len()];
    stream.read_exact(&mut established).await.unwrap();
    stream.write_all(inner.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(
        reply.starts_with("HTTP/1.1 206") && reply.ends_with("234"),
        "{reply}"
    );
    let log = proxy.log().entries();
    assert_eq!(
        (log[0].method.as_str(), log[0].path.as_str()),
        ("CONNECT", "a:443")
    );
    assert_eq!(server.log().len(), 1);
}

#[tokio::test]
async fn an_absolute_form_is_handed_on_without_what_was_for_the_proxy() {
    let (server, proxy) = start(None, None).await;
    let request = "GET http://a.example/o?q HTTP/1.1\r\nHost: a.example\r\nRange: bytes=0-1\r\n\
                   Proxy-Authorization: Basic x\r\n\r\n";
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = vec![0; 13];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply, b"HTTP/1.1 206 ");
    let log = server.log().finished(1).await;
    assert_eq!(
        (log[0].path.as_str(), log[0].host.as_deref()),
        ("/o?q", Some("a.example"))
    );
    assert_eq!(log[0].proxy_authorization, None);
    assert_eq!(
        proxy.log().entries()[0].proxy_authorization.as_deref(),
        Some("Basic x")
    );
}

#[tokio::test]
async fn refusals_are_told() {
    let (server, proxy) = start(Some("Basic x"), None).await;
    let reply = ask(&proxy, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 407 "), "{reply}");
    let (_server, proxy) = start(None, Some(403)).await;
    let reply = ask(&proxy, "GET http://a/o HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 403 "), "{reply}");
    assert!(server.log().is_empty());
}
