//! No command: the server. It listens before it loads, so that a taken port is found before a
//! download; a signal lets running answers end.

use super::{RunTokens, Station};
use crate::api::{Admission, ConnectionLimits, Service, serve_connections};
use crate::error::Error;
use crate::model::Model;
use crate::telemetry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long running answers may take to end after a signal.
const DRAIN: Duration = Duration::from_secs(30);

pub(super) async fn serve(
    station: &Station,
    address: SocketAddr,
    queue: usize,
) -> Result<(), Error> {
    let listening = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listening)?;
    let bound = listener.local_addr().map_err(listening)?;
    telemetry::say(&format!("listening on http://{bound}"));
    // Answers outlive the first signal; this token ends them when the drain takes too long.
    let sessions = CancellationToken::new();
    let service = Arc::new(Service::new(Admission::new(queue), sessions.clone()));
    // Ends the server: a signal, or a model that cannot be loaded.
    let stop = station.interrupt.token().child_token();
    let limits = ConnectionLimits::default();
    let server = serve_connections(listener, Arc::clone(&service), limits, stop.clone());
    let server = async {
        tokio::select! {
            () = server => {}
            () = overdue(&stop, &sessions) => {}
        }
    };
    let ((), loaded) = tokio::join!(server, load(station, &service, &stop));
    let tally = service.tally();
    let tokens = RunTokens {
        prompt: tally.prompt_tokens(),
        generated: tally.generated_tokens(),
        first: tally.first_token(),
    };
    let model = loaded?;
    if let Some(model) = &model {
        model.embedding.settle().await;
    }
    station.summarise(model.as_deref(), tokens)
}

/// The model, handed to the service; `None` where a signal came first.
async fn load(
    station: &Station,
    service: &Service,
    stop: &CancellationToken,
) -> Result<Option<Arc<Model>>, Error> {
    // The first row read tells the length of the row table; which row does not matter.
    let probe = |_: &crate::language::Language| Ok(vec![0]);
    let loading = Model::load(&station.config, Arc::clone(&station.traffic), probe);
    let head = async {
        let (model, _) = Box::pin(loading).await?;
        // Ready means that a prompt can be answered: with all layers and a head.
        tokio::try_join!(model.layers.wait_for_all(), model.head.get())?;
        Ok(model)
    };
    match station.unless_interrupted(head).await {
        Ok(model) => {
            service.ready(Arc::clone(&model));
            telemetry::say(&format!("{} is ready", model.name));
            Ok(Some(model))
        }
        Err(Error::Cancelled) => Ok(None),
        Err(error) => {
            stop.cancel();
            Err(error)
        }
    }
}

/// Returns when answers were still running [`DRAIN`] after `stop`, having told them to end.
async fn overdue(stop: &CancellationToken, sessions: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(DRAIN).await;
    sessions.cancel();
    // A step's time for the sessions to notice and the answers to leave.
    tokio::time::sleep(Duration::from_secs(2)).await;
}
