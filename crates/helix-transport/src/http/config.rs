//! [`HttpConfig`], the settings of a client, with their reasons. Per-read choices are
//! [`ReadOptions`](crate::ReadOptions).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Credentials, ProxySettings};
use crate::Error;
use crate::retry::RetryPolicy;

/// Settings of an [`HttpClient`](crate::HttpClient).
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// HTTP/1.1 connections to one origin at most: 109 rows then take 7 round trips. HTTP/2 uses
    /// one connection and needs one.
    pub connections: usize,
    /// An idle connection older than this is not used again. 15 s stays below the idle limits of
    /// common servers (nginx 75 s, load balancers 60 s), so that few requests meet a closing socket.
    pub pool_idle: Duration,
    /// Name resolution, TCP and TLS handshakes together.
    pub connect_timeout: Duration,
    /// From a request's dispatch to the head of its reply, as long as the connection is silent: on
    /// a thin link the replies to other requests may rightly come first.
    pub first_byte_timeout: Duration,
    /// A whole read with [`Patience::Batch`](crate::Patience::Batch), all attempts together.
    pub batch_timeout: Duration,
    /// Silence tolerated between two pieces of a body.
    pub stall_timeout: Duration,
    /// What a body must bring in every [`pace_window`](Self::pace_window) spent waiting for it, or its
    /// connection is given up: a byte every four seconds would pass the stall limit for ever. 128
    /// bytes/s is a sixteenth of a 16 kbit/s link, which sixteen streams may share.
    pub pace_bytes_per_s: u64,
    /// The stretch over which the pace is measured. Time in which the caller does not ask for the
    /// next piece is not counted. A read gives up with its third slow window, so it takes
    /// `len / pace_bytes_per_s` plus three windows at most.
    pub pace_window: Duration,
    /// Redirects followed for one request.
    pub max_redirects: u32,
    /// Bounds for repetitions.
    pub retry: RetryPolicy,
    /// Speak HTTP/2 on `http://` URLs without asking first. On `https://` ALPN decides.
    pub http2_prior_knowledge: bool,
    /// Further trust anchors as PEM, beside the system's (which `SSL_CERT_FILE` and `SSL_CERT_DIR`
    /// replace).
    pub extra_roots_pem: Vec<u8>,
    /// Where it is kept for a day which origins answer several ranges in one request: a small file,
    /// shared by processes, made when there is something to keep. Without it each client learns anew.
    pub capability_file: Option<PathBuf>,
    /// Through which proxy which origin is reached; by default what the environment says.
    pub proxy: ProxySettings,
    /// A bearer token for exactly one origin.
    pub credentials: Option<Credentials>,
    /// Addresses of host names, in place of what the system's resolver says.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            connections: 16,
            pool_idle: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(2),
            batch_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(5),
            pace_bytes_per_s: 128,
            pace_window: Duration::from_secs(30),
            max_redirects: 5,
            retry: RetryPolicy::default(),
            http2_prior_knowledge: false,
            extra_roots_pem: Vec::new(),
            capability_file: None,
            proxy: ProxySettings::from_env(),
            credentials: None,
            addresses: BTreeMap::new(),
        }
    }
}

impl HttpConfig {
    pub(super) fn validate(&self) -> Result<(), Error> {
        let refuse = |setting, reason: &str| {
            Err(Error::Setting {
                setting,
                reason: reason.to_owned(),
            })
        };
        if self.connections == 0 || self.connections > 1024 {
            return refuse("connections", "must be 1 to 1024");
        }
        for (setting, value) in [
            ("connect_timeout", self.connect_timeout),
            ("first_byte_timeout", self.first_byte_timeout),
            ("batch_timeout", self.batch_timeout),
            ("stall_timeout", self.stall_timeout),
            ("pace_window", self.pace_window),
        ] {
            if value.is_zero() {
                return refuse(setting, "must not be zero");
            }
        }
        Ok(())
    }
}
