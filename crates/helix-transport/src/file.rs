//! [`FileSource`]: an object in a local file, read by position. Not a mapping (the station maps
//! knots itself) and not a cache. The open descriptor keeps a replaced file's old content; writing
//! into it in place is noticed by length and modification time.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use rustix::fs::OFlags;

use crate::source::check_inside;
use crate::{ByteRange, Error, ObjectVersion, RangeSource, ReadOptions};

/// Piece of a streamed file: large enough to amortise the hop to a blocking thread.
const PIECE_BYTES: u64 = 1 << 20;

/// Blocking reads in flight: page cache hits need none, a disk gains little beyond.
const PARALLELISM: usize = 8;

/// A local file, pinned by length and modification time when it is opened.
#[derive(Debug)]
pub struct FileSource {
    name: String,
    file: Arc<File>,
    pinned: FileStamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    len_bytes: u64,
    modified: SystemTime,
}

impl FileStamp {
    fn of(file: &File) -> std::io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            len_bytes: metadata.len(),
            modified: metadata.modified()?,
        })
    }
}

impl FileSource {
    /// Opens `path` for reading and pins its version.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened or is no regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let open = || {
            // Opening a device may do something; what counts is what was opened. No FIFO is waited for.
            regular(&path.metadata()?)?;
            let mut options = OpenOptions::new();
            options.read(true);
            let file = options
                .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                .open(path)?;
            regular(&file.metadata()?)?;
            let pinned = FileStamp::of(&file)?;
            Ok((file, pinned))
        };
        match open() {
            Ok((file, pinned)) => Ok(Self {
                name,
                file: Arc::new(file),
                pinned,
            }),
            Err(source) => Err(Error::Io {
                object: name,
                source,
            }),
        }
    }

    async fn read_range(&self, range: ByteRange, options: &ReadOptions) -> Result<Bytes, Error> {
        check_inside(&self.name, range, self.pinned.len_bytes)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let file = Arc::clone(&self.file);
        let task = tokio::task::spawn_blocking(move || read_exact_at(&file, range));
        let outcome = task
            .await
            .unwrap_or_else(|join| Err(std::io::Error::other(join)));
        options.meter.add_request();
        match outcome {
            Ok((bytes, stamp)) => {
                options.meter.add_received(bytes.len() as u64);
                self.check_stamp(range, stamp)?;
                Ok(bytes)
            }
            // Shorter than when it was opened: a change, not an accident of reading.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                let now = FileStamp::of(&self.file).map_err(|source| self.io(source))?;
                self.check_stamp(range, now)?;
                Err(self.io(error))
            }
            Err(source) => Err(self.io(source)),
        }
    }

    fn io(&self, source: std::io::Error) -> Error {
        Error::Io {
            object: self.name.clone(),
            source,
        }
    }

    fn check_stamp(&self, range: ByteRange, found: FileStamp) -> Result<(), Error> {
        let changed = |fact, expected, found| {
            Err(Error::Changed {
                object: self.name.clone(),
                range,
                fact,
                expected,
                found,
            })
        };
        if found.len_bytes != self.pinned.len_bytes {
            return changed(
                "length",
                self.pinned.len_bytes.to_string(),
                found.len_bytes.to_string(),
            );
        }
        if found.modified != self.pinned.modified {
            return changed(
                "modification time",
                format!("{:?}", self.pinned.modified),
                format!("{:?}", found.modified),
            );
        }
        Ok(())
    }
}

fn regular(metadata: &Metadata) -> std::io::Result<()> {
    use std::io::{Error, ErrorKind};
    if metadata.is_file() {
        Ok(())
    } else if metadata.is_dir() {
        Err(ErrorKind::IsADirectory.into())
    } else {
        let why = "expected a regular file, found a FIFO, a socket or a device";
        Err(Error::new(ErrorKind::InvalidInput, why))
    }
}

/// The stamp is taken after the bytes: a write before or during the read then shows in it.
fn read_exact_at(file: &File, range: ByteRange) -> std::io::Result<(Bytes, FileStamp)> {
    let len = usize::try_from(range.len()).map_err(std::io::Error::other)?;
    let mut buffer = vec![0; len];
    file.read_exact_at(&mut buffer, range.start)?;
    Ok((buffer.into(), FileStamp::of(file)?))
}

impl RangeSource for FileSource {
    fn read<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        self.read_range(range, options).boxed()
    }

    fn read_prefix<'a>(
        &'a self,
        max_bytes: u64,
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<Bytes, Error>> {
        let end = max_bytes.min(self.pinned.len_bytes);
        self.read_range(ByteRange { start: 0, end }, options)
            .boxed()
    }

    fn stream<'a>(
        &'a self,
        range: ByteRange,
        options: &'a ReadOptions,
    ) -> BoxStream<'a, Result<Bytes, Error>> {
        // The state is the rest of the range; an error or an empty rest ends the stream.
        stream::unfold(Some(range), move |rest| async move {
            let rest = rest.filter(|rest| rest.end < rest.start || !rest.is_empty())?;
            let end = rest.start.saturating_add(PIECE_BYTES).min(rest.end);
            // A rest that leaves the object is asked whole, so that the error names all of it.
            let inside = check_inside(&self.name, rest, self.pinned.len_bytes);
            let piece = match inside {
                Ok(()) => {
                    self.read_range(
                        ByteRange {
                            start: rest.start,
                            end,
                        },
                        options,
                    )
                    .await
                }
                Err(error) => Err(error),
            };
            let next = piece.is_ok().then_some(ByteRange {
                start: end,
                end: rest.end,
            });
            Some((piece, next))
        })
        .boxed()
    }

    fn version(&self) -> Option<ObjectVersion> {
        Some(ObjectVersion {
            len_bytes: self.pinned.len_bytes,
            etag: None,
            weak_etag: None,
        })
    }

    fn parallelism(&self) -> usize {
        PARALLELISM
    }

    fn request_cost_bytes(&self) -> u64 {
        0
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::FileSource;
    use crate::ErrorKind;

    #[test]
    fn no_fifo_is_waited_for_and_no_device_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        for path in [fifo.as_path(), std::path::Path::new("/dev/zero")] {
            let error = FileSource::open(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        }
    }
}
