//! `hf://ORG/NAME[@REV][/path]`: files of a model repository on a Hugging Face hub, as URLs of one
//! commit, or as files of the hub's local cache where the station must stay offline. It downloads
//! no file and writes nothing into that cache. Specification: the hub's HTTP API
//! (`/api/models/{repo}/revision/{rev}`, `/{repo}/resolve/{commit}/{path}`), and the cache layout and
//! environment variables of `huggingface_hub`.

mod settings;

pub use settings::HubSettings;

use crate::error::Error;
use crate::locator::Locator;
use crate::origin::Origins;
use crate::traffic::{Kind, Traffic};
use helix_transport::{Credentials, ErrorKind, read_whole};
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use url::Url;

/// What begins a reference.
const SCHEME: &str = "hf://";
/// The revision where none is named.
const DEFAULT_REVISION: &str = "main";
/// Longest account of a repository that is read: 10,000 files take about 1 MB.
const MAX_INFO_BYTES: u64 = 16 << 20;
/// Longest name of a repository's part or revision; the hub allows 96.
const MAX_NAME_BYTES: usize = 128;
/// Files that errors list.
const SHOWN_FILES: usize = 8;

/// A reference to a repository or one of its files, as the user writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubRef {
    organisation: String,
    name: String,
    revision: String,
    path: Option<String>,
}

/// A repository at one commit.
#[derive(Debug)]
pub struct HubRepository {
    reference: HubRef,
    place: Place,
    /// Names of its files, where they are known.
    files: Option<Vec<String>>,
}

#[derive(Debug)]
enum Place {
    /// `{endpoint}/{repo}/resolve/{commit}/`.
    Remote(Url),
    /// A snapshot of the local cache.
    Cached(PathBuf),
}

/// What the hub says of a repository; the rest of its account is ignored.
#[derive(Deserialize)]
struct Info {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl HubRef {
    /// Reads a reference; `None` for a text that is none.
    ///
    /// # Errors
    /// [`Error::Config`] for one that cannot be.
    pub fn parse(text: &str) -> Result<Option<Self>, Error> {
        let Some(rest) = text
            .get(..SCHEME.len())
            .filter(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
            .and_then(|_| text.get(SCHEME.len()..))
        else {
            return Ok(None);
        };
        let refuse = |what: &str| {
            Err(Error::config(format!(
                "an hf:// reference {what}: expected hf://ORG/NAME[@REV][/path]"
            )))
        };
        // It may be a token that was pasted; it is not echoed.
        if rest.contains(['?', '#', '\\', ' ']) {
            return refuse("holds ?, #, \\ or a blank");
        }
        let mut parts = rest.split('/');
        let (Some(organisation), Some(name)) = (parts.next(), parts.next()) else {
            return refuse("names no repository");
        };
        let (name, revision) = match name.split_once('@') {
            Some((name, revision)) => (name, Some(revision.to_owned())),
            None => (name, None),
        };
        let mut path: Vec<&str> = parts.collect();
        let revision = match revision {
            // Pull requests and conversions are the only revisions of several parts.
            Some(first) if first == "refs" && path.len() >= 2 => {
                let number: Vec<&str> = path.drain(..2).collect();
                format!("refs/{}", number.join("/"))
            }
            Some(revision) => revision.replace("%2F", "/").replace("%2f", "/"),
            None => DEFAULT_REVISION.to_owned(),
        };
        if ![organisation, name].into_iter().all(is_plain) {
            return refuse("names no repository");
        }
        if !revision.split('/').all(is_plain) {
            return refuse("has a revision that cannot be");
        }
        if !path.iter().all(|part| is_file_name(part)) {
            return refuse("has a path that leaves the repository");
        }
        Ok(Some(Self {
            organisation: organisation.to_owned(),
            name: name.to_owned(),
            revision,
            path: (!path.is_empty()).then(|| path.join("/")),
        }))
    }

    fn repository(&self) -> String {
        format!("{}/{}", self.organisation, self.name)
    }

    /// Whether both name the same repository and revision.
    fn same_repository(&self, other: &Self) -> bool {
        (&self.organisation, &self.name, &self.revision)
            == (&other.organisation, &other.name, &other.revision)
    }

    fn is_commit(&self) -> bool {
        self.revision.len() == 40 && self.revision.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl fmt::Display for HubRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{SCHEME}{}/{}@{}",
            self.organisation, self.name, self.revision
        )?;
        match &self.path {
            Some(path) => write!(formatter, "/{path}"),
            None => Ok(()),
        }
    }
}

fn is_plain(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    is_file_name(part) && part.len() <= MAX_NAME_BYTES && part.bytes().all(plain)
}

fn is_file_name(part: &str) -> bool {
    !matches!(part, "" | "." | "..") && !part.contains(['\\', '\0', ':', '%'])
}

impl HubRepository {
    /// Finds the commit that `reference` stands for now: all files that are read come from it.
    ///
    /// # Errors
    /// [`Error::Hub`] where the hub could not be asked or refuses, with what to set;
    /// [`Error::Config`] for a repository that is not in the cache while the station is offline.
    pub async fn open(
        reference: &HubRef,
        settings: &HubSettings,
        origins: &Origins,
        traffic: &Traffic,
    ) -> Result<Self, Error> {
        if settings.offline() {
            return Self::cached(reference, settings);
        }
        let endpoint = settings.endpoint()?;
        let repository = reference.repository();
        // A commit with a path says everything: nothing has to be asked.
        if reference.is_commit() && reference.path.is_some() {
            return Ok(Self {
                place: Place::Remote(endpoint.resolve(&repository, &reference.revision)?),
                reference: reference.clone(),
                files: None,
            });
        }
        let failed = |source: helix_transport::Error| Error::Hub {
            reference: reference.to_string(),
            endpoint: endpoint.to_string(),
            advice: advice(source.kind()),
            source: Box::new(source),
        };
        let asked = Locator::Http(endpoint.info(&repository, &reference.revision)?);
        let source = origins.open_source(&asked).map_err(failed)?;
        let options = traffic.streaming(Kind::Probe);
        options.meter.add_waves(1);
        let text = read_whole(source.as_ref(), MAX_INFO_BYTES, &options)
            .await
            .map_err(failed)?;
        options.meter.add_useful(text.len() as u64);
        let info: Info = serde_json::from_slice(&text).map_err(|error| {
            Error::config(format!(
                "{endpoint} answered for {reference} with no account of a repository ({error}); \
                 is HF_ENDPOINT a hub?"
            ))
        })?;
        // Of SHA-1, or of SHA-256.
        let is_commit = [40, 64].contains(&info.sha.len())
            && info.sha.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_commit {
            return Err(Error::config(format!(
                "{endpoint} names no commit for {reference}"
            )));
        }
        let files = info.siblings.into_iter().map(|file| file.rfilename);
        Ok(Self {
            place: Place::Remote(endpoint.resolve(&repository, &info.sha)?),
            reference: reference.clone(),
            files: Some(files.collect()),
        })
    }

    fn cached(reference: &HubRef, settings: &HubSettings) -> Result<Self, Error> {
        let folder = settings.repository_cache(&reference.organisation, &reference.name)?;
        let missing = |looked_for: &Path| {
            Error::config(format!(
                "{reference} is not in the hub's cache (no {}), and HF_HUB_OFFLINE is set: unset it, \
                 or download the repository first",
                looked_for.display()
            ))
        };
        let commit = if reference.is_commit() {
            reference.revision.clone()
        } else {
            let named = folder.join("refs").join(&reference.revision);
            let text = std::fs::read_to_string(&named).map_err(|_absent| missing(&named))?;
            let commit = text.trim().to_owned();
            if !is_plain(&commit) {
                return Err(missing(&named));
            }
            commit
        };
        let snapshot = folder.join("snapshots").join(commit);
        if !snapshot.is_dir() {
            return Err(missing(&snapshot));
        }
        let mut files = Vec::new();
        let entries = std::fs::read_dir(&snapshot).map_err(Error::file(&snapshot))?;
        for entry in entries.flatten() {
            files.push(entry.file_name().to_string_lossy().into_owned());
        }
        files.sort_unstable();
        Ok(Self {
            place: Place::Cached(snapshot),
            reference: reference.clone(),
            files: Some(files),
        })
    }

    /// Whether `reference` names this repository, so that it needs no question of its own and one
    /// commit serves both.
    #[must_use]
    pub fn is_of(&self, reference: &HubRef) -> bool {
        self.reference.same_repository(reference)
    }

    /// The file of `reference` that embedding rows are read from: the one it names, else the weights.
    ///
    /// # Errors
    /// [`Error::Config`] where it names none and the repository has none, with what it has.
    pub fn rows(&self, reference: &HubRef) -> Result<Locator, Error> {
        if let Some(path) = &reference.path {
            return self.at(path);
        }
        // The single file wins, as in transformers and in `fat-origin pack`.
        for weights in ["model.safetensors", "model.safetensors.index.json"] {
            if self.has(weights) {
                return self.at(weights);
            }
        }
        Err(Error::config(format!(
            "{reference} has neither model.safetensors nor model.safetensors.index.json: name one \
             of its files, as in hf://ORG/NAME/file.gguf; {}",
            self.shown(".gguf")
        )))
    }

    /// The knot that `reference` names, else the only one of the repository.
    ///
    /// # Errors
    /// [`Error::Config`] where there is none or a choice of several.
    pub fn knot(&self, reference: &HubRef) -> Result<Locator, Error> {
        if let Some(path) = &reference.path {
            return self.at(path);
        }
        self.only_knot()?.ok_or_else(|| {
            Error::config(format!(
                "{reference} has no single .gkq file: name it, as in hf://ORG/NAME/file.gkq; {}",
                self.shown(".gkq")
            ))
        })
    }

    /// The only knot among the files that are known; `None` where there is none or a choice.
    ///
    /// # Errors
    /// [`Error::Config`] for a file name that cannot be part of a URL.
    pub fn only_knot(&self) -> Result<Option<Locator>, Error> {
        let mut knots = self.files().filter(|file| file.ends_with(".gkq"));
        match (knots.next(), knots.next()) {
            (Some(knot), None) => self.at(knot).map(Some),
            _ => Ok(None),
        }
    }

    /// The file at `path` of this commit.
    fn at(&self, path: &str) -> Result<Locator, Error> {
        if !path.split('/').all(is_file_name) {
            return Err(Error::config(format!(
                "{} has a file {path:?}, which is no plain path",
                self.reference
            )));
        }
        match &self.place {
            Place::Cached(snapshot) => Ok(Locator::File(snapshot.join(path))),
            Place::Remote(folder) => {
                let mut url = folder.clone();
                let added = url.path_segments_mut().map(|mut segments| {
                    segments.pop_if_empty().extend(path.split('/'));
                });
                added.map_err(|()| Error::config("HF_ENDPOINT is no http or https URL"))?;
                Ok(Locator::Http(url))
            }
        }
    }

    fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().flatten().map(String::as_str)
    }

    /// Unknown files are believed to be there: reading them will tell.
    fn has(&self, name: &str) -> bool {
        self.files.is_none() || self.files().any(|file| file == name)
    }

    /// Its files with this ending, or the first ones, for an error.
    fn shown(&self, ending: &str) -> String {
        let matching: Vec<&str> = self.files().filter(|file| file.ends_with(ending)).collect();
        let shown = if matching.is_empty() {
            self.files().collect()
        } else {
            matching
        };
        let more = shown.len().saturating_sub(SHOWN_FILES);
        let listed = shown.get(..SHOWN_FILES).unwrap_or(&shown).join(", ");
        match (listed.is_empty(), more) {
            (true, _) => "its files are not known".to_owned(),
            (_, 0) => format!("it has {listed}"),
            _ => format!("it has {listed} and {more} more"),
        }
    }
}

/// Who asks, for the hub's own origin.
///
/// # Errors
/// [`Error::Config`] for an endpoint or a token that cannot be.
pub fn credentials(settings: &HubSettings) -> Result<Option<Credentials>, Error> {
    if settings.offline() {
        return Ok(None);
    }
    let Some(token) = settings.token()? else {
        return Ok(None);
    };
    let endpoint = settings.endpoint()?;
    Credentials::bearer(endpoint.as_str(), &token)
        .map(Some)
        .map_err(|error| {
            Error::config(format!(
                "the hub's token (HF_TOKEN) cannot be used: {error}"
            ))
        })
}

/// What an operator can do.
fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "no such repository or revision",
        ErrorKind::Auth => {
            "no access: a private or gated repository wants HF_TOKEN, and its terms accepted"
        }
        ErrorKind::Transient => {
            "not reachable: HF_ENDPOINT may name a mirror, HF_HUB_OFFLINE=1 uses what is cached"
        }
        _ => "not answered like a hub: is HF_ENDPOINT right?",
    }
}

#[cfg(test)]
mod tests;
