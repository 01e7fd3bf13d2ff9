//! Where a model is published: a directory, a bucket of an S3-compatible service, or any store a caller
//! brings. It opens and names; what is put there is decided elsewhere. Credentials come from the
//! environment and are never shown.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};

use super::bounded_http::BoundedConnector;
use super::failure::{StoreFault, explain};
use crate::Error;

/// Requests that failed are sent again at most this often. The publisher is started again at no cost
/// (what is there is not sent twice), so it need not outwait an outage.
const RETRIES: usize = 4;
/// No retry begins later than this after the first attempt.
const RETRY_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait between two attempts.
const BACKOFF_LIMIT: Duration = Duration::from_secs(5);
/// Longest single request: a part of 8 MiB at 14 kB/s. Those that carry little have limits of their own.
const REQUEST_LIMIT: &str = "600s";

/// The ways an S3 client of this program may be told who it is, beside the key pair.
const OTHER_IDENTITIES: [&str; 4] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
];

/// A place that takes objects.
#[derive(Clone, Debug)]
pub struct Destination {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Parts in any order, and uploads that outlive their process.
    pub(super) parts: Option<Arc<dyn MultipartHandle>>,
    prefix: Key,
    name: String,
    /// Name and endpoint: two buckets of one name are two destinations.
    identity: String,
    /// The directory, where it is one: objects are read back from its files.
    pub(super) directory: Option<PathBuf>,
    /// Held as long as a directory is published to.
    _lock: Option<Arc<File>>,
}

/// [`MultipartStore`] that can be shown, as everything here can.
pub trait MultipartHandle: MultipartStore + std::fmt::Debug {}

impl<T: MultipartStore + std::fmt::Debug> MultipartHandle for T {}

impl Destination {
    /// Opens `text`: `s3://BUCKET/PREFIX`, else a directory, which is made if it is not there.
    /// `environment` looks up the `AWS_*` variables that decide whether there are credentials at all;
    /// nothing is sent.
    ///
    /// # Errors
    /// [`Error::Option`] for another scheme or no bucket, [`Error::Store`] for settings that cannot
    /// work or missing credentials, [`Error::Busy`] if another publisher is at work in the directory.
    pub fn open(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("s3") => bucket(rest, environment),
            Some(("file", path)) => directory(Path::new(path)),
            Some((scheme, _)) if is_scheme(scheme) => Err(Error::Option {
                option: "DEST",
                reason: format!(
                    "`{scheme}://` is not supported: a directory or s3://BUCKET/PREFIX"
                ),
            }),
            _ => directory(Path::new(text)),
        }
    }

    /// A store of the caller's own: one in memory for tests, or another that the library knows.
    /// Without `parts` large objects are sent in one stream, and a cut begins anew.
    #[must_use]
    pub fn over(
        name: impl Into<String>,
        store: Arc<dyn ObjectStore>,
        parts: Option<Arc<dyn MultipartHandle>>,
    ) -> Self {
        let name = name.into();
        Self {
            store,
            parts,
            prefix: Key::default(),
            identity: name.clone(),
            name,
            directory: None,
            _lock: None,
        }
    }

    /// The place for people: no query, no credentials.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the store one question that a missing bucket answers as such: some gateways make the
    /// bucket when a part arrives, and a missing object cannot be told from a missing bucket.
    ///
    /// # Errors
    /// [`Error::Store`] for a bucket that is not there or credentials that are refused. Keys that may
    /// write but not list are let through: what follows tells whether they suffice.
    pub(super) async fn check(&self) -> Result<(), Error> {
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        match self.store.list(prefix).next().await {
            Some(Err(error)) if !is_refused_listing(&error) => {
                Err(self.refused("list", ".")(error))
            }
            _ => Ok(()),
        }
    }

    /// What tells this destination from every other one.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Refuses what is in a directory under an object's name and is no file: to open a FIFO is to wait
    /// for a writer, and a device never ends.
    ///
    /// # Errors
    /// [`Error::Option`] for anything but a regular file, a link to one, or nothing.
    pub(super) fn check_regular(&self, object: &str) -> Result<(), Error> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let path = directory.join(object);
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(Error::Option {
                option: "DEST",
                reason: format!("`{}` is not a regular file", path.display()),
            });
        }
        Ok(())
    }

    /// The key of an object.
    pub(super) fn key(&self, object: &str) -> Key {
        self.prefix.clone().join(object)
    }

    /// A refusal by the store, for `map_err`.
    pub(super) fn refused(
        &self,
        action: &'static str,
        object: &str,
    ) -> impl Fn(object_store::Error) -> Error {
        let (destination, object) = (self.name.clone(), object.to_owned());
        move |error| {
            let (fault, reason) = explain(&error);
            Error::Store {
                destination: destination.clone(),
                object: object.clone(),
                action,
                fault,
                reason,
            }
        }
    }
}

/// A key that is known and may not list.
fn is_refused_listing(error: &object_store::Error) -> bool {
    explain(error).1.starts_with("AccessDenied")
}

/// RFC 3986, section 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// A text up to a query: requests that are signed in their URL would show it.
pub(super) fn without_query(text: &str) -> String {
    text.split_whitespace()
        .map(|word| match word.split_once('?') {
            Some((place, _)) if word.contains("://") => place,
            _ => word,
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn directory(path: &Path) -> Result<Destination, Error> {
    let refused = |reason: String| Error::Option {
        option: "DEST",
        reason,
    };
    if path.as_os_str().is_empty() {
        return Err(refused(
            "is empty: a directory or s3://BUCKET/PREFIX".to_owned(),
        ));
    }
    if path.metadata().is_ok_and(|found| !found.is_dir()) {
        return Err(refused(format!("`{}` is not a directory", path.display())));
    }
    std::fs::create_dir_all(path).map_err(Error::io(path, "create"))?;
    let path = path.canonicalize().map_err(Error::io(path, "open"))?;
    let handle = File::open(&path).map_err(Error::io(&path, "open"))?;
    // One publisher at a time: then what carries a staging name belongs to a dead one. Where
    // directories cannot be locked nothing is taken away either.
    let lock = match handle.try_lock() {
        Ok(()) => {
            sweep(&path);
            Some(Arc::new(handle))
        }
        Err(TryLockError::WouldBlock) => {
            return Err(Error::Busy {
                destination: path.display().to_string(),
            });
        }
        Err(TryLockError::Error(_)) => None,
    };
    let store = LocalFileSystem::new_with_prefix(&path).map_err(|error| {
        let (fault, reason) = explain(&error);
        Error::Store {
            destination: path.display().to_string(),
            object: ".".to_owned(),
            action: "open",
            fault,
            reason,
        }
    })?;
    Ok(Destination {
        store: Arc::new(store.with_fsync(true)),
        parts: None,
        prefix: Key::default(),
        name: path.display().to_string(),
        identity: path.display().to_string(),
        directory: Some(path),
        _lock: lock,
    })
}

/// Takes away what a killed publisher left: `NAME#NUMBER`, where NAME is one of ours. What cannot be
/// removed stays.
fn sweep(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let staged = name.to_str().and_then(|name| name.rsplit_once('#'));
        let ours = staged.is_some_and(|(object, number)| {
            !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit())
                && (super::objects::is_object_name(object) || object.ends_with(".json"))
        });
        if ours {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn bucket(rest: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Destination, Error> {
    let option = |reason: String| Error::Option {
        option: "DEST",
        reason,
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() || bucket.contains(['@', '?', '#', ':']) {
        return Err(option(
            "expected s3://BUCKET/PREFIX; credentials and endpoint come from AWS_* variables"
                .to_owned(),
        ));
    }
    let prefix = Key::parse(prefix.trim_matches('/'))
        .map_err(|error| option(format!("the prefix of s3://{bucket}: {error}")))?;
    let name = match prefix.as_ref() {
        "" => format!("s3://{bucket}"),
        prefix => format!("s3://{bucket}/{prefix}"),
    };
    let refused = |fault, reason: String| Error::Store {
        destination: name.clone(),
        object: ".".to_owned(),
        action: "open",
        fault,
        reason,
    };
    check_identity(&environment).map_err(|reason| refused(StoreFault::Credentials, reason))?;
    check_endpoint(&environment).map_err(|reason| refused(StoreFault::Settings, reason))?;
    // The HTTP client takes the provider of the process; an `Err` says that there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_config(
            AmazonS3ConfigKey::Client(ClientConfigKey::Timeout),
            REQUEST_LIMIT,
        )
        .with_http_connector(BoundedConnector)
        .with_retry(RetryConfig {
            backoff: BackoffConfig {
                max_backoff: BACKOFF_LIMIT,
                ..BackoffConfig::default()
            },
            max_retries: RETRIES,
            retry_timeout: RETRY_LIMIT,
        })
        .build()
        .map_err(|error| refused(StoreFault::Settings, explain(&error).1))?;
    let store = Arc::new(store);
    Ok(Destination {
        store: Arc::<object_store::aws::AmazonS3>::clone(&store),
        parts: Some(store),
        prefix,
        identity: format!("{} {name}", endpoint(&environment).unwrap_or_default()),
        name,
        directory: None,
        _lock: None,
    })
}

/// Without any of these the library would ask a link-local address for an instance's role, which
/// nobody but a virtual machine of one cloud answers.
fn check_identity(environment: &impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let set = |name: &str| environment(name).is_some_and(|value| !value.is_empty());
    let pair = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    match pair.map(set) {
        [true, true] => Ok(()),
        [false, false] if OTHER_IDENTITIES.into_iter().any(set) => Ok(()),
        [id, _] => {
            let missing = if id { pair[1] } else { pair[0] };
            Err(format!(
                "no credentials: {missing} is not set (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                 one of {})",
                OTHER_IDENTITIES.join(", ")
            ))
        }
    }
}

/// The variables that name an endpoint, the most specific first.
const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

fn endpoint(environment: &impl Fn(&str) -> Option<String>) -> Option<String> {
    ENDPOINTS.into_iter().find_map(environment)
}

fn check_endpoint(environment: &impl Fn(&str) -> Option<String>) -> Result<(), String> {
    for name in ENDPOINTS {
        let Some(endpoint) = environment(name) else {
            continue;
        };
        let lower = endpoint.to_ascii_lowercase();
        if lower.starts_with("http://") {
            if !is_true(environment("AWS_ALLOW_HTTP")) {
                return Err(format!(
                    "{name} is an http:// URL: what is published would travel in the clear; \
                     AWS_ALLOW_HTTP=true allows it"
                ));
            }
        } else if !lower.starts_with("https://") {
            return Err(format!("{name} must begin with https:// or http://"));
        }
    }
    Ok(())
}

fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| {
        ["1", "true", "yes", "on", "y"].contains(&value.to_ascii_lowercase().as_str())
    })
}

#[cfg(test)]
mod tests;
