//! The hub's settings, from the environment variables of `huggingface_hub`: HF_ENDPOINT, HF_TOKEN,
//! HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE. The token is never shown.

use crate::error::Error;
use crate::user_file::read_text;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use url::Url;

/// The hub that everybody means.
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// Longest token that is read from a file.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// How the hub is reached.
#[derive(Clone, Default)]
pub struct HubSettings {
    endpoint: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    cache: Option<PathBuf>,
    offline: bool,
}

// A derived form would print the token.
impl fmt::Debug for HubSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HubSettings")
            .field("cache", &self.cache)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

/// A hub's address, checked.
pub(super) struct Endpoint(Url);

impl HubSettings {
    /// Takes the settings from `environment`; nothing is read yet.
    pub fn from_environment(environment: &impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| {
            let value = environment(name)?.into_string().ok()?;
            let value = value.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let path = |name: &str| text(name).map(PathBuf::from);
        let home = path("HF_HOME")
            .or_else(|| path("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
            .or_else(|| path("HOME").map(|home| home.join(".cache/huggingface")));
        let is_true = |value: &String| {
            ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())
        };
        Self {
            endpoint: text("HF_ENDPOINT"),
            token: text("HF_TOKEN"),
            token_file: path("HF_TOKEN_PATH").or_else(|| Some(home.clone()?.join("token"))),
            cache: path("HF_HUB_CACHE").or_else(|| Some(home?.join("hub"))),
            offline: text("HF_HUB_OFFLINE").as_ref().is_some_and(is_true),
        }
    }

    /// Whether nothing may be asked of the hub.
    #[must_use]
    pub fn offline(&self) -> bool {
        self.offline
    }

    /// The token: the one of HF_TOKEN, else the one that `hf auth login` left, if any.
    pub(super) fn token(&self) -> Result<Option<String>, Error> {
        if self.token.is_some() {
            return Ok(self.token.clone());
        }
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        match read_text("the hub's token", path, MAX_TOKEN_BYTES) {
            Ok(text) => {
                let token = text.trim();
                Ok((!token.is_empty()).then(|| token.to_owned()))
            }
            Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, Error> {
        let text = self.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
        let parsed = Url::parse(text).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none()
        });
        parsed.map(Endpoint).ok_or_else(|| {
            Error::config(
                "HF_ENDPOINT is no http or https URL without credentials and query, \
                 such as https://huggingface.co",
            )
        })
    }

    /// Where the local cache keeps a repository.
    pub(super) fn repository_cache(
        &self,
        organisation: &str,
        name: &str,
    ) -> Result<PathBuf, Error> {
        let cache = self.cache.as_ref().ok_or_else(|| {
            Error::config(
                "HF_HUB_OFFLINE is set and no cache is known: set HF_HOME or HF_HUB_CACHE",
            )
        })?;
        Ok(cache.join(format!("models--{organisation}--{name}")))
    }
}

impl Endpoint {
    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Where the hub tells a revision's commit and files.
    pub(super) fn info(&self, repository: &str, revision: &str) -> Result<Url, Error> {
        let fixed = ["api", "models"].into_iter().chain(repository.split('/'));
        self.join(fixed.chain(["revision", revision]))
    }

    /// The folder of a commit's files.
    pub(super) fn resolve(&self, repository: &str, commit: &str) -> Result<Url, Error> {
        self.join(repository.split('/').chain(["resolve", commit]))
    }

    fn join<'a>(&self, parts: impl Iterator<Item = &'a str>) -> Result<Url, Error> {
        let mut url = self.0.clone();
        let added = url.path_segments_mut().map(|mut segments| {
            // A slash in a revision becomes %2F: it is one segment.
            segments.pop_if_empty().extend(parts);
        });
        added
            .map(|()| url)
            .map_err(|()| Error::config("HF_ENDPOINT is no http or https URL"))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_str().trim_end_matches('/'))
    }
}
