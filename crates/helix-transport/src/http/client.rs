//! [`HttpClient`]: what several objects share, so that two objects of one origin use the same
//! connections and the same retry budget. Knows origins, not objects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::Uri;
use url::Url;

use super::HttpConfig;
use super::capability::Capabilities;
use super::dial::Dialer;
use super::origin::Origin;
use crate::Error;
use crate::redact::redacted;

/// Origins remembered at once; those nobody uses make room. Redirects are the only way to meet
/// more of them than there are objects.
const MAX_ORIGINS: usize = 64;

/// Connections, trust anchors and settings, shared by its clones.
#[derive(Clone, Debug)]
pub struct HttpClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Arc<HttpConfig>,
    dialer: Arc<Dialer>,
    origins: Mutex<HashMap<String, Arc<Origin>>>,
    capabilities: Capabilities,
}

impl HttpClient {
    /// A client without connections.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting cannot work.
    pub fn new(config: HttpConfig) -> Result<Self, Error> {
        config.validate()?;
        let config = Arc::new(config);
        let dialer = Arc::new(Dialer::new(Arc::clone(&config))?);
        let capabilities = Capabilities::new(config.capability_file.clone());
        Ok(Self(Arc::new(Inner {
            capabilities,
            config,
            dialer,
            origins: Mutex::default(),
        })))
    }

    pub(super) fn config(&self) -> &HttpConfig {
        &self.0.config
    }

    /// What origins have shown they can do.
    pub(super) fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    pub(super) fn origin(&self, url: &Url) -> Result<Arc<Origin>, Error> {
        let key = url.origin().ascii_serialization();
        let mut origins = self
            .0
            .origins
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = origins.get(&key) {
            return Ok(Arc::clone(origin));
        }
        if origins.len() >= MAX_ORIGINS {
            origins.retain(|_, origin| Arc::strong_count(origin) > 1);
        }
        let uri: Uri =
            format!("{key}/")
                .parse()
                .map_err(|error: hyper::http::uri::InvalidUri| Error::Url {
                    url: redacted(url),
                    reason: error.to_string(),
                })?;
        let origin = Origin::new(uri, Arc::clone(&self.0.dialer), Arc::clone(&self.0.config));
        let origin = Arc::new(origin);
        origins.insert(key, Arc::clone(&origin));
        Ok(origin)
    }
}
