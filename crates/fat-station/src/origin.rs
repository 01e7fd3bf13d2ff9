//! Opens range sources for locators. The only place that knows which transport serves which.

use crate::config::Cleartext;
use crate::error::Error;
use crate::locator::Locator;
use helix_transport::http::{HttpBackend, HttpClient, HttpConfig};
use helix_transport::{Credentials, FileSource, RangeSource};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What origins can do, in the directory of the blocks.
const CAPABILITY_FILE: &str = "origins.json";

/// Opens the objects of one station, which share connections, trust anchors and retry budget.
#[derive(Debug, Clone)]
pub struct Origins {
    cleartext: Cleartext,
    /// For the one origin that wants to know who asks.
    credentials: Option<Credentials>,
    /// What origins can do, from earlier runs and for later ones.
    capability_file: Option<PathBuf>,
    /// Made for the first remote object: trust anchors are read then.
    client: Arc<Mutex<Option<HttpClient>>>,
}

impl Origins {
    /// An opener without connections.
    #[must_use]
    pub fn new(cleartext: Cleartext) -> Self {
        Self {
            cleartext,
            credentials: None,
            capability_file: None,
            client: Arc::default(),
        }
    }

    /// The same opener, known to one origin; to be called before anything is opened.
    #[must_use]
    pub fn with_credentials(self, credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            ..self
        }
    }

    /// The same opener, which keeps what origins can do with several ranges in `cache_dir`; to be
    /// called before anything is opened. Without a directory each run learns anew.
    #[must_use]
    pub fn with_memory(self, cache_dir: Option<&Path>) -> Self {
        Self {
            capability_file: cache_dir.map(|directory| directory.join(CAPABILITY_FILE)),
            ..self
        }
    }

    /// A source for the object at `locator`. Nothing is read of a remote one.
    ///
    /// # Errors
    /// [`Error::Origin`] for a file that cannot be opened or a URL that cannot be asked.
    pub fn open(&self, locator: &Locator) -> Result<Arc<dyn RangeSource>, Error> {
        self.open_source(locator)
            .map_err(|source| Error::origin(locator, source))
    }

    /// As [`Origins::open`], with the transport's own error.
    ///
    /// # Errors
    /// What the transport says of a file that cannot be opened or a URL that cannot be asked.
    pub fn open_source(
        &self,
        locator: &Locator,
    ) -> Result<Arc<dyn RangeSource>, helix_transport::Error> {
        Ok(match locator {
            Locator::File(path) => Arc::new(FileSource::open(path)?),
            Locator::Http(url) => {
                Arc::new(HttpBackend::with_client(url.as_str(), &self.client()?)?)
            }
        })
    }

    fn client(&self) -> Result<HttpClient, helix_transport::Error> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = client.as_ref() {
            return Ok(client.clone());
        }
        let made = HttpClient::new(HttpConfig {
            http2_prior_knowledge: self.cleartext == Cleartext::Http2,
            credentials: self.credentials.clone(),
            capability_file: self.capability_file.clone(),
            ..HttpConfig::default()
        })?;
        Ok(client.insert(made).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helix_transport::{ByteRange, Meter, Patience, ReadOptions};
    use std::io::{Read as _, Write as _};

    #[tokio::test]
    async fn objects_of_one_origin_share_a_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Serves one connection and then ends: a second one would not be answered.
        let origin = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            for _ in 0..2 {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    connection.read_exact(&mut byte).unwrap();
                    request.extend(byte);
                }
                let reply = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\
                    Content-Range: bytes 0-2/9\r\n\r\nabc";
                connection.write_all(reply).unwrap();
            }
        });
        let origins = Origins::new(Cleartext::Http1);
        let options = ReadOptions::new(Arc::new(Meter::default()), Patience::Batch);
        for name in ["m.gkq", "m.rows"] {
            let locator = Locator::parse(&format!("http://{address}/{name}")).unwrap();
            let source = origins.open(&locator).unwrap();
            let read = source.read(ByteRange::new(0, 3).unwrap(), &options).await;
            assert_eq!(read.unwrap(), "abc");
        }
        origin.join().unwrap();
    }
}
