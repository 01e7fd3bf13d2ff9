//! The journal of one multipart upload: a small hidden file beside the file that is sent, one line a
//! part, so that a publisher that was killed goes on where it was. It holds no credentials. A journal
//! that cannot be kept costs the resumption, not the upload.
//!
//! The store's own list of parts would say the same, but not what each part was cut from; and what an
//! upload is called is known to nobody else once the process is gone.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::objects::LocalObject;

/// What the file's first line says it is.
const FORMAT: &str = "fat-origin upload";
/// A journal of 10,000 parts with ids of 100 characters stays below 2 MB.
const MAX_BYTES: u64 = 16 << 20;
/// Suffix of a journal's name.
const SUFFIX: &str = ".upload";

/// First line: which upload this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Upload {
    format: String,
    /// Digest of the place, so that one file may be on its way to several.
    destination: String,
    pub(super) object: String,
    bytes: u64,
    part_bytes: u64,
    /// The upload's name at the store.
    pub(super) upload_id: String,
}

/// A further line: a part that the store has acknowledged.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    part: usize,
    id: String,
}

/// The journal of an object's upload to one destination, locked while it is held.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    destination: String,
    upload: Option<Upload>,
    parts: BTreeMap<usize, String>,
}

impl Journal {
    /// The journal of `object`, empty if there is none that fits. `None` where none can be kept: the
    /// directory is read-only, or another process sends this very object.
    pub(super) fn open(object: &LocalObject, destination: &str) -> Option<Self> {
        let path = path(&object.file.path, &object.name, destination);
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            tracing::warn!("no journal at {}: not a regular file", path.display());
            return None;
        }
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(
                    "no journal at {}: {error}; an interrupted upload will begin anew",
                    path.display()
                );
                return None;
            }
        };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            tracing::warn!(
                "{} is in use: another process publishes this object; this upload keeps no journal",
                path.display()
            );
            return None;
        }
        let (upload, parts) = read(&mut file);
        Some(Self {
            path,
            file,
            destination: digest(destination),
            upload,
            parts,
        })
    }

    /// An upload that was begun before, and whether its parts are cut as `object`'s are now.
    pub(super) fn begun(&self, object: &LocalObject) -> Option<(&Upload, bool)> {
        let upload = self.upload.as_ref()?;
        let fits = upload.destination == self.destination
            && upload.object == object.name
            && upload.bytes == object.len_bytes()
            && upload.part_bytes == object.part_bytes;
        Some((upload, fits))
    }

    /// Parts that the store has, with what it calls them.
    pub(super) fn parts(&self) -> &BTreeMap<usize, String> {
        &self.parts
    }

    /// Begins anew with an upload.
    pub(super) fn begin(&mut self, object: &LocalObject, upload_id: &str) {
        let upload = Upload {
            format: FORMAT.to_owned(),
            destination: self.destination.clone(),
            object: object.name.clone(),
            bytes: object.len_bytes(),
            part_bytes: object.part_bytes,
            upload_id: upload_id.to_owned(),
        };
        self.parts.clear();
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        if emptied.is_ok() {
            self.append(&upload);
        }
        self.upload = Some(upload);
    }

    /// Notes a part that arrived.
    pub(super) fn note(&mut self, part: usize, id: &str) {
        self.append(&Part {
            part,
            id: id.to_owned(),
        });
        self.parts.insert(part, id.to_owned());
    }

    /// One line in one write: a torn one is ignored when it is read.
    fn append(&mut self, line: &impl Serialize) {
        let Ok(mut text) = serde_json::to_vec(line) else {
            return;
        };
        text.push(b'\n');
        if let Err(error) = self.file.write_all(&text) {
            tracing::warn!(
                "{}: {error}; an interrupted upload will send more again",
                self.path.display()
            );
        }
    }

    /// The upload is over; its journal goes.
    pub(super) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Journals beside `file` of uploads to `destination` of objects that are not among `wanted`: what was
/// begun and is not published any more.
pub(super) fn stale(file: &Path, destination: &str, wanted: &[&str]) -> Vec<(PathBuf, Upload)> {
    let directory = folder(file);
    let ending = format!(".{}{SUFFIX}", short(destination));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name
            .to_str()
            .and_then(|name| name.strip_prefix('.')?.strip_suffix(&ending))
            .is_some_and(|object| !wanted.contains(&object));
        if !ours || !entry.path().is_file() {
            continue;
        }
        let Ok(mut journal) = File::options().read(true).open(entry.path()) else {
            continue;
        };
        // What another process holds is not stale.
        if matches!(journal.try_lock(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        if let (Some(upload), _) = read(&mut journal)
            && upload.destination == digest(destination)
        {
            found.push((entry.path(), upload));
        }
    }
    found
}

fn path(file: &Path, object: &str, destination: &str) -> PathBuf {
    folder(file).join(format!(".{object}.{}{SUFFIX}", short(destination)))
}

/// The folder of a file; of a bare name, this one.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn digest(destination: &str) -> String {
    blake3::hash(destination.as_bytes()).to_string()
}

/// Enough of the digest to tell destinations apart in a name; the first line has all of it.
fn short(destination: &str) -> String {
    digest(destination).chars().take(8).collect()
}

/// What a journal says, as far as its lines are whole. Anything else is an empty journal.
fn read(file: &mut File) -> (Option<Upload>, BTreeMap<usize, String>) {
    let mut text = Vec::new();
    let read = file
        .seek(SeekFrom::Start(0))
        .and_then(|_| file.take(MAX_BYTES).read_to_end(&mut text));
    let mut parts = BTreeMap::new();
    if read.is_err() {
        return (None, parts);
    }
    let mut lines = text.split_inclusive(|&byte| byte == b'\n');
    let whole = |line: &&[u8]| line.ends_with(b"\n");
    let upload = lines
        .next()
        .filter(whole)
        .and_then(|line| serde_json::from_slice::<Upload>(line).ok())
        .filter(|upload| upload.format == FORMAT);
    if upload.is_some() {
        for line in lines.filter(whole) {
            if let Ok(part) = serde_json::from_slice::<Part>(line) {
                parts.insert(part.part, part.id);
            }
        }
    }
    (upload, parts)
}
