//! Host names to addresses: the configured ones first, the system's resolver for the rest. No cache:
//! connections are kept, names are asked once for each new one.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

#[derive(Clone, Debug)]
pub(super) struct Names {
    given: Arc<BTreeMap<String, Vec<IpAddr>>>,
    system: GaiResolver,
}

impl Names {
    pub(super) fn new(given: &BTreeMap<String, Vec<IpAddr>>) -> Self {
        Self {
            given: Arc::new(given.clone()),
            system: GaiResolver::new(),
        }
    }
}

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.system.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        if let Some(given) = self.given.get(name.as_str()) {
            // The connector sets the port.
            let given: Vec<_> = given.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
            return async move { Ok(given.into_iter()) }.boxed();
        }
        let found = self.system.call(name);
        async move { Ok(found.await?.collect::<Vec<_>>().into_iter()) }.boxed()
    }
}
