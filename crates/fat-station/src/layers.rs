//! Layers on their way into a decoder: each is built when its tensors are here, so that it computes
//! while the next ones arrive. How bytes come is `knot`'s matter.

use crate::error::Error;
use crate::knot::{Arrivals, OpenKnot, Purpose, WantedPayload};
use crate::milestones::Milestone;
use crate::traffic::{Kind, Traffic};
use crate::weights::weight_of;
use bytes::Bytes;
use decoder_models::{Decoder, DecoderConfig, Weight, WeightSource, stage_of};
use futures::FutureExt as _;
use gkq_v2::Block;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A decoder whose stages are here or on their way. Dropping it ends the load.
#[derive(Debug)]
pub struct Layers {
    shared: Arc<Shared>,
    // Ends its task when dropped.
    _load: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    decoder: Decoder,
    progress: watch::Sender<Progress>,
}

/// How far the load has come.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// Stages that are loaded, without a gap before them.
    stages: usize,
    /// What is to be fetched stands in line.
    in_line: bool,
    failure: Option<Arc<Error>>,
}

impl Layers {
    /// Begins to load the decoder that `config` describes from `knot`.
    #[must_use]
    pub fn start(knot: Arc<OpenKnot>, config: &DecoderConfig, traffic: Arc<Traffic>) -> Self {
        let shared = Arc::new(Shared {
            decoder: Decoder::unloaded(config),
            progress: watch::Sender::default(),
        });
        let mut load = JoinSet::new();
        let task = Arc::clone(&shared);
        load.spawn(async move {
            let loaded = AssertUnwindSafe(task.load(&knot, &traffic)).catch_unwind();
            let panicked = Err(Error::Lost {
                what: "the load of the layers",
            });
            if let Err(error) = loaded.await.unwrap_or(panicked) {
                task.fail(error);
            }
        });
        Self {
            shared,
            _load: load,
        }
    }

    /// The decoder, whose later stages may still be missing.
    #[must_use]
    pub fn decoder(&self) -> &Decoder {
        &self.shared.decoder
    }

    /// Stages that are loaded, without a gap before them.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.shared.progress.borrow().stages
    }

    /// Waits until `stages` stages are loaded, and says how many are.
    ///
    /// # Errors
    /// [`Error::Layers`] with what keeps them from being loaded.
    pub async fn wait_for(&self, stages: usize) -> Result<usize, Error> {
        let mut progress = self.shared.progress.subscribe();
        let reached = |progress: &Progress| progress.stages >= stages || progress.failure.is_some();
        let reached = progress.wait_for(reached).await;
        let progress = reached.map_err(|_dropped| Error::Lost {
            what: "the load of the layers",
        })?;
        match &progress.failure {
            Some(source) if progress.stages < stages => Err(Error::Layers {
                source: Arc::clone(source),
            }),
            _ => Ok(progress.stages),
        }
    }

    /// Resolves when whatever is still to be fetched stands in line: what is asked for after that comes
    /// later. Also when the load has failed.
    pub fn in_line(&self) -> impl Future<Output = ()> + use<> {
        let mut progress = self.shared.progress.subscribe();
        async move {
            let reached = |progress: &Progress| progress.in_line || progress.failure.is_some();
            // An error: the load is gone, and stands before nobody.
            let _ = progress.wait_for(reached).await;
        }
    }

    /// Waits until all stages are loaded.
    ///
    /// # Errors
    /// Those of [`Layers::wait_for`].
    pub async fn wait_for_all(&self) -> Result<(), Error> {
        self.wait_for(self.decoder().stages()).await.map(drop)
    }

    /// Returns when the load has failed, with why; never if it does not.
    pub async fn failure(&self) -> Error {
        match self.wait_for_all().await {
            Err(error) => error,
            Ok(()) => std::future::pending().await,
        }
    }
}

impl Shared {
    async fn load(self: &Arc<Self>, knot: &OpenKnot, traffic: &Traffic) -> Result<(), Error> {
        let config = self.decoder.config();
        let blocks = knot.front().blocks().iter();
        let blocks: Vec<(usize, Block)> = blocks
            .filter_map(|block| Some((stage_of(config, &block.name)?, block.clone())))
            .collect();
        let wanted: Vec<WantedPayload> = blocks
            .iter()
            .map(|(_, block)| WantedPayload::block(block))
            .collect();
        let mut stages = vec![Stage::default(); self.decoder.stages()];
        blocks
            .iter()
            .for_each(|(stage, _)| stages[*stage].missing += 1);
        if let Some(stage) = stages.iter().position(|stage| stage.missing == 0) {
            // It asks for a tensor that the knot lacks, and the error says for which.
            self.decoder
                .load_stage(stage, &Tensors::default())
                .map_err(Error::from)?;
        }
        let arrivals = Arc::new(Assembly {
            shared: Arc::clone(self),
            blocks,
            stages: Mutex::new(stages),
        });
        let purpose = Purpose::from(Kind::Blocks).telling(arrivals);
        knot.payloads(&wanted, purpose, traffic).await?;
        traffic.milestones.reach(Milestone::Layers);
        Ok(())
    }

    /// The first failure counts.
    fn fail(&self, error: Error) {
        self.progress.send_if_modified(|progress| {
            let first = progress.failure.is_none();
            progress.failure.get_or_insert_with(|| Arc::new(error));
            first
        });
    }
}

/// Stages that are being put together.
#[derive(Debug)]
struct Assembly {
    shared: Arc<Shared>,
    /// The block of each payload, with its stage.
    blocks: Vec<(usize, Block)>,
    stages: Mutex<Vec<Stage>>,
}

#[derive(Debug, Clone, Default)]
struct Stage {
    missing: usize,
    tensors: Tensors,
    loaded: bool,
}

/// Payloads by tensor name.
#[derive(Debug, Clone, Default)]
struct Tensors(HashMap<String, (Block, Bytes)>);

impl Arrivals for Assembly {
    fn in_line(&self) {
        self.shared
            .progress
            .send_modify(|progress| progress.in_line = true);
    }

    fn arrived(&self, at: usize, payload: &Bytes) {
        let (stage, block) = &self.blocks[at];
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        let open = &mut stages[*stage];
        let tensor = (block.clone(), payload.clone());
        open.tensors.0.insert(block.name.clone(), tensor);
        open.missing -= 1;
        if open.missing > 0 {
            return;
        }
        let tensors = std::mem::take(&mut open.tensors);
        // Nothing is copied but vectors of a few kilobytes: no work for another thread.
        match self.shared.decoder.load_stage(*stage, &tensors) {
            Ok(()) => open.loaded = true,
            Err(error) => return self.shared.fail(error.into()),
        }
        let loaded = stages.iter().take_while(|stage| stage.loaded).count();
        self.shared.progress.send_if_modified(|progress| {
            let further = loaded > progress.stages;
            progress.stages = loaded;
            further
        });
    }
}

impl WeightSource for Tensors {
    fn weight(&self, name: &str) -> Result<Option<Weight>, decoder_models::Error> {
        let Some((block, bytes)) = self.0.get(name) else {
            return Ok(None);
        };
        weight_of(block, bytes.clone())
            .map(Some)
            .map_err(|error| decoder_models::Error::Source {
                tensor: name.to_owned(),
                source: Box::new(error),
            })
    }
}
