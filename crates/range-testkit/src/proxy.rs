//! [`ProxyServer`]: an HTTP proxy whose every origin is one address of ours, whatever name it is asked
//! for. CONNECT tunnels, absolute-form requests, Basic credentials, refusals. Not a cache.

use std::net::SocketAddr;

use tokio::io::{AsyncWriteExt, BufReader, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::server::RequestHead;
use crate::{LogEntry, RequestLog};

/// How a [`ProxyServer`] treats its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyOptions {
    /// Where every tunnel and every request leads.
    pub upstream: SocketAddr,
    /// `Proxy-Authorization` without which the answer is 407.
    pub authorization: Option<String>,
    /// Answer everything with this status.
    pub refusal: Option<u16>,
}

/// A proxy on loopback that runs until it is dropped.
#[derive(Debug)]
pub struct ProxyServer {
    address: SocketAddr,
    log: RequestLog,
    accepting: AbortHandle,
}

impl ProxyServer {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// If no loopback port can be bound.
    pub async fn start(options: ProxyOptions) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let log = RequestLog::default();
        let accepting = tokio::spawn(accept(listener, options, log.clone())).abort_handle();
        Ok(Self {
            address,
            log,
            accepting,
        })
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked: `method`, `path` (the target as sent), `host`, `proxy_authorization`.
    #[must_use]
    pub fn log(&self) -> &RequestLog {
        &self.log
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, options: ProxyOptions, log: RequestLog) {
    let mut connections = JoinSet::new();
    let mut number = 0;
    while let Ok((stream, _peer)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (options, log) = (options.clone(), log.clone());
        connections.spawn(async move {
            // An error is one of the two peers going away, which is their right.
            let _ = serve(stream, &options, &log, number).await;
        });
        number += 1;
    }
}

async fn serve(
    mut stream: TcpStream,
    options: &ProxyOptions,
    log: &RequestLog,
    connection: u64,
) -> std::io::Result<()> {
    let (reading, mut writing) = stream.split();
    let mut reading = BufReader::new(reading);
    let Some(mut head) = RequestHead::read(&mut reading).await? else {
        return Ok(());
    };
    note(&head, log, connection);
    if let Some(status) = options.refused(&head) {
        let reply = format!("HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\n\r\n");
        writing.write_all(reply.as_bytes()).await?;
        return writing.shutdown().await;
    }
    let mut upstream = TcpStream::connect(options.upstream).await?;
    if head.method == "CONNECT" {
        writing
            .write_all(b"HTTP/1.1 200 Established\r\n\r\n")
            .await?;
        copy_bidirectional(&mut stream, &mut upstream).await?;
        return Ok(());
    }
    let (mut replies, mut requests) = upstream.split();
    let forward = async {
        loop {
            requests.write_all(head.in_origin_form().as_bytes()).await?;
            match RequestHead::read(&mut reading).await? {
                Some(next) => head = next,
                None => return Ok(()),
            }
            note(&head, log, connection);
        }
    };
    let back = async { copy(&mut replies, &mut writing).await.map(|_bytes| ()) };
    tokio::select! {
        ended = forward => ended,
        ended = back => ended,
    }
}

impl ProxyOptions {
    fn refused(&self, head: &RequestHead) -> Option<u16> {
        let wanted = self.authorization.as_ref();
        let given = head.field("proxy-authorization");
        match self.refusal {
            None if wanted.is_some() && wanted != given.as_ref() => Some(407),
            refusal => refusal,
        }
    }
}

fn note(head: &RequestHead, log: &RequestLog, connection: u64) {
    let number = log.begin(LogEntry {
        connection,
        method: head.method.clone(),
        path: head.target.clone(),
        authorization: head.field("authorization"),
        proxy_authorization: head.field("proxy-authorization"),
        host: head.field("host"),
        ..LogEntry::default()
    });
    log.end(number);
}
