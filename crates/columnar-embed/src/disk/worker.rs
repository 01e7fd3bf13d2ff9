//! The thread that does a tier's file work: look-ups before writes, so that no batch waits for the
//! rows of an earlier one to be written. Bounded in bytes and in the time it is waited for.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    complete::Completeness,
    file::{Access, Found, TableFiles},
    layout::CachedTable,
};
use crate::{Error, Row, layout::RowId, row_map::RowMap};

/// Bytes of rows that may wait to be written. Rows beyond are not kept: memory is worth more than a
/// later transfer.
const MAX_QUEUED_BYTES: u64 = 64 << 20;

/// Rows that are written before look-ups are served again.
const ROWS_AT_ONCE: usize = 64;

/// Counts of one tier since it was started.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) read: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// What the thread and the handles of a tier share.
#[derive(Debug)]
pub(super) struct Shared {
    directory: PathBuf,
    queue: Mutex<Queue>,
    wake: Condvar,
    ended: Condvar,
    pub(super) counters: Counters,
    /// No row is read any more.
    unreadable: AtomicBool,
    /// No row is written any more.
    unwritable: AtomicBool,
    warned: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    lookups: VecDeque<Lookup>,
    inserts: VecDeque<(RowId, Row)>,
    queued_bytes: u64,
    flushes: VecDeque<oneshot::Sender<Result<(), Error>>>,
    completions: VecDeque<oneshot::Sender<Result<Completeness, Error>>>,
    /// What keeps rows from being read or written: the first failure.
    failure: Option<Error>,
    /// The files are being made: there is nothing to look up yet.
    nothing_there: bool,
    stopping: bool,
    ended: bool,
}

#[derive(Debug)]
struct Lookup {
    ids: Vec<RowId>,
    reply: oneshot::Sender<Vec<(RowId, Row)>>,
}

enum Job {
    Lookup(Lookup),
    Insert(Vec<(RowId, Row)>),
    Flush(oneshot::Sender<Result<(), Error>>),
    Complete(oneshot::Sender<Result<Completeness, Error>>),
    Stop,
}

impl Shared {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            queue: Mutex::default(),
            wake: Condvar::new(),
            ended: Condvar::new(),
            counters: Counters::default(),
            unreadable: AtomicBool::new(false),
            unwritable: AtomicBool::new(false),
            warned: AtomicBool::new(false),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Asks for rows; `None` where none can be read.
    pub(super) fn look_up(&self, ids: Vec<RowId>) -> Option<oneshot::Receiver<Vec<(RowId, Row)>>> {
        if self.unreadable.load(Ordering::Relaxed) {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        {
            let mut queue = self.lock();
            if queue.ended || queue.nothing_there {
                return None;
            }
            queue.lookups.push_back(Lookup { ids, reply });
        }
        self.wake.notify_one();
        Some(answer)
    }

    /// Hands over rows to be written, as far as there is room for them.
    pub(super) fn insert(&self, rows: impl IntoIterator<Item = (RowId, Row)>) {
        if self.unwritable.load(Ordering::Relaxed) {
            return;
        }
        {
            let mut queue = self.lock();
            for (id, row) in rows {
                let bytes = queue.queued_bytes.saturating_add(row.len() as u64);
                if bytes > MAX_QUEUED_BYTES {
                    self.counters.dropped.fetch_add(1, Ordering::Relaxed);
                } else {
                    queue.queued_bytes = bytes;
                    queue.inserts.push_back((id, row));
                }
            }
        }
        self.wake.notify_one();
    }

    pub(super) fn flush(&self) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        let mut queue = self.lock();
        if !queue.ended {
            queue.flushes.push_back(reply);
        }
        self.wake.notify_one();
        answer
    }

    pub(super) fn complete(&self) -> oneshot::Receiver<Result<Completeness, Error>> {
        let (reply, answer) = oneshot::channel();
        let mut queue = self.lock();
        if !queue.ended {
            queue.completions.push_back(reply);
        }
        self.wake.notify_one();
        answer
    }

    /// What keeps rows from being kept, if anything does.
    pub(super) fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }

    /// Has the thread finish what is queued, and waits for it. Whether it ended in time.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        let mut queue = self.lock();
        queue.stopping = true;
        self.wake.notify_one();
        let waited = self
            .ended
            .wait_timeout_while(queue, patience, |queue| !queue.ended);
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.ended
    }

    /// Whether look-ups are answered at once that nothing is there. Making files waits for the disk,
    /// which the first prompt of a new directory need not.
    fn set_nothing_there(&self, nothing_there: bool) {
        let mut queue = self.lock();
        queue.nothing_there = nothing_there;
        if nothing_there {
            queue.lookups.clear();
        }
    }

    /// There is no thread, or it has ended: nobody waits for it.
    pub(super) fn end(&self) {
        self.unreadable.store(true, Ordering::Relaxed);
        self.unwritable.store(true, Ordering::Relaxed);
        let mut queue = self.lock();
        queue.ended = true;
        // Whoever waits for an answer is told by the end of its channel.
        queue.lookups.clear();
        queue.inserts.clear();
        queue.flushes.clear();
        queue.completions.clear();
        self.ended.notify_all();
    }

    /// From now on no row is read: what is asked for has to come from elsewhere.
    pub(super) fn close_reads(&self, error: Error) {
        self.unreadable.store(true, Ordering::Relaxed);
        self.close_writes(error);
    }

    fn close_writes(&self, error: Error) {
        self.unwritable.store(true, Ordering::Relaxed);
        if !self.warned.swap(true, Ordering::Relaxed) {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(": {cause}"));
            tracing::warn!(
                "the row cache in {} keeps no more rows: {error}{}; rows are fetched again and kept in \
                 memory{}",
                self.directory.display(),
                cause.unwrap_or_default(),
                advice(&error)
            );
        }
        let mut queue = self.lock();
        queue.inserts.clear();
        queue.queued_bytes = 0;
        queue.failure.get_or_insert(error);
    }

    fn next(&self) -> Job {
        let mut queue = self.lock();
        loop {
            if let Some(lookup) = queue.lookups.pop_front() {
                return Job::Lookup(lookup);
            }
            if !queue.inserts.is_empty() {
                let rows = queue.inserts.len().min(ROWS_AT_ONCE);
                let rows: Vec<(RowId, Row)> = queue.inserts.drain(..rows).collect();
                let bytes: u64 = rows.iter().map(|(_, row)| row.len() as u64).sum();
                queue.queued_bytes = queue.queued_bytes.saturating_sub(bytes);
                return Job::Insert(rows);
            }
            if let Some(reply) = queue.flushes.pop_front() {
                return Job::Flush(reply);
            }
            if let Some(reply) = queue.completions.pop_front() {
                return Job::Complete(reply);
            }
            if queue.stopping {
                return Job::Stop;
            }
            queue = self
                .wake
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Every step leaves the queue whole, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an operator can do, where the cause does not say it itself.
fn advice(error: &Error) -> &'static str {
    match error {
        Error::Disk { source, .. } if source.kind() != ErrorKind::InvalidInput => {
            ". Make room or give write permission there, or name another directory"
        }
        _ => "",
    }
}

/// Marks the thread's end however it ends, so that nobody waits for a thread that is gone.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The thread: opens the files of `table`, then works until it is stopped.
pub(super) fn work(shared: &Shared, table: CachedTable, rows: RowMap) {
    let _ended = Ended(shared);
    shared.set_nothing_there(TableFiles::are_missing(&shared.directory, &table));
    let files = TableFiles::open(&shared.directory, table, rows);
    shared.set_nothing_there(false);
    let files = match files {
        Ok(files) => {
            if let Access::ReadOnly(path) = &files.access {
                let source = std::io::ErrorKind::PermissionDenied.into();
                shared.close_writes(Error::disk(path, "write", source));
            }
            Ok(files)
        }
        Err(error) => {
            shared.close_reads(error.clone());
            Err(error)
        }
    };
    loop {
        match shared.next() {
            Job::Lookup(lookup) => match &files {
                Ok(files) => answer(shared, files, lookup),
                Err(_) => drop(lookup),
            },
            Job::Insert(rows) => {
                if let Ok(files) = &files {
                    write(shared, files, &rows);
                }
            }
            // Nobody may be left to hear either.
            Job::Flush(reply) => drop(reply.send(shared.failure().map_or(Ok(()), Err))),
            Job::Complete(reply) => {
                let complete = files.as_ref().map_err(Error::clone);
                drop(reply.send(complete.and_then(TableFiles::complete)));
            }
            Job::Stop => break,
        }
    }
    if let Ok(files) = &files
        && shared.counters.written.load(Ordering::Relaxed) > 0
    {
        complete_at_end(shared, files);
    }
}

fn answer(shared: &Shared, files: &TableFiles, lookup: Lookup) {
    let mut found = Vec::with_capacity(lookup.ids.len());
    for id in lookup.ids {
        // Whoever asked has gone: the rest need not be read.
        if lookup.reply.is_closed() {
            return;
        }
        match files.read(id) {
            Ok(Found::Row(row)) => found.push((id, row)),
            Ok(Found::Absent) => {}
            Ok(Found::Damaged) => {
                shared.counters.damaged.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(row = id.0, "a row of the disk cache is damaged");
            }
            Err(error) => {
                shared.close_reads(Error::disk(&files.directory, "read a row of", error));
                break;
            }
        }
    }
    let read = found.len() as u64;
    shared.counters.read.fetch_add(read, Ordering::Relaxed);
    let _ = lookup.reply.send(found);
}

fn write(shared: &Shared, files: &TableFiles, rows: &[(RowId, Row)]) {
    if shared.unwritable.load(Ordering::Relaxed) {
        return;
    }
    for (id, row) in rows {
        if let Err(error) = files.write(*id, row) {
            shared.close_writes(Error::disk(&files.directory, "write a row to", error));
            return;
        }
        shared.counters.written.fetch_add(1, Ordering::Relaxed);
    }
}

fn complete_at_end(shared: &Shared, files: &TableFiles) {
    match files.complete() {
        Ok(Completeness::Complete { path }) => {
            tracing::info!(file = %path.display(), "every row is on disk: this is the row file");
        }
        Ok(Completeness::Partial { .. }) => {}
        Err(error) => shared.close_writes(error),
    }
}
