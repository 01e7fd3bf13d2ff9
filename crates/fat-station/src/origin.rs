//! Opens a range source for a locator. The only place that knows which transport serves which.

use crate::config::Cleartext;
use crate::error::Error;
use crate::locator::Locator;
use helix_transport::http::{HttpBackend, HttpConfig};
use helix_transport::{FileSource, RangeSource};
use std::sync::Arc;

/// A source for the object at `locator`. Nothing is read of a remote one.
///
/// # Errors
/// [`Error::Origin`] for a file that cannot be opened or a URL that cannot be asked.
pub fn open(locator: &Locator, cleartext: Cleartext) -> Result<Arc<dyn RangeSource>, Error> {
    let failed = |source| Error::origin(locator, source);
    Ok(match locator {
        Locator::File(path) => Arc::new(FileSource::open(path).map_err(failed)?),
        Locator::Http(url) => {
            let config = HttpConfig {
                http2_prior_knowledge: cleartext == Cleartext::Http2,
                ..HttpConfig::default()
            };
            Arc::new(HttpBackend::new(url.as_str(), config).map_err(failed)?)
        }
    })
}
