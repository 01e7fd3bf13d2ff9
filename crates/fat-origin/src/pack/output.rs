//! The two files of a pack while they are written: in a hidden directory beside their final places,
//! which goes away with everything in it unless both are published.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use tempfile::TempDir;

use super::PackOptions;
use crate::Error;

#[derive(Debug)]
pub(super) struct Output {
    directory: PathBuf,
    name: String,
    unfinished: TempDir,
}

impl Output {
    pub(super) fn create(options: &PackOptions, source: &Path) -> Result<Self, Error> {
        let directory = options.out.clone();
        std::fs::create_dir_all(&directory).map_err(Error::io(&directory, "create"))?;
        let name = name(options, source)?;
        let unfinished = tempfile::Builder::new()
            .prefix(&format!(".{name}.partial-"))
            .tempdir_in(&directory)
            .map_err(Error::io(&directory, "create a directory in"))?;
        Ok(Self {
            directory,
            name,
            unfinished,
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

    /// Gives both files their names. The rows go first: a knot is what makes a model visible.
    pub(super) fn publish(self) -> Result<(PathBuf, PathBuf), Error> {
        let rows = self.directory.join(format!("{}.rows", self.name));
        let knot = self.directory.join(format!("{}.gkq", self.name));
        std::fs::rename(self.rows(), &rows).map_err(Error::io(&rows, "rename to"))?;
        std::fs::rename(self.knot(), &knot).map_err(Error::io(&knot, "rename to"))?;
        // Names are durable only once their directory is. Where that cannot be asked for, the files
        // are whole all the same.
        if let Ok(directory) = File::open(&self.directory) {
            let _ = directory.sync_all();
        }
        Ok((knot, rows))
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
