//! The byte stream under a connection: gives back the bytes that were read to tell the protocol,
//! and breaks off when the peer takes no byte for too long.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How every HTTP/2 connection begins (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

pub(super) struct GuardedStream<T> {
    inner: T,
    read_ahead: Bytes,
    stall_timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> GuardedStream<T> {
    pub(super) fn new(inner: T, stall_timeout: Duration) -> Self {
        Self {
            inner,
            read_ahead: Bytes::new(),
            stall_timeout,
            stalled: None,
        }
    }

    /// Reads as far as the protocol needs to be told from the preface: one byte for HTTP/1.1.
    pub(super) async fn tell_protocol(&mut self) -> io::Result<Protocol> {
        let mut seen = BytesMut::with_capacity(HTTP2_PREFACE.len());
        let protocol = loop {
            let known = HTTP2_PREFACE
                .get(..seen.len())
                .is_some_and(|preface| preface == seen);
            if !known {
                break Protocol::Http1;
            }
            if seen.len() == HTTP2_PREFACE.len() {
                break Protocol::Http2;
            }
            let mut rest = (&mut self.inner).take((HTTP2_PREFACE.len() - seen.len()) as u64);
            if rest.read_buf(&mut seen).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        self.read_ahead = seen.freeze();
        Ok(protocol)
    }

    /// Passes a write's outcome on; starts, or looks at, the clock while the peer takes nothing.
    fn guard<R>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.stall_timeout;
        let clock = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match clock.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GuardedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_ahead.has_remaining() {
            let len = self.read_ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.read_ahead.split_to(len));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.guard(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.guard(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.guard(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.inner).poll_shutdown(context);
        self.guard(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::{GuardedStream, HTTP2_PREFACE, Protocol};

    /// What is told of a stream that begins like this, and what can be read of it afterwards.
    async fn told(opening: &[u8]) -> (std::io::Result<Protocol>, Vec<u8>) {
        let (mut client, server) = tokio::io::duplex(256);
        client.write_all(opening).await.unwrap();
        drop(client);
        let mut stream = GuardedStream::new(server, Duration::from_secs(5));
        let protocol = stream.tell_protocol().await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        (protocol, rest)
    }

    #[tokio::test]
    async fn the_protocol_is_told_and_no_byte_is_lost() {
        let http1 = b"GET /x HTTP/1.1\r\n\r\n";
        let (protocol, rest) = told(http1).await;
        assert_eq!(
            (protocol.unwrap(), rest.as_slice()),
            (Protocol::Http1, &http1[..])
        );
        let (protocol, rest) = told(b"PRI /x HTTP/1.1\r\n\r\n").await;
        assert_eq!((protocol.unwrap(), rest.len()), (Protocol::Http1, 19));
        let (protocol, rest) = told(HTTP2_PREFACE).await;
        assert_eq!(
            (protocol.unwrap(), rest.as_slice()),
            (Protocol::Http2, HTTP2_PREFACE)
        );
        let (protocol, _) = told(&HTTP2_PREFACE[..10]).await;
        assert_eq!(protocol.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (_client, server) = tokio::io::duplex(16);
        let mut stream = GuardedStream::new(server, Duration::from_millis(20));
        let error = stream.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
