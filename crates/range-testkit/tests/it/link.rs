//! The link keeps its round trip, its rate and its order, measured on real sockets.

use std::time::{Duration, Instant};

use range_testkit::{Link, LinkOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An upstream that answers `n` (u32, little-endian) with n patterned bytes, over and over.
async fn upstream() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                while let Ok(count) = stream.read_u32_le().await {
                    let reply: Vec<u8> = (0..count).map(|n| (n % 251) as u8).collect();
                    if stream.write_all(&reply).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

async fn link(rtt_ms: u64, rate_bytes_per_s: Option<u64>) -> Link {
    Link::start(LinkOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        upstream: upstream().await,
        rtt: Duration::from_millis(rtt_ms),
        rate_bytes_per_s,
    })
    .await
    .unwrap()
}

async fn ask(stream: &mut TcpStream, count: u32) -> Duration {
    let start = Instant::now();
    stream.write_u32_le(count).await.unwrap();
    let mut reply = vec![0; count as usize];
    stream.read_exact(&mut reply).await.unwrap();
    for (n, byte) in reply.iter().enumerate() {
        assert_eq!(*byte, (n % 251) as u8, "byte {n}");
    }
    start.elapsed()
}

/// None may be faster than expected; the fastest must be close, the others may have waited for a
/// machine that is busy with other tests.
fn assert_about(found: &[Duration], expected_ms: u64) {
    let expected = Duration::from_millis(expected_ms);
    let fastest = *found.iter().min().unwrap();
    assert!(
        fastest >= expected,
        "{fastest:?} is faster than {expected:?}"
    );
    let most = expected + Duration::from_millis(25);
    assert!(fastest <= most, "{found:?} are slower than {most:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_exchange_takes_two_round_trips_and_later_ones_one() {
    let link = link(80, None).await;
    let mut stream = TcpStream::connect(link.address()).await.unwrap();
    assert_about(ask(&mut stream, 100).await, 160);
    assert_about(ask(&mut stream, 100).await, 80);
    assert_about(ask(&mut stream, 100).await, 80);
    assert_eq!(
        (link.connections(), link.up_bytes(), link.down_bytes()),
        (1, 12, 300)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_delay_costs_no_throughput() {
    // 500 kB at 2.5 MB/s are 200 ms; with a window of one piece a round trip they would be 20 s.
    let link = link(80, Some(2_500_000)).await;
    let mut stream = TcpStream::connect(link.address()).await.unwrap();
    ask(&mut stream, 1).await;
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(ask(&mut stream, 500_000).await);
    }
    assert_about(&found, 80 + 197);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_share_one_rate() {
    let link = link(0, Some(2_000_000)).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(link.address()).await.unwrap();
        ask(&mut stream, 1).await;
        streams.push(stream);
    }
    let start = Instant::now();
    let asks: Vec<_> = streams
        .into_iter()
        .map(|mut stream| tokio::spawn(async move { ask(&mut stream, 100_000).await }))
        .collect();
    let mut slowest = Duration::ZERO;
    let mut fastest = Duration::MAX;
    for ask in asks {
        let took = ask.await.unwrap();
        (slowest, fastest) = (slowest.max(took), fastest.min(took));
    }
    assert_about(start.elapsed(), 197);
    assert!(
        fastest > slowest / 2,
        "shares are fair: {fastest:?} of {slowest:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_arrives_behind_the_last_byte() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Link::start(LinkOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        upstream: listener.local_addr().unwrap(),
        rtt: Duration::from_millis(20),
        rate_bytes_per_s: Some(1_000_000),
    })
    .await
    .unwrap();
    let mut client = TcpStream::connect(link.address()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(&[7; 50_000]).await.unwrap();
    drop(server);
    let mut all = Vec::new();
    client.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, vec![7; 50_000]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_noticed_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Link::start(LinkOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        upstream: listener.local_addr().unwrap(),
        rtt: Duration::from_millis(10),
        rate_bytes_per_s: None,
    })
    .await
    .unwrap();
    let client = TcpStream::connect(link.address()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    drop(client);
    assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_rate_of_nothing_is_refused() {
    let address = "127.0.0.1:0".parse().unwrap();
    let options = LinkOptions {
        listen: address,
        upstream: address,
        rtt: Duration::ZERO,
        rate_bytes_per_s: Some(0),
    };
    let error = Link::start(options).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_prints_its_address_first() {
    use std::io::BufRead;
    use std::process::{Command, Stdio};

    let upstream = upstream().await.to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_range-testkit"))
        .args(["link", "--listen", "127.0.0.1:0", "--upstream", &upstream])
        .args(["--rtt-ms", "5", "--rate-bytes-per-s", "1000000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut address)
        .unwrap();
    let mut stream = TcpStream::connect(address.trim()).await.unwrap();
    assert!(ask(&mut stream, 64).await >= Duration::from_millis(10));
    child.kill().unwrap();
    child.wait().unwrap();
}
