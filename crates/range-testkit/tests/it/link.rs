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

/// Measures until a time is close to the expected one, or patience ends: a
/// busy machine makes an exchange slower, never faster. None may be faster than expected.
async fn assert_about(expected_ms: u64, mut measure: impl AsyncFnMut() -> Duration) {
    let expected = Duration::from_millis(expected_ms);
    let mut fastest = Duration::MAX;
    for _ in 0..30 {
        let found = measure().await;
        assert!(found >= expected, "{found:?} is faster than {expected:?}");
        fastest = fastest.min(found);
        if fastest <= expected + Duration::from_millis(30) {
            return;
        }
    }
    panic!("{fastest:?} at best, expected {expected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_exchange_takes_two_round_trips_and_later_ones_one() {
    let link = link(40, None).await;
    let address = link.address();
    // The handshake is part of the first exchange: the clock starts before it.
    assert_about(80, async || {
        let start = Instant::now();
        let mut stream = TcpStream::connect(address).await.unwrap();
        ask(&mut stream, 100).await;
        start.elapsed()
    })
    .await;
    let made = link.connections();
    let mut stream = TcpStream::connect(address).await.unwrap();
    ask(&mut stream, 100).await;
    assert_about(40, async || ask(&mut stream, 100).await).await;
    assert_eq!(link.connections(), made + 1);
    assert_eq!(link.down_bytes(), link.up_bytes() / 4 * 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_delay_costs_no_throughput() {
    // 500 kB at 2.5 MB/s are 200 ms; with a window of one piece a round trip they would be 20 s.
    let link = link(80, Some(2_500_000)).await;
    let mut stream = TcpStream::connect(link.address()).await.unwrap();
    ask(&mut stream, 1).await;
    assert_about(80 + 200, async || ask(&mut stream, 500_000).await).await;
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
    let all = start.elapsed();
    // 400 kB at 2 MB/s; each alone would be done in 50 ms.
    assert!(all >= Duration::from_millis(200), "{all:?}");
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

/// A test that fails leaves no process behind.
struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_prints_its_address_first() {
    use std::io::BufRead;
    use std::process::{Command, Stdio};

    let upstream = upstream().await.to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_range-testkit"))
        .args(["link", "--listen", "127.0.0.1:0", "--upstream", &upstream])
        .args(["--rtt-ms", "5", "--rate-bytes-per-s", "1000000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = KillOnDrop(child);
    let mut address = String::new();
    std::io::BufReader::new(child.0.stdout.take().unwrap())
        .read_line(&mut address)
        .unwrap();
    let start = Instant::now();
    let mut stream = TcpStream::connect(address.trim()).await.unwrap();
    ask(&mut stream, 64).await;
    assert!(start.elapsed() >= Duration::from_millis(10));
}
