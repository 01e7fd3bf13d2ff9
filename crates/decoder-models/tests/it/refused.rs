//! Wrong weights, wrong tensors and full caches are refused by name, and leave the cache usable.

use candle_core::{DType, Device, Tensor};
use decoder_models::{Decoder, DecoderConfig, Error, LmHead, Weight, WeightSource};
use gkq_v2::Dtype;

use crate::fixture::{Fixture, MapSource, Stored, Values, bits, dense};

fn load_error(source: &dyn WeightSource, config: &DecoderConfig) -> String {
    match Decoder::load(config, source) {
        Ok(_) => panic!("loaded"),
        Err(error) => error.to_string(),
    }
}

fn zeros(shape: &[usize]) -> Weight {
    dense(
        &Values {
            shape: shape.to_vec(),
            values: vec![0.0; shape.iter().product()],
        },
        Stored::F32,
    )
}

#[test]
fn faulty_weights_are_named() {
    let fixture = Fixture::load("qwen2");
    let config = fixture.config();
    let good = fixture.source(Stored::F32);
    let with = |name: &str, weight: Option<Weight>| {
        let mut source = good.clone();
        source.0.remove(name);
        source
            .0
            .extend(weight.map(|weight| (name.to_owned(), weight)));
        load_error(&source, &config)
    };
    let q_proj = "model.layers.1.self_attn.q_proj.weight";
    assert_eq!(with(q_proj, None), format!("tensor `{q_proj}` is absent"));
    assert_eq!(
        with(q_proj, Some(zeros(&[64, 32]))),
        format!("tensor `{q_proj}` has shape [64, 32], expected [64, 64]")
    );
    let norm = "model.norm.weight";
    assert_eq!(
        with(norm, Some(zeros(&[1, 64]))),
        format!("tensor `{norm}` has shape [1, 64], expected [64]")
    );
    let bias = "model.layers.0.self_attn.v_proj.bias";
    assert_eq!(with(bias, None), format!("tensor `{bias}` is absent"));
    let short = Weight::Dense {
        dtype: Dtype::F32,
        shape: vec![64, 64],
        bytes: vec![0; 16_380].into(),
    };
    assert_eq!(
        with(q_proj, Some(short)),
        format!("tensor `{q_proj}` has 16380 bytes, expected 16384")
    );
    let blocks = Weight::Dense {
        dtype: Dtype::Q4K,
        shape: vec![64, 64],
        bytes: vec![0; 2304].into(),
    };
    assert_eq!(
        with(q_proj, Some(blocks)),
        format!("tensor `{q_proj}` is not usable as a matrix")
    );
}

#[test]
fn a_bias_that_the_config_denies_is_refused() {
    let fixture = Fixture::load("llama-tied");
    let mut source = fixture.source(Stored::F32);
    let bias = "model.layers.0.mlp.up_proj.bias";
    source.0.insert(bias.to_owned(), zeros(&[96]));
    let expected = format!("tensor `{bias}` is present although `mlp_bias` is false");
    assert_eq!(load_error(&source, &fixture.config()), expected);
}

#[test]
fn a_failing_source_is_heard() {
    struct Failing;
    impl WeightSource for Failing {
        fn weight(&self, name: &str) -> Result<Option<Weight>, Error> {
            Err(Error::Source {
                tensor: name.to_owned(),
                source: "origin is gone".into(),
            })
        }
    }
    let message = load_error(&Failing, &Fixture::load("phi3").config());
    assert_eq!(
        message,
        "tensor `model.layers.0.self_attn.qkv_proj.weight` could not be read"
    );
}

#[test]
fn a_head_of_another_shape_is_refused() {
    let config = Fixture::load("qwen3").config();
    let error = LmHead::new(zeros(&[95, 64]), &config)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "tensor `lm_head.weight` has shape [95, 64], expected [96, 64]"
    );
}

#[test]
fn hidden_states_of_another_form_are_refused() {
    let model = Fixture::load("qwen3").model(Stored::F32);
    let mut cache = model.new_cache(8);
    for hidden in [
        Tensor::zeros((1, 65), DType::F32, &Device::Cpu).unwrap(),
        Tensor::zeros((0, 64), DType::F32, &Device::Cpu).unwrap(),
        Tensor::zeros((1, 1, 64), DType::F32, &Device::Cpu).unwrap(),
        Tensor::zeros((1, 64), DType::F64, &Device::Cpu).unwrap(),
    ] {
        let error = model
            .decoder
            .forward(&hidden, &mut cache)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("hidden must be [rows >= 1, 64] f32 on the CPU, found"),
            "{error}"
        );
    }
    assert!(cache.is_empty());
    let none: [&[u8]; 0] = [];
    assert!(decoder_models::embed_rows(Dtype::F32, &none, &model.config).is_err());
}

/// A tensor need not be contiguous at the seam.
#[test]
fn a_transposed_tensor_is_taken() {
    let fixture = Fixture::load("qwen3");
    let model = fixture.model(Stored::F32);
    let hidden = model.embed(&fixture.runs[0].input_ids);
    let turned = hidden.t().unwrap().contiguous().unwrap().t().unwrap();
    assert!(!turned.is_contiguous());
    let run = |hidden: &Tensor| {
        let out = model
            .decoder
            .forward(hidden, &mut model.new_cache(100))
            .unwrap();
        bits(&model.head.logits(&out).unwrap())
    };
    assert!(run(&hidden) == run(&turned));
}

#[test]
fn a_full_cache_refuses_and_stays_usable() {
    let fixture = Fixture::load("llama-tied");
    let model = fixture.model(Stored::Q8_0);
    let ids = &fixture.runs[0].input_ids[..12];
    let mut cache = model.new_cache(10);
    model.continue_with(&ids[..8], &mut cache);
    let error = model
        .decoder
        .forward(&model.embed(&ids[8..]), &mut cache)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "cache holds 8 of 10 positions, 4 more don't fit");
    let rest = bits(&model.continue_with(&ids[8..10], &mut cache));
    let whole = bits(&model.logits(&ids[..10]));
    assert!(whole[8 * 96..] == rest);
}

#[test]
fn another_models_cache_is_refused() {
    let small = Fixture::load("llama-tied").model(Stored::F32);
    let other = Fixture::load("gemma3").model(Stored::F32);
    let mut cache = small.new_cache(4);
    let error = other
        .decoder
        .forward(&other.embed(&[1]), &mut cache)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "cache has [layers, kv_heads, head_dim] [2, 2, 16], this decoder needs [3, 1, 32]"
    );
    let empty = MapSource::default();
    assert!(load_error(&empty, &small.config).contains("is absent"));
}
