//! The TLS configuration of the server: one certificate, HTTP/2 and HTTP/1.1 by ALPN.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsFiles;
use crate::Error;

pub(super) fn config(files: &TlsFiles) -> Result<ServerConfig, Error> {
    let refused = |reason: String| Error::Tls {
        cert: files.cert.clone(),
        key: files.key.clone(),
        reason,
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| refused(format!("certificate: {error}")))?;
    if chain.is_empty() {
        return Err(refused(
            "the certificate file holds no certificate".to_owned(),
        ));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| refused(format!("key: {error}")))?;
    let mut config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| refused(error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
