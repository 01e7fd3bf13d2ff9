//! The reference models: configs, weights in a chosen stored form, recorded runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use candle_core::Tensor;
use decoder_models::{
    Decoder, DecoderConfig, Error, KvCache, KvPrecision, LmHead, Weight, WeightSource, embed_rows,
};
use gkq_v2::Dtype;
use low_bit_kernels::{WeightType, quantise_rows};
use safetensors::SafeTensors;

pub(crate) const CASES: [&str; 9] = [
    "llama-tied",
    "llama3-rope",
    "llama-bias-linear",
    "qwen2",
    "qwen2-yarn",
    "qwen3",
    "gemma3",
    "phi3",
    "phi3-longrope",
];

pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";

/// The form in which a test stores the matrices; vectors stay f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    F32,
    F16,
    Bf16,
    Q8_0,
}

impl Stored {
    pub(crate) const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0];

    fn types(self) -> (Dtype, WeightType) {
        match self {
            Self::F32 => (Dtype::F32, WeightType::F32),
            Self::F16 => (Dtype::F16, WeightType::F16),
            Self::Bf16 => (Dtype::Bf16, WeightType::Bf16),
            Self::Q8_0 => (Dtype::Q8_0, WeightType::Q8_0),
        }
    }
}

/// A tensor in f32, which every reference weight is exactly.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// Tokens, and the logits that transformers computed for the last of them.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) input_ids: Vec<usize>,
    pub(crate) logits: Values,
}

/// A reference model before its weights are given a stored form.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) config_json: String,
    pub(crate) tensors: BTreeMap<String, Values>,
    pub(crate) runs: Vec<Run>,
}

impl Fixture {
    pub(crate) fn load(case: &str) -> Self {
        let folder = PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/decoder-models"
        ))
        .join(case);
        let read = |file: &str| {
            std::fs::read(folder.join(file)).unwrap_or_else(|e| panic!("{case}/{file}: {e}"))
        };
        let weights = read("model.safetensors");
        let weights = SafeTensors::deserialize(&weights).unwrap();
        let tensors = weights
            .iter()
            .map(|(name, view)| (name.to_owned(), values(&view)))
            .collect();
        let reference = read("reference.safetensors");
        let reference = SafeTensors::deserialize(&reference).unwrap();
        let run = |index: usize| Run {
            input_ids: ids(&reference.tensor(&format!("run{index}.input_ids")).unwrap()),
            logits: values(&reference.tensor(&format!("run{index}.logits")).unwrap()),
        };
        Self {
            config_json: String::from_utf8(read("config.json")).unwrap(),
            tensors,
            runs: (0..reference.len() / 2).map(run).collect(),
        }
    }

    pub(crate) fn config(&self) -> DecoderConfig {
        DecoderConfig::from_json(&self.config_json).unwrap()
    }

    pub(crate) fn source(&self, stored: Stored) -> MapSource {
        let weight = |(name, tensor): (&String, &Values)| (name.clone(), dense(tensor, stored));
        MapSource(self.tensors.iter().map(weight).collect())
    }

    /// The model with the keys and values of every user.
    pub(crate) fn model(&self, stored: Stored) -> Model {
        Model::load(self.config(), &self.source(stored))
    }

    /// The model with keys and values as transformers has them.
    pub(crate) fn exact_model(&self, stored: Stored) -> Model {
        Model {
            kv_precision: KvPrecision::F32,
            ..self.model(stored)
        }
    }
}

/// Tensors by name.
#[derive(Debug, Default, Clone)]
pub(crate) struct MapSource(pub(crate) BTreeMap<String, Weight>);

impl WeightSource for MapSource {
    fn weight(&self, name: &str) -> Result<Option<Weight>, Error> {
        Ok(self.0.get(name).cloned())
    }
}

/// Decoder, head and embedding rows, put together as a station does.
pub(crate) struct Model {
    pub(crate) config: DecoderConfig,
    pub(crate) decoder: Decoder,
    pub(crate) head: LmHead,
    pub(crate) kv_precision: KvPrecision,
    embedding: (Dtype, Bytes),
}

impl Model {
    pub(crate) fn load(config: DecoderConfig, source: &MapSource) -> Self {
        let decoder = Decoder::load(&config, source).unwrap();
        let embedding = source.0.get(EMBEDDING).unwrap();
        let head = source.0.get("lm_head.weight").unwrap_or(embedding);
        let head = LmHead::new(head.clone(), &config).unwrap();
        let Weight::Dense { dtype, bytes, .. } = embedding.clone() else {
            panic!("low-rank embedding")
        };
        Self {
            config,
            decoder,
            head,
            kv_precision: KvPrecision::default(),
            embedding: (dtype, bytes),
        }
    }

    pub(crate) fn new_cache(&self, capacity: usize) -> KvCache {
        self.decoder.new_cache(capacity, self.kv_precision)
    }

    pub(crate) fn embed(&self, ids: &[usize]) -> Tensor {
        let (dtype, bytes) = &self.embedding;
        let row_bytes = dtype.row_bytes(self.config.hidden_size as u64).unwrap() as usize;
        let rows: Vec<&[u8]> = ids
            .iter()
            .map(|id| &bytes[id * row_bytes..][..row_bytes])
            .collect();
        embed_rows(*dtype, &rows, &self.config).unwrap()
    }

    /// Logits of every position, `[ids.len(), vocab_size]`, fed in pieces of the given lengths.
    pub(crate) fn logits_in(&self, ids: &[usize], pieces: impl Iterator<Item = usize>) -> Vec<f32> {
        let mut cache = self.new_cache(ids.len());
        let mut logits = Vec::new();
        let mut rest = ids;
        for piece in pieces {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            logits.extend(self.continue_with(now, &mut cache));
            rest = later;
            if rest.is_empty() {
                return logits;
            }
        }
        panic!("the pieces don't cover {} ids", ids.len());
    }

    pub(crate) fn continue_with(&self, ids: &[usize], cache: &mut KvCache) -> Vec<f32> {
        let hidden = self.decoder.forward(&self.embed(ids), cache).unwrap();
        self.head.logits(&hidden).unwrap()
    }

    pub(crate) fn logits(&self, ids: &[usize]) -> Vec<f32> {
        self.logits_in(ids, std::iter::once(ids.len()))
    }
}

/// A tensor in a stored form; vectors stay f32.
pub(crate) fn dense(tensor: &Values, stored: Stored) -> Weight {
    let stored = if tensor.shape.len() < 2 {
        Stored::F32
    } else {
        stored
    };
    let (dtype, weight_type) = stored.types();
    let cols = *tensor.shape.last().unwrap();
    let bytes = quantise_rows(weight_type, &tensor.values, cols)
        .unwrap()
        .into();
    Weight::Dense {
        dtype,
        shape: tensor.shape.clone(),
        bytes,
    }
}

/// Largest difference of two equally long slices.
pub(crate) fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter()
        .zip(right)
        .map(|(l, r)| (l - r).abs())
        .fold(0.0, f32::max)
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn values(view: &safetensors::tensor::TensorView<'_>) -> Values {
    let values = match view.dtype() {
        safetensors::Dtype::BF16 => {
            let widen = |b: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
            view.data().as_chunks().0.iter().map(widen).collect()
        }
        safetensors::Dtype::F32 => view
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect(),
        other => panic!("no fixture stores {other:?}"),
    };
    Values {
        shape: view.shape().to_vec(),
        values,
    }
}

fn ids(view: &safetensors::tensor::TensorView<'_>) -> Vec<usize> {
    view.data()
        .as_chunks()
        .0
        .iter()
        .map(|b| i32::from_le_bytes(*b) as usize)
        .collect()
}
