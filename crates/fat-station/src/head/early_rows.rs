//! Rows of a head that is still arriving, for whoever can use them before the whole is checked. They
//! are worth waiting for, not keeping: what finds no room goes by, and is had from the whole head.

use crate::knot::Arrivals;
use bytes::{Bytes, BytesMut};
use gkq_v2::Dtype;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Bytes of a chunk, at least one row: a product of that many is a small part of a millisecond.
const CHUNK_BYTES: usize = 256 << 10;

/// Chunks that wait to be used: 2 MiB, whatever the link and the model.
const CHUNKS: usize = 8;

/// Rows as they arrived.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Which of the head's rows.
    pub(crate) rows: Range<usize>,
    /// Their bytes, unchecked.
    pub(crate) bytes: Bytes,
    /// Which reading of the head they are of.
    pub(crate) attempt: u32,
}

/// The rows of one head, in the order they arrive. Ends when the load of the head does.
#[derive(Debug)]
pub(crate) struct EarlyRows {
    dtype: Dtype,
    chunks: mpsc::Receiver<Chunk>,
    attempt: Arc<AtomicU32>,
}

/// Cuts what arrives into chunks of rows.
#[derive(Debug)]
pub(super) struct RowCutter {
    row_bytes: usize,
    /// Begins with 1; another begins where bytes were wrong.
    attempt: Arc<AtomicU32>,
    state: Mutex<Cutting>,
}

#[derive(Debug)]
struct Cutting {
    chunks: mpsc::Sender<Chunk>,
    pending: BytesMut,
    /// Rows in chunks so far.
    rows: usize,
    /// Bytes that have arrived without a gap; a piece elsewhere ends the cutting.
    have_bytes: u64,
}

/// Cutter and rows of a head whose rows have `row_bytes` bytes of `dtype`.
pub(super) fn early_rows(dtype: Dtype, row_bytes: usize) -> (RowCutter, EarlyRows) {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let attempt = Arc::new(AtomicU32::new(0));
    let cutter = RowCutter {
        row_bytes: row_bytes.max(1),
        attempt: Arc::clone(&attempt),
        state: Mutex::new(Cutting {
            chunks: sender,
            pending: BytesMut::new(),
            rows: 0,
            have_bytes: 0,
        }),
    };
    let rows = EarlyRows {
        dtype,
        chunks: receiver,
        attempt,
    };
    (cutter, rows)
}

impl EarlyRows {
    /// How the rows are stored.
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The next chunk; `None` when there will be none.
    pub(crate) async fn next(&mut self) -> Option<Chunk> {
        self.chunks.recv().await
    }

    /// The last reading of the head that began. Once the head is loaded, its bytes are the right
    /// ones; those of the readings before it were wrong.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Acquire)
    }
}

impl Arrivals for RowCutter {
    fn piece(&self, _at: usize, offset: u64, piece: &Bytes) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            self.attempt.fetch_add(1, Ordering::Release);
            state.pending.clear();
            (state.rows, state.have_bytes) = (0, 0);
        }
        if offset != state.have_bytes {
            return;
        }
        state.have_bytes += piece.len() as u64;
        state.pending.extend_from_slice(piece);
        let chunk_rows = (CHUNK_BYTES / self.row_bytes).max(1);
        while state.pending.len() >= chunk_rows * self.row_bytes {
            self.cut(&mut state, chunk_rows);
        }
    }

    fn arrived(&self, _at: usize, _payload: &Bytes) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = state.pending.len() / self.row_bytes;
        if rest > 0 {
            self.cut(&mut state, rest);
        }
    }
}

impl RowCutter {
    fn cut(&self, state: &mut Cutting, rows: usize) {
        let bytes = state.pending.split_to(rows * self.row_bytes).freeze();
        let chunk = Chunk {
            rows: state.rows..state.rows + rows,
            bytes,
            attempt: self.attempt.load(Ordering::Acquire),
        };
        state.rows += rows;
        // Without room, or with nobody there, these rows are had from the whole head.
        let _ = state.chunks.try_send(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn next(rows: &mut EarlyRows) -> Option<Chunk> {
        rows.next().now_or_never().flatten()
    }

    fn arrive(cutter: &RowCutter, bytes: &Bytes, piece_bytes: usize) {
        for start in (0..bytes.len()).step_by(piece_bytes) {
            let end = bytes.len().min(start + piece_bytes);
            cutter.piece(0, start as u64, &bytes.slice(start..end));
        }
    }

    /// 64 chunks less a row, of rows of 1,000 bytes.
    fn head() -> (Bytes, usize) {
        let rows = 64 * (CHUNK_BYTES / 1_000) - 1;
        let bytes = (0..rows * 1_000).map(|at| (at % 251).to_le_bytes()[0]);
        (bytes.collect::<Vec<u8>>().into(), rows)
    }

    #[test]
    fn rows_come_whole_in_order_and_to_the_last() {
        let (bytes, rows) = head();
        let (cutter, mut early) = early_rows(Dtype::Q8_0, 1_000);
        let mut seen = 0;
        for start in (0..bytes.len()).step_by(70_001) {
            let end = bytes.len().min(start + 70_001);
            cutter.piece(0, start as u64, &bytes.slice(start..end));
            while let Some(chunk) = next(&mut early) {
                assert_eq!(chunk.rows.start, seen);
                assert_eq!(chunk.bytes, bytes[seen * 1_000..chunk.rows.end * 1_000]);
                assert_eq!(chunk.attempt, early.attempt());
                seen = chunk.rows.end;
            }
        }
        assert!(seen < rows);
        cutter.arrived(0, &bytes);
        drop(cutter);
        assert_eq!(next(&mut early).unwrap().rows, seen..rows);
        assert!(next(&mut early).is_none(), "and there will be none");
    }

    #[test]
    fn what_nobody_takes_goes_by_and_memory_is_bounded() {
        let (bytes, rows) = head();
        let (cutter, mut early) = early_rows(Dtype::Q8_0, 1_000);
        arrive(&cutter, &bytes, 100_000);
        cutter.arrived(0, &bytes);
        drop(cutter);
        let mut chunks = 0;
        while let Some(chunk) = next(&mut early) {
            assert!(chunk.rows.end <= rows);
            chunks += 1;
        }
        assert_eq!(chunks, CHUNKS);
    }

    #[test]
    fn a_second_reading_is_another_attempt_and_a_gap_ends_the_first() {
        let (bytes, _) = head();
        let (cutter, mut early) = early_rows(Dtype::Q8_0, 1_000);
        arrive(&cutter, &bytes.slice(..CHUNK_BYTES + 1), 100_000);
        let wrong = next(&mut early).unwrap();
        assert_eq!(wrong.attempt, early.attempt());
        cutter.piece(0, 900_000, &bytes);
        assert!(next(&mut early).is_none(), "not the next bytes");
        arrive(&cutter, &bytes.slice(..CHUNK_BYTES), 100_000);
        assert_ne!(wrong.attempt, early.attempt());
        let right = next(&mut early).unwrap();
        assert_eq!((right.rows.start, right.attempt), (0, early.attempt()));
    }

    #[test]
    fn a_payload_that_was_here_already_has_no_early_rows() {
        let (bytes, _) = head();
        let (cutter, mut early) = early_rows(Dtype::Q8_0, 1_000);
        cutter.piece(0, 5_000, &bytes.slice(5_000..));
        cutter.arrived(0, &bytes);
        drop(cutter);
        assert!(next(&mut early).is_none());
    }
}
