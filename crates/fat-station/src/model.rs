//! A model ready to run, and the pipeline that makes it: the prompt's rows are on their way while
//! the layers are, and the head while the prompt is computed. What is fetched how, is `knot`'s and
//! `matrix`' matter; what is computed, the engine's.

use crate::config::Config;
use crate::embedding::{EmbeddedPrompt, Embedding};
use crate::error::Error;
use crate::head::{Head, StoredRows};
use crate::knot::{Arrivals, OpenKnot, Purpose, Rank, WantedPayload};
use crate::language::Language;
use crate::layers::Layers;
use crate::matrix::{EMBED_TOKENS, Matrix};
use crate::milestones::Milestone;
use crate::resolver::{Resolution, Way};
use crate::traffic::{Kind, Traffic};
use crate::warm::Warming;
use crate::weights::weight_of;
use decoder_models::{DecoderConfig, KvPrecision, LmHead};
use futures::FutureExt as _;
use gkq_v2::{BlockBody, Dtype, SectionKind};
use std::sync::Arc;
use std::time::Duration;

/// Name of an untied head.
const LM_HEAD: &str = "lm_head.weight";

/// A model ready to run.
#[derive(Debug)]
pub struct Model {
    /// Its name for reports: the knot's file name without extension.
    pub name: String,
    /// Layers and final norm, there or on their way.
    pub layers: Layers,
    /// Rows of the vocabulary matrix.
    pub embedding: Arc<Embedding>,
    /// Element type of a row.
    pub row_dtype: Dtype,
    /// How a session stores keys and values.
    pub kv_precision: KvPrecision,
    /// The head, there or on its way.
    pub head: Head,
    /// Tokenizer, template, ends.
    pub language: Arc<Language>,
    /// Counters.
    pub traffic: Arc<Traffic>,
    /// Bytes of the whole vocabulary matrix.
    pub full_table_bytes: u64,
    /// Which way each eligible tensor went.
    pub resolutions: Vec<Resolution>,
    /// Hot rows that are on their way, where they were asked for.
    pub warming: Warming,
}

/// Opens the knot and reads its model config.
///
/// # Errors
/// Those of [`OpenKnot::open`]; [`Error::Config`] and [`Error::Model`] for its config.
pub async fn open(
    config: &Config,
    traffic: &Traffic,
) -> Result<(Arc<OpenKnot>, DecoderConfig), Error> {
    let knot = Arc::new(OpenKnot::open(config, traffic).await?);
    let text = knot.front().text(SectionKind::ModelConfig).ok_or_else(|| {
        Error::config(format!(
            "knot {} has no model config section",
            knot.locator()
        ))
    })?;
    let decoder_config = DecoderConfig::from_json(text)?;
    let waited_ns = traffic.probe.snapshot().connection_wait_ns;
    if waited_ns > 0 {
        let waited = Duration::from_nanos(waited_ns);
        traffic.milestones.connected(waited);
    }
    traffic.milestones.reach(Milestone::Table);
    Ok((knot, decoder_config))
}

impl Model {
    /// Reads the rows of the prompt that `prompt` makes as soon as the tokenizer is there. Layers and
    /// head may still be on their way then: whoever computes waits for what comes next.
    ///
    /// # Errors
    /// Whatever keeps a part from being had, or `prompt`'s own error.
    pub async fn load<P>(
        config: &Config,
        traffic: Arc<Traffic>,
        prompt: P,
    ) -> Result<(Arc<Self>, EmbeddedPrompt), Error>
    where
        P: FnOnce(&Language) -> Result<Vec<u32>, Error> + Send,
    {
        let (knot, decoder_config) = open(config, &traffic).boxed().await?;
        let matrix = Arc::new(Matrix::open(Arc::clone(&knot), config)?);
        // Before the layers ask for anything.
        let awaited = knot.streams().await_words();
        let layers = Layers::start(Arc::clone(&knot), &decoder_config, Arc::clone(&traffic));
        let words = async {
            let language =
                Language::load(&knot, &decoder_config, config.max_context, &traffic).await?;
            drop(awaited);
            traffic.milestones.reach(Milestone::Tokenizer);
            let tokens = prompt(&language)?;
            let dense_kind = if knot.front().block(LM_HEAD).is_some() {
                Kind::Blocks
            } else {
                Kind::Head
            };
            let (embedding, embedded) = embed(&matrix, tokens, dense_kind, &traffic).await?;
            traffic.milestones.reach(Milestone::Rows);
            Ok::<_, Error>((language, embedding, embedded))
        };
        let (language, embedding, embedded) = tokio::select! {
            biased;
            words = words.boxed() => words?,
            error = layers.failure() => return Err(error),
        };
        let resolutions = matrix.resolutions()?;
        tell(&resolutions, matrix.rows_asked());
        let (row_dtype, full_table_bytes) = (matrix.dtype, matrix.table_bytes);
        let name = knot.locator().stem();
        let warming = Warming::start(
            config.embed_warm_rows,
            Arc::clone(&knot),
            Arc::clone(&embedding),
            Arc::clone(&traffic),
        );
        let parts = HeadParts {
            knot,
            matrix,
            embedding: Arc::clone(&embedding),
            decoder_config,
        };
        let layers_first = layers.in_line();
        let head = Head::start(parts.stored_rows(), |arrivals| {
            let load = parts.load(arrivals, Arc::clone(&traffic));
            layers_first.then(|()| load)
        });
        let language = Arc::new(language);
        let model = Self {
            name,
            layers,
            embedding,
            row_dtype,
            kv_precision: config.kv_precision,
            head,
            language,
            traffic,
            full_table_bytes,
            resolutions,
            warming,
        };
        Ok((Arc::new(model), embedded))
    }
}

/// Says which way each tensor went, and why; `rows_asked`, whether `--columnar-embed` was given.
fn tell(resolutions: &[Resolution], rows_asked: bool) {
    for resolution in resolutions {
        let Resolution {
            tensor,
            way,
            reason,
        } = resolution;
        if rows_asked && tensor == EMBED_TOKENS && *way == Way::Dense {
            tracing::warn!(
                tensor,
                reason,
                "--columnar-embed is not used, the rows come from the knot's dense block"
            );
        } else {
            tracing::info!(tensor, ?way, reason, "resolved");
        }
    }
}

/// Reads the prompt's rows, by the row store where the resolver says so, and else from the dense
/// block.
async fn embed(
    matrix: &Matrix,
    tokens: Vec<u32>,
    dense_kind: Kind,
    traffic: &Traffic,
) -> Result<(Arc<Embedding>, EmbeddedPrompt), Error> {
    let stand_in = matrix.stand_in(traffic).await?;
    let read = |embedding: Arc<Embedding>| {
        let tokens = tokens.clone();
        async move {
            let embedded = EmbeddedPrompt::read(tokens, &embedding, traffic).await?;
            Ok((embedding, embedded))
        }
    };
    if let Some(read) = matrix.with_rows(traffic, stand_in, read).await? {
        return Ok(read);
    }
    let purpose = Purpose {
        rank: Rank::Words,
        ..Purpose::from(dense_kind)
    };
    let bytes = matrix.whole(purpose, traffic).await?;
    let embedding = Arc::new(Embedding::Dense(matrix.dense_table(bytes)));
    let embedded = EmbeddedPrompt::read(tokens, &embedding, traffic).await?;
    Ok((embedding, embedded))
}

/// What a head is made of.
struct HeadParts {
    knot: Arc<OpenKnot>,
    matrix: Arc<Matrix>,
    embedding: Arc<Embedding>,
    decoder_config: DecoderConfig,
}

impl HeadParts {
    /// How the rows of the head are stored, if that is one after the other. A head of another width is
    /// left to the load, which says what is wrong with it.
    fn stored_rows(&self) -> Option<StoredRows> {
        let own = self.knot.front().block(LM_HEAD);
        let block = own.or_else(|| self.matrix.block().ok())?;
        let (dtype, BlockBody::Dense { .. }, &[_, cols]) =
            (block.dtype(), &block.body, block.shape.as_slice())
        else {
            return None;
        };
        let row_bytes = usize::try_from(dtype.row_bytes(cols)?).ok()?;
        let fits = usize::try_from(cols) == Ok(self.decoder_config.hidden_size);
        fits.then_some(StoredRows { dtype, row_bytes })
    }

    /// Tied or not is decided by the tensors: configs have been wrong about it.
    async fn load(
        self,
        arrivals: Arc<dyn Arrivals>,
        traffic: Arc<Traffic>,
    ) -> Result<LmHead, Error> {
        let purpose = Purpose::from(Kind::Head).telling(arrivals);
        let weight = match self.knot.front().block(LM_HEAD) {
            Some(block) => {
                let wanted = [WantedPayload::block(block)];
                let payloads = self.knot.payloads(&wanted, purpose, &traffic).await?;
                let bytes = payloads.into_iter().next().ok_or(Error::Lost {
                    what: "the head's payload",
                })?;
                weight_of(block, bytes)?
            }
            None => {
                let bytes = match self.embedding.dense_bytes() {
                    Some(bytes) => bytes,
                    None => self.matrix.whole(purpose, &traffic).await?,
                };
                self.embedding
                    .make_resident(self.matrix.dense_table(bytes.clone()));
                weight_of(self.matrix.block()?, bytes)?
            }
        };
        let head = LmHead::new(weight, &self.decoder_config)?;
        traffic.milestones.reach(Milestone::Head);
        Ok(head)
    }
}
