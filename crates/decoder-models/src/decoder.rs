//! [`Decoder`]: the stack of layers and the final norm, for every family. Hidden states in, hidden
//! states out; token ids, embedding and head are not here. How a pass goes through it is `pass`'s
//! matter.

use std::sync::OnceLock;

use candle_core::{Device, Tensor};

use crate::config::{DecoderConfig, Family};
use crate::kv_cache::{KvCache, KvPrecision};
use crate::layer::{DecoderLayer, LAYERS, layer_prefix};
use crate::norm::RmsNorm;
use crate::pass::Pass;
use crate::rope::Rope;
use crate::slices::{check_rows, with_f32};
use crate::weights::WeightSource;
use crate::{Error, gemma3, llama, phi3, qwen2, qwen3};

/// Name of the final norm.
const FINAL_NORM: &str = "model.norm.weight";

/// A decoder-only model without its embedding and head: a pipeline of stages, one for each layer and
/// a last one for the final norm. A stage can be loaded while those before it compute.
#[derive(Debug)]
pub struct Decoder {
    layers: Vec<OnceLock<Box<dyn DecoderLayer>>>,
    norm: OnceLock<RmsNorm>,
    pub(crate) rope: Rope,
    pub(crate) rope_local: Option<Rope>,
    windows: Vec<Option<usize>>,
    config: DecoderConfig,
}

impl Decoder {
    /// A decoder whose stages are still to be loaded.
    #[must_use]
    pub fn unloaded(config: &DecoderConfig) -> Self {
        let rope = |rope| Rope::new(rope, config.rope_layout);
        let layers = 0..config.num_hidden_layers;
        Self {
            layers: layers.clone().map(|_| OnceLock::new()).collect(),
            norm: OnceLock::new(),
            rope: rope(&config.rope),
            rope_local: (config.rope != config.rope_local).then(|| rope(&config.rope_local)),
            windows: layers.map(|layer| config.layer_window(layer)).collect(),
            config: config.clone(),
        }
    }

    /// Loads all stages. Matrices keep the bytes that `source` hands out.
    ///
    /// # Errors
    /// Those of [`load_stage`](Self::load_stage).
    pub fn load(config: &DecoderConfig, source: &dyn WeightSource) -> Result<Self, Error> {
        let decoder = Self::unloaded(config);
        (0..decoder.stages()).try_for_each(|stage| decoder.load_stage(stage, source))?;
        Ok(decoder)
    }

    /// Number of stages: the layers, and the final norm as the last one.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.layers.len() + 1
    }

    /// Loads one stage, whose tensors are those of which [`stage_of`] says so. One that is there
    /// already stays.
    ///
    /// # Errors
    /// [`Error::TensorMissing`], [`Error::TensorShape`], [`Error::TensorBytes`],
    /// [`Error::TensorUnexpected`] or [`Error::Kernel`] naming the tensor at fault, and whatever
    /// `source` itself answers; [`Error::StageMissing`] for a stage beyond the last.
    pub fn load_stage(&self, stage: usize, source: &dyn WeightSource) -> Result<(), Error> {
        let config = &self.config;
        if stage == self.layers.len() {
            let norm = RmsNorm::load(config, source, FINAL_NORM, config.hidden_size)?;
            let _ = self.norm.set(norm);
            return Ok(());
        }
        let slot = self.layers.get(stage);
        let slot = slot.ok_or(Error::StageMissing { stage })?;
        let _ = slot.set(load_layer(config, source, stage)?);
        Ok(())
    }

    /// The layer of a stage and its window.
    pub(crate) fn layer(&self, stage: usize) -> Result<(&dyn DecoderLayer, Option<usize>), Error> {
        let layer = self.layers.get(stage).and_then(OnceLock::get);
        let window = self.windows.get(stage).copied().flatten();
        let layer = layer.ok_or(Error::StageMissing { stage })?;
        Ok((layer.as_ref(), window))
    }

    /// The last stage.
    pub(crate) fn norm(&self) -> Result<&RmsNorm, Error> {
        let stage = self.layers.len();
        self.norm.get().ok_or(Error::StageMissing { stage })
    }

    /// The config it was loaded with.
    #[must_use]
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// An empty cache for one sequence of at most `capacity` positions (cut to 2^24, where f32
    /// stops telling positions apart), with keys and values stored as `precision` says. Memory is taken as the sequence grows.
    ///
    /// With LongRoPE the capacity also decides which frequencies the sequence is rotated by, so
    /// that it is the same answer whether or not it came in pieces: up to
    /// `original_max_position_embeddings` the short ones, beyond it the long ones. A caller should
    /// therefore give what the request needs (prompt and tokens to generate), not a round maximum.
    #[must_use]
    pub fn new_cache(&self, capacity: usize, precision: KvPrecision) -> KvCache {
        let capacity = capacity.min(crate::config::MAX_CACHE_POSITIONS);
        KvCache::new(
            capacity,
            precision,
            [self.config.num_key_value_heads, self.config.head_dim],
            &self.windows,
        )
    }

    /// [`forward_in_place`](Self::forward_in_place) of a tensor, `[seq, hidden_size]` f32 on the CPU,
    /// into a new one.
    ///
    /// # Errors
    /// [`Error::Argument`] for another shape or type, [`Error::Tensor`] if candle refuses, and those
    /// of the pass.
    pub fn forward(&self, hidden: &Tensor, cache: &mut KvCache) -> Result<Tensor, Error> {
        let (hidden, rows) = check_rows(hidden, self.config.hidden_size, "hidden")?;
        let mut states = with_f32(&hidden, |values| Ok(values.to_vec()))?;
        self.forward_in_place(&mut states, cache)?;
        let shape = (rows, self.config.hidden_size);
        Ok(Tensor::from_vec(states, shape, &Device::Cpu)?)
    }

    /// Runs `hidden`, `[seq, hidden_size]` embedding rows of the positions from `cache.len()`,
    /// through all stages, where they are. A row's result has the same bits whether the sequence
    /// comes whole, in chunks or token by token.
    ///
    /// A pass of few rows works in buffers that the cache keeps, so that a token after another takes
    /// no memory, but where the cache grows. Work is spread over the rayon pool this is called in, or
    /// the global one.
    ///
    /// # Errors
    /// Those of [`Pass::begin`] and [`Pass::run`]. The cache is then as it was before.
    pub fn forward_in_place(&self, hidden: &mut [f32], cache: &mut KvCache) -> Result<(), Error> {
        let mut pass = Pass::begin(self, hidden, cache)?;
        pass.run(self.stages())?;
        pass.finish()
    }
}

/// The stage that a tensor of this Hugging Face name belongs to; `None` for one of no stage, like
/// the embedding, and for one beyond the last layer.
#[must_use]
pub fn stage_of(config: &DecoderConfig, tensor: &str) -> Option<usize> {
    let layers = config.num_hidden_layers;
    if tensor == FINAL_NORM {
        return Some(layers);
    }
    let (layer, _) = tensor.strip_prefix(LAYERS)?.split_once('.')?;
    let layer = layer.parse().ok()?;
    (layer < layers && tensor.starts_with(&format!("{}.", layer_prefix(layer)))).then_some(layer)
}

/// Names of every tensor that [`Decoder::load`] reads, layer by layer, the final norm last. The
/// embedding and an untied head are not among them.
#[must_use]
pub fn tensor_names(config: &DecoderConfig) -> Vec<String> {
    let of_layer = match config.family {
        Family::Llama => llama::tensor_names(config),
        Family::Qwen2 => qwen2::TENSOR_NAMES.to_vec(),
        Family::Qwen3 => qwen3::tensor_names(config),
        Family::Gemma3 => gemma3::tensor_names(config),
        Family::Phi3 => phi3::TENSOR_NAMES.to_vec(),
    };
    let mut names = Vec::with_capacity(config.num_hidden_layers * of_layer.len() + 1);
    for layer in 0..config.num_hidden_layers {
        let prefix = layer_prefix(layer);
        names.extend(of_layer.iter().map(|name| format!("{prefix}.{name}")));
    }
    names.push(FINAL_NORM.to_owned());
    names
}

fn load_layer(
    config: &DecoderConfig,
    source: &dyn WeightSource,
    layer: usize,
) -> Result<Box<dyn DecoderLayer>, Error> {
    Ok(match config.family {
        Family::Llama => Box::new(llama::load_layer(config, source, layer)?),
        Family::Qwen2 => Box::new(qwen2::load_layer(config, source, layer)?),
        Family::Qwen3 => Box::new(qwen3::load_layer(config, source, layer)?),
        Family::Gemma3 => Box::new(gemma3::load_layer(config, source, layer)?),
        Family::Phi3 => Box::new(phi3::load_layer(config, source, layer)?),
    })
}
