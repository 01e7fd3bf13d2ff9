//! The files of a pack while they are written: in a hidden directory beside their final places,
//! which goes away with everything in it unless all are published. A packer that was killed leaves
//! its directory; the next pack of that name takes it away.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use tempfile::TempDir;

use super::PackOptions;
use crate::Error;

/// How often a directory is made again that was taken for a left-over before it was locked.
const MAX_TRIES: usize = 8;

#[derive(Debug)]
pub(super) struct Output {
    directory: PathBuf,
    name: String,
    unfinished: TempDir,
    /// The unfinished directory, locked as long as this process lives.
    _lock: File,
}

impl Output {
    pub(super) fn create(options: &PackOptions, source: &Path) -> Result<Self, Error> {
        let directory = options.out.clone();
        std::fs::create_dir_all(&directory).map_err(Error::io(&directory, "create"))?;
        let name = name(options, source)?;
        let prefix = format!(".{name}.partial-");
        sweep(&directory, &prefix);
        let (unfinished, lock) = unfinished(&directory, &prefix)?;
        Ok(Self {
            directory,
            name,
            unfinished,
            _lock: lock,
        })
    }

    /// Where the knot is written.
    pub(super) fn knot(&self) -> PathBuf {
        self.unfinished.path().join("knot")
    }

    /// Where the rows are written.
    pub(super) fn rows(&self) -> PathBuf {
        self.unfinished.path().join("rows")
    }

    /// A file for what waits to be written.
    pub(super) fn scratch(&self, number: usize) -> PathBuf {
        self.unfinished.path().join(format!("factors-{number}"))
    }

    /// Where the sidecar of rows of several kinds is written, if there is one.
    pub(super) fn sidecar(&self) -> PathBuf {
        self.unfinished.path().join("sidecar")
    }

    /// Gives all files their names, or none. The rows go first and their sidecar next: a knot is what
    /// makes a model visible.
    pub(super) fn publish(self) -> Result<Published, Error> {
        let place = |extension: &str| self.directory.join(format!("{}.{extension}", self.name));
        let (rows, sidecar, knot) = (place("rows"), place("embed-rows.idx"), place("gkq"));
        let has_sidecar = self.sidecar().exists();
        let mut placed = vec![self.put(&self.rows(), &rows, "previous-rows")?];
        if has_sidecar {
            match self.put(&self.sidecar(), &sidecar, "previous-sidecar") {
                Ok(file) => placed.push(file),
                Err(error) => {
                    placed.iter().for_each(Placed::put_back);
                    return Err(error);
                }
            }
        }
        if let Err(error) = std::fs::rename(self.knot(), &knot) {
            placed.iter().for_each(Placed::put_back);
            return Err(Error::io(&knot, "rename to")(error));
        }
        if !has_sidecar {
            // That of an earlier pack would describe rows that are no longer there.
            let _ = std::fs::remove_file(&sidecar);
        }
        // Names are durable only once their directory is. Where that cannot be asked for, the files
        // are whole all the same.
        if let Ok(directory) = File::open(&self.directory) {
            let _ = directory.sync_all();
        }
        Ok(Published {
            knot,
            rows,
            sidecar: has_sidecar.then_some(sidecar),
        })
    }

    /// Moves a finished file to its name; what had the name before can be put back.
    fn put(&self, finished: &Path, name: &Path, previous: &str) -> Result<Placed, Error> {
        let previous = self.unfinished.path().join(previous);
        // A second name for the file that is there keeps it until the knot is in its place.
        let kept = match std::fs::hard_link(name, &previous) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            // Not every file system has links: then the file is away for a moment.
            Err(_) => std::fs::rename(name, &previous).is_ok(),
        };
        let placed = Placed {
            name: name.to_owned(),
            previous,
            kept,
        };
        if let Err(error) = std::fs::rename(finished, name) {
            if kept {
                placed.put_back();
            }
            return Err(Error::io(name, "rename to")(error));
        }
        Ok(placed)
    }
}

/// The names of what was packed.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) knot: PathBuf,
    pub(super) rows: PathBuf,
    pub(super) sidecar: Option<PathBuf>,
}

/// A file under its final name.
#[derive(Debug)]
struct Placed {
    name: PathBuf,
    previous: PathBuf,
    /// Whether `previous` is the file that had the name before.
    kept: bool,
}

impl Placed {
    fn put_back(&self) {
        let _ = if self.kept {
            std::fs::rename(&self.previous, &self.name)
        } else {
            std::fs::remove_file(&self.name)
        };
    }
}

/// A new hidden directory, locked. A sweep of another packer may take it away before it is: then
/// another is made. Where directories cannot be locked nobody sweeps either.
fn unfinished(directory: &Path, prefix: &str) -> Result<(TempDir, File), Error> {
    let mut last = std::io::Error::from(ErrorKind::ResourceBusy);
    for _ in 0..MAX_TRIES {
        let made = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(directory)
            .map_err(Error::io(directory, "create a directory in"))?;
        let lock = match File::open(made.path()) {
            Ok(lock) => lock,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let swept = matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
        if !swept && made.path().exists() {
            return Ok((made, lock));
        }
    }
    Err(Error::io(directory, "create a directory in")(last))
}

/// Takes away what killed packers of this name left: directories that no process has locked. What
/// cannot be removed stays, it is in nobody's way.
fn sweep(directory: &Path, prefix: &str) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(prefix);
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_ours || !is_directory {
            continue;
        }
        if let Ok(lock) = File::open(entry.path())
            && lock.try_lock().is_ok()
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The stem: what was asked, else the directory's name or the file's without `.gguf`.
fn name(options: &PackOptions, source: &Path) -> Result<String, Error> {
    let stem = || {
        let absolute = source.canonicalize().map_err(Error::io(source, "open"))?;
        // The link's name rather than its target's: that is what the user called the model.
        let named = match source.components().next_back() {
            Some(Component::Normal(_)) => source,
            _ => &absolute,
        };
        let stem = if source.is_dir() {
            named.file_name()
        } else {
            named.file_stem()
        };
        Ok::<_, Error>(stem.unwrap_or_default().to_string_lossy().into_owned())
    };
    let name = match &options.name {
        Some(name) => name.clone(),
        None => stem()?,
    };
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    if plain {
        Ok(name)
    } else {
        Err(Error::Option {
            option: "--name",
            reason: format!("`{name}` is no plain file name; give another"),
        })
    }
}
