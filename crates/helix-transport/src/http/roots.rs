//! Trust anchors: the system's, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR` in their place, and the
//! configured ones. No client certificates, no way to switch verification off.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// The settings of every TLS handshake; reads the system's certificates, which takes milliseconds.
pub(super) fn tls_config(extra: &[CertificateDer<'static>]) -> Result<ClientConfig, String> {
    let native = rustls_native_certs::load_native_certs();
    let failed = native.errors.first().map(ToString::to_string);
    if native.certs.is_empty()
        && let Some(variables) = variables_set()
    {
        // Whoever set them meant them: the configured anchors alone would not do.
        let reason = failed.unwrap_or_else(|| "no certificate in it".to_owned());
        return Err(format!("{variables}: {reason}"));
    }
    if let Some(error) = &failed {
        tracing::warn!(error, "some trust anchors could not be read");
    }
    let mut roots = RootCertStore::empty();
    let (added, _unusable) =
        roots.add_parsable_certificates(native.certs.into_iter().chain(extra.iter().cloned()));
    if added == 0 {
        return Err(failed.unwrap_or_else(|| {
            "no root certificate found; SSL_CERT_FILE can name a bundle".to_owned()
        }));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn variables_set() -> Option<String> {
    let set: Vec<_> = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
        .into_iter()
        .filter_map(|name| {
            let value = std::env::var_os(name)?;
            Some(format!("{name}={}", value.to_string_lossy()))
        })
        .collect();
    (!set.is_empty()).then(|| set.join(" "))
}
