//! [`Decoder`]: the stack of layers and the final norm, for every family. Hidden states in, hidden
//! states out; token ids, embedding and head are not here.

use candle_core::{Device, Tensor};

use crate::attention::LayerStep;
use crate::buffers::PassBuffers;
use crate::config::{DecoderConfig, Family};
use crate::kv_cache::{KvCache, KvPrecision};
use crate::layer::{DecoderLayer, layer_prefix};
use crate::norm::RmsNorm;
use crate::rope::Rope;
use crate::slices::{check_rows, count_rows, with_f32};
use crate::weights::WeightSource;
use crate::{Error, gemma3, llama, phi3, qwen2, qwen3};

/// Name of the final norm.
const FINAL_NORM: &str = "model.norm.weight";

/// A decoder-only model without its embedding and head.
#[derive(Debug)]
pub struct Decoder {
    layers: Vec<Box<dyn DecoderLayer>>,
    norm: RmsNorm,
    rope: Rope,
    rope_local: Option<Rope>,
    windows: Vec<Option<usize>>,
    config: DecoderConfig,
}

impl Decoder {
    /// Loads all layers and the final norm. Matrices keep the bytes that `source` hands out.
    ///
    /// # Errors
    /// [`Error::TensorMissing`], [`Error::TensorShape`], [`Error::TensorBytes`],
    /// [`Error::TensorUnexpected`] or [`Error::Kernel`] naming the tensor at fault, and whatever
    /// `source` itself answers.
    pub fn load(config: &DecoderConfig, source: &dyn WeightSource) -> Result<Self, Error> {
        let layers: Result<Vec<_>, Error> = (0..config.num_hidden_layers)
            .map(|layer| load_layer(config, source, layer))
            .collect();
        let rope = |rope| Rope::new(rope, config.rope_layout);
        Ok(Self {
            layers: layers?,
            norm: RmsNorm::load(config, source, FINAL_NORM, config.hidden_size)?,
            rope: rope(&config.rope),
            rope_local: (config.rope != config.rope_local).then(|| rope(&config.rope_local)),
            windows: (0..config.num_hidden_layers)
                .map(|layer| config.layer_window(layer))
                .collect(),
            config: config.clone(),
        })
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
    /// through all layers and the final norm, where they are. A row's result has the same bits
    /// whether the sequence comes whole, in chunks or token by token.
    ///
    /// A pass of few rows works in buffers that the cache keeps, so that a token after another takes
    /// no memory, but where the cache grows. Work is spread over the rayon pool this is called in, or
    /// the global one.
    ///
    /// # Errors
    /// [`Error::Argument`] for no rows or a part of one, [`Error::CacheFull`] if the positions don't
    /// fit, [`Error::CacheMismatch`] if the cache is another decoder's, [`Error::Tensor`] if a kernel
    /// refuses. The cache is then as it was before.
    pub fn forward_in_place(&self, hidden: &mut [f32], cache: &mut KvCache) -> Result<(), Error> {
        let rows = count_rows(hidden, self.config.hidden_size, "hidden")?;
        let expected = [
            self.layers.len(),
            self.config.num_key_value_heads,
            self.config.head_dim,
        ];
        let found = cache.geometry();
        if found != expected {
            return Err(Error::CacheMismatch { expected, found });
        }
        cache.check_room(rows)?;
        // Inside the pool a kernel's parallel loop costs a microsecond; from outside, a thread
        // switch each way, hundreds of times a token.
        if rayon::current_thread_index().is_some() {
            self.run(hidden, rows, cache)
        } else {
            rayon::scope(|_| self.run(hidden, rows, cache))
        }?;
        cache.advance(rows);
        Ok(())
    }

    fn run(&self, hidden: &mut [f32], rows: usize, cache: &mut KvCache) -> Result<(), Error> {
        let (start, capacity) = (cache.len(), cache.capacity());
        let mut buffers = cache.take_buffers();
        let PassBuffers {
            layer: activations,
            angles,
            local_angles,
        } = &mut buffers;
        self.rope.fill(angles, start, rows, capacity);
        if let Some(local) = &self.rope_local {
            local.fill(local_angles, start, rows, capacity);
        }
        let layers = self
            .layers
            .iter()
            .zip(&self.windows)
            .zip(cache.layers_mut());
        for ((layer, window), cache) in layers {
            let is_local = self.rope_local.is_some() && window.is_some();
            let step = &mut LayerStep {
                angles: if is_local { &*local_angles } else { &*angles },
                cache,
                start,
                capacity,
                rows,
                buffers: activations,
            };
            layer.forward(hidden, step)?;
        }
        cache.keep_buffers(buffers, rows);
        self.norm.apply_in_place(hidden);
        Ok(())
    }
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
