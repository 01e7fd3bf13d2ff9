//! A reply's body: pieces in memory and ranges of one file, streamed in small reads and counted.
//! A file that shrinks under the reply breaks the connection: a short body is never a whole one.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::access_log::Record;

/// Bytes of a file per read. Small enough that what a broken connection did not take is miscounted
/// by no more than this, large enough that a system call does not show.
const READ_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) enum Piece {
    Memory(Bytes),
    File(Arc<File>, Range<u64>),
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }
}

#[derive(Debug)]
pub(super) struct ReplyBody {
    pieces: VecDeque<Piece>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    remaining_bytes: u64,
    record: Record,
}

impl ReplyBody {
    /// A body of these pieces in order; `record` gets its line when the body ends.
    pub(super) fn new(pieces: impl IntoIterator<Item = Piece>, mut record: Record) -> Self {
        let pieces: VecDeque<Piece> = pieces.into_iter().filter(|piece| piece.len() > 0).collect();
        let remaining_bytes = pieces.iter().map(Piece::len).sum();
        if pieces.is_empty() {
            record.finish();
        }
        Self {
            pieces,
            reading: None,
            remaining_bytes,
            record,
        }
    }

    fn hand_over(&mut self, bytes: Bytes) -> Option<io::Result<Frame<Bytes>>> {
        let len = bytes.len() as u64;
        self.remaining_bytes = self.remaining_bytes.saturating_sub(len);
        self.record.add_sent(len);
        if self.remaining_bytes == 0 {
            self.record.finish();
        }
        Some(Ok(Frame::data(bytes)))
    }

    /// Starts the next read of a file piece, and puts the rest of the piece back.
    fn start_read(&mut self, file: &Arc<File>, range: Range<u64>) -> JoinHandle<io::Result<Bytes>> {
        let end = range.end.min(range.start + READ_BYTES);
        if end < range.end {
            self.pieces
                .push_front(Piece::File(Arc::clone(file), end..range.end));
        }
        let file = Arc::clone(file);
        tokio::task::spawn_blocking(move || {
            let len = usize::try_from(end - range.start).map_err(io::Error::other)?;
            let mut buffer = vec![0; len];
            file.read_exact_at(&mut buffer, range.start)?;
            Ok(Bytes::from(buffer))
        })
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(Pin::new(reading).poll(context));
                self.reading = None;
                return Poll::Ready(match read.map_err(io::Error::other).flatten() {
                    Ok(bytes) => self.hand_over(bytes),
                    Err(error) => {
                        self.pieces.clear();
                        Some(Err(error))
                    }
                });
            }
            match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Memory(bytes)) => return Poll::Ready(self.hand_over(bytes)),
                Some(Piece::File(file, range)) => {
                    let reading = self.start_read(&file, range);
                    self.reading = Some(reading);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining_bytes)
    }
}
