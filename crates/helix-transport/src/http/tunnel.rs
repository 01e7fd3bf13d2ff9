//! [`Reach`], the bytes below HTTP: a TCP connection to an origin, to its proxy, or through its proxy by
//! CONNECT (RFC 9110 section 9.3.6). The proxy's reply is read by hyper, not by us. Which proxy is
//! decided in `proxy`.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Request, Uri};
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;

use super::AGENT;
use super::connection::{Driver, NoBody};
use super::names::Names;
use super::proxy::Via;
use crate::error::Cause;

/// A connection, wrapped in TLS only where the proxy itself is spoken to over TLS.
pub(super) type Wire = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The proxy's reply to CONNECT; no head of a tunnel is longer.
const TUNNEL_HEAD_BYTES: usize = 16 << 10;

/// What stands between us and the origin.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelError {
    #[error("proxy {proxy} cannot be reached")]
    Unreachable { proxy: String, source: Cause },
    #[error("proxy {proxy} refused the tunnel with status {status}")]
    Refused { proxy: String, status: u16 },
    #[error("proxy {proxy} broke the tunnel off")]
    Broken {
        proxy: String,
        source: Option<hyper::Error>,
    },
}

/// Connects to an origin, through its proxy where there is one.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    plain: HttpConnector<Names>,
    via: Option<Arc<Via>>,
    /// For a proxy on `https`.
    tls: Option<ClientConfig>,
}

impl Reach {
    pub(super) fn new(
        plain: HttpConnector<Names>,
        via: Option<Arc<Via>>,
        tls: Option<ClientConfig>,
    ) -> Self {
        Self { plain, via, tls }
    }

    /// A connection over which the origin of `uri` can be asked.
    pub(super) async fn connect(mut self, uri: Uri) -> Result<Wire, Cause> {
        let Some(via) = self.via.clone() else {
            return Ok(MaybeHttpsStream::Http(self.plain.call(uri).await?));
        };
        let unreachable = |source| TunnelError::Unreachable {
            proxy: via.name.clone(),
            source,
        };
        let wire = match self.tls {
            Some(tls) if via.uri.scheme_str() == Some("https") => {
                let mut secure = HttpsConnectorBuilder::new()
                    .with_tls_config(tls)
                    .https_only()
                    .enable_http1()
                    .wrap_connector(self.plain);
                secure.call(via.uri.clone()).await.map_err(unreachable)?
            }
            _ => {
                let connecting = self.plain.call(via.uri.clone()).await;
                MaybeHttpsStream::Http(connecting.map_err(|error| unreachable(error.into()))?)
            }
        };
        if uri.scheme_str() == Some("https") {
            return Ok(tunnel(wire, &uri, &via).await?);
        }
        Ok(wire)
    }
}

impl Service<Uri> for Reach {
    type Response = Wire;
    type Error = Cause;
    type Future = BoxFuture<'static, Result<Wire, Cause>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        self.plain.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        self.clone().connect(uri).boxed()
    }
}

/// Asks the proxy for a tunnel to the origin of `uri` and hands back the bare connection.
async fn tunnel(wire: Wire, uri: &Uri, via: &Via) -> Result<Wire, TunnelError> {
    let broken = |source| TunnelError::Broken {
        proxy: via.name.clone(),
        source,
    };
    let handshake = http1::Builder::new()
        .max_buf_size(TUNNEL_HEAD_BYTES)
        .handshake::<_, NoBody>(wire);
    let (mut sender, connection) = handshake.await.map_err(|error| broken(Some(error)))?;
    let _driver = Driver::spawn(connection.with_upgrades());

    let host = uri.host().unwrap_or_default();
    let authority = format!("{host}:{}", uri.port_u16().unwrap_or(443));
    let mut request = Request::connect(&authority)
        .header(HOST, &authority)
        .header(USER_AGENT, AGENT);
    if let Some(authorization) = &via.authorization {
        request = request.header(PROXY_AUTHORIZATION, authorization);
    }
    // A host and a port make a target: this cannot fail.
    let Ok(request) = request.body(Empty::new()) else {
        return Err(broken(None));
    };
    let reply = sender.send_request(request).await;
    let reply = reply.map_err(|error| broken(Some(error)))?;
    if !reply.status().is_success() {
        return Err(TunnelError::Refused {
            proxy: via.name.clone(),
            status: reply.status().as_u16(),
        });
    }
    let upgraded = hyper::upgrade::on(reply).await;
    let upgraded = upgraded.map_err(|error| broken(Some(error)))?;
    match upgraded.downcast::<Wire>() {
        // The client speaks first in TLS: whatever lies behind the head is not the origin's.
        Ok(parts) if parts.read_buf.is_empty() => Ok(parts.io),
        _ => Err(broken(None)),
    }
}
