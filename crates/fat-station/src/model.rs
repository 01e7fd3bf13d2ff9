//! A model ready to run, and the pipeline that makes it: the prompt's rows are on their way while
//! the layers are, and the head while the prompt is computed. What is fetched how, is `knot`'s and
//! `matrix`' matter; what is computed, the engine's.

use crate::config::Config;
use crate::embedding::{EmbeddedPrompt, Embedding};
use crate::error::Error;
use crate::head::Head;
use crate::knot::{OpenKnot, WantedPayload};
use crate::language::Language;
use crate::matrix::{EMBED_TOKENS, Matrix};
use crate::resolver::{Resolution, Way};
use crate::traffic::{Kind, Traffic};
use crate::warm::Warming;
use bytes::Bytes;
use decoder_models::{
    Decoder, DecoderConfig, KvPrecision, LmHead, StoredTensor, Weight, WeightSource,
};
use futures::FutureExt as _;
use gkq_v2::{Block, BlockBody, Dtype, SectionKind};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Name of an untied head.
const LM_HEAD: &str = "lm_head.weight";

/// A model ready to run.
#[derive(Debug)]
pub struct Model {
    /// Its name for reports: the knot's file name without extension.
    pub name: String,
    /// Layers and final norm.
    pub decoder: Decoder,
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
    Ok((knot, decoder_config))
}

impl Model {
    /// Loads the model and reads the rows of the prompt that `prompt` makes as soon as the
    /// tokenizer is there.
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
        let words = async {
            let language =
                Language::load(&knot, &decoder_config, config.max_context, &traffic).await?;
            let tokens = prompt(&language)?;
            let dense_kind = if knot.front().block(LM_HEAD).is_some() {
                Kind::Blocks
            } else {
                Kind::Head
            };
            let (embedding, embedded) = embed(&matrix, tokens, dense_kind, &traffic).await?;
            Ok((language, embedding, embedded))
        };
        let layers = load_layers(Arc::clone(&knot), &decoder_config, &traffic);
        let ((language, embedding, embedded), decoder) =
            futures::future::try_join(words.boxed(), layers.boxed()).await?;
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
        let head = Head::start(parts.load(Arc::clone(&traffic)));
        let language = Arc::new(language);
        let model = Self {
            name,
            decoder,
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
    let bytes = matrix.whole(dense_kind, traffic).await?;
    let embedding = Arc::new(Embedding::Dense(matrix.dense_table(bytes)));
    let embedded = EmbeddedPrompt::read(tokens, &embedding, traffic).await?;
    Ok((embedding, embedded))
}

async fn load_layers(
    knot: Arc<OpenKnot>,
    config: &DecoderConfig,
    traffic: &Traffic,
) -> Result<Decoder, Error> {
    let is_layer = |block: &&Block| block.name != EMBED_TOKENS && block.name != LM_HEAD;
    let blocks: Vec<Block> = knot
        .front()
        .blocks()
        .iter()
        .filter(is_layer)
        .cloned()
        .collect();
    let wanted: Vec<WantedPayload> = blocks.iter().map(WantedPayload::block).collect();
    let payloads = knot.payloads(&wanted, Kind::Blocks, traffic).await?;
    let config = config.clone();
    let build = move || {
        let weights = blocks.into_iter().zip(payloads);
        let weights = weights
            .map(|(block, bytes)| (block.name.clone(), (block, bytes)))
            .collect();
        Decoder::load(&config, &KnotWeights(weights))
    };
    let built = tokio::task::spawn_blocking(build).await;
    Ok(built.map_err(|_panicked| Error::Lost {
        what: "the decoder",
    })??)
}

/// What a head is made of.
struct HeadParts {
    knot: Arc<OpenKnot>,
    matrix: Arc<Matrix>,
    embedding: Arc<Embedding>,
    decoder_config: DecoderConfig,
}

impl HeadParts {
    /// Tied or not is decided by the tensors: configs have been wrong about it.
    async fn load(self, traffic: Arc<Traffic>) -> Result<LmHead, Error> {
        let weight = match self.knot.front().block(LM_HEAD) {
            Some(block) => {
                let wanted = [WantedPayload::block(block)];
                let payloads = self.knot.payloads(&wanted, Kind::Head, &traffic).await?;
                let bytes = payloads.into_iter().next().ok_or(Error::Lost {
                    what: "the head's payload",
                })?;
                weight_of(block, bytes)?
            }
            None => {
                let bytes = match self.embedding.dense_bytes() {
                    Some(bytes) => bytes,
                    None => self.matrix.whole(Kind::Head, &traffic).await?,
                };
                self.embedding
                    .make_resident(self.matrix.dense_table(bytes.clone()));
                weight_of(self.matrix.block()?, bytes)?
            }
        };
        Ok(LmHead::new(weight, &self.decoder_config)?)
    }
}

/// Payloads by tensor name.
struct KnotWeights(HashMap<String, (Block, Bytes)>);

impl WeightSource for KnotWeights {
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

/// A block's payload as the decoder takes it.
fn weight_of(block: &Block, bytes: Bytes) -> Result<Weight, Error> {
    let outside = || {
        Error::config(format!(
            "tensor {} of shape {:?} is too large for this machine",
            block.name, block.shape
        ))
    };
    let size = |size: u64| usize::try_from(size).map_err(|_overflow| outside());
    let shape = block
        .shape
        .iter()
        .map(|&dim| size(dim))
        .collect::<Result<Vec<_>, _>>()?;
    let BlockBody::Spectral {
        rank,
        dtype,
        u,
        s,
        vt,
    } = &block.body
    else {
        return Ok(Weight::Dense {
            dtype: block.dtype(),
            shape,
            bytes,
        });
    };
    let &[rows, cols] = shape.as_slice() else {
        return Err(Error::config(format!(
            "spectral tensor {} has shape {shape:?}, expected two dimensions",
            block.name
        )));
    };
    let rank = size(u64::from(*rank))?;
    let factor = |range: &Range<u64>, dtype: Dtype, shape: Vec<usize>| {
        let (start, end) = (size(range.start)?, size(range.end)?);
        if start > end || end > bytes.len() {
            return Err(outside());
        }
        Ok(StoredTensor {
            dtype,
            shape,
            bytes: bytes.slice(start..end),
        })
    };
    Ok(Weight::LowRank {
        u: factor(u, *dtype, vec![rows, rank])?,
        s: factor(s, Dtype::F32, vec![rank])?,
        vt: factor(vt, *dtype, vec![rank, cols])?,
    })
}
