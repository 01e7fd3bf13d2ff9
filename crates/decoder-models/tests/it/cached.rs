//! A sequence gives the same bits whole, in pieces and token by token, and after a roll-back.

use candle_core::Tensor;
use decoder_models::{Decoder, Error, KvPrecision, LmHead, Pass, Weight};

use crate::fixture::{CASES, EMBEDDING, Fixture, Stored, bits};

#[test]
fn pieces_give_the_bits_of_the_whole() {
    for case in CASES {
        let fixture = Fixture::load(case);
        let models = Stored::ALL.map(|stored| (stored, fixture.model(stored)));
        let exact = (Stored::F32, fixture.exact_model(Stored::F32));
        for (stored, model) in models.into_iter().chain([exact]) {
            let ids = &fixture
                .runs
                .iter()
                .map(|run| &run.input_ids)
                .find(|ids| ids.len() < 200)
                .unwrap()[..];
            let whole = bits(&model.logits(ids));
            let by_token = bits(&model.logits_in(ids, std::iter::repeat(1)));
            assert!(whole == by_token, "{case} {stored:?}, token by token");
            let odd = bits(&model.logits_in(ids, [3, 1, 7, 2, 13, 5].into_iter().cycle()));
            assert!(whole == odd, "{case} {stored:?}, in odd pieces");
            let prompt_then_tokens = std::iter::once(ids.len() / 2).chain(std::iter::repeat(1));
            let decoded = bits(&model.logits_in(ids, prompt_then_tokens));
            assert!(
                whole == decoded,
                "{case} {stored:?}, prompt and then tokens"
            );
        }
    }
}

/// A run long enough that sliding layers let positions go many times.
#[test]
fn a_released_window_changes_no_bit_and_bounds_the_memory() {
    let fixture = Fixture::load("gemma3");
    let model = fixture.model(Stored::Q8_0);
    let ids: Vec<usize> = (0..700)
        .map(|i| (i * i * 7 + i * 13) % model.config.vocab_size)
        .collect();
    let whole = bits(&model.logits(&ids));

    let mut cache = model.new_cache(ids.len());
    let mut logits = Vec::new();
    for chunk in ids.chunks(9) {
        logits.extend(bits(&model.continue_with(chunk, &mut cache)));
    }
    assert!(whole == logits);
    // Two sliding layers need 16 + 9 positions of 700, and have at most a few steps of 64.
    let position_bytes = 2 * model.config.key_value_size() * size_of::<u16>();
    assert!(
        cache.allocated_bytes() < (700 * 3 / 2 + 2 * 256) * position_bytes,
        "{}",
        cache.allocated_bytes()
    );

    let refused = cache.truncate(300).unwrap_err().to_string();
    assert!(
        refused.starts_with("cache cannot return to 300 positions: it holds 700"),
        "{refused}"
    );
}

#[test]
fn a_rolled_back_sequence_continues_as_if_nothing_had_been() {
    for case in ["llama-tied", "qwen2"] {
        let fixture = Fixture::load(case);
        let model = fixture.model(Stored::Q8_0);
        let ids = &fixture.runs[0].input_ids[..30];
        let whole = bits(&model.logits(ids));

        let mut cache = model.new_cache(64);
        model.continue_with(&ids[..20], &mut cache);
        model.continue_with(&[5, 4, 3, 2, 1], &mut cache);
        cache.truncate(20).unwrap();
        assert_eq!(cache.len(), 20);
        let rest = bits(&model.continue_with(&ids[20..], &mut cache));
        assert!(whole[20 * model.config.vocab_size..] == rest, "{case}");
        assert!(cache.truncate(31).is_err(), "longer than it is");
    }
}

#[test]
fn threads_change_no_bit() {
    let fixture = Fixture::load("llama-tied");
    for stored in Stored::ALL {
        let model = fixture.model(stored);
        let ids = &fixture.runs[1].input_ids[..300];
        let of_pool = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            bits(&pool.install(|| model.logits(ids)))
        };
        assert!(of_pool(1) == of_pool(3), "{stored:?}");
    }
}

/// Stages are loaded one by one, each before the pass needs it; the pass waits nowhere else.
#[test]
fn a_pass_over_a_decoder_that_is_still_loading_gives_the_same_bits() {
    for case in CASES {
        let fixture = Fixture::load(case);
        let model = fixture.model(Stored::Q8_0);
        let ids = &fixture.runs[0].input_ids[..];
        let hidden = model.embed(ids);
        let mut cache = model.decoder.new_cache(ids.len(), KvPrecision::F16);
        let whole = model.decoder.forward(&hidden, &mut cache).unwrap();
        let whole = bits(&values_of(&whole));

        let decoder = Decoder::unloaded(&fixture.config());
        let source = fixture.source(Stored::Q8_0);
        let mut cache = decoder.new_cache(ids.len(), KvPrecision::F16);
        let missing = decoder
            .forward(&hidden, &mut cache)
            .unwrap_err()
            .to_string();
        assert_eq!(missing, "stage 0 of the decoder is not loaded", "{case}");
        assert_eq!(cache.len(), 0);
        let mut states = values_of(&hidden);
        let mut pass = Pass::begin(&decoder, &mut states, &mut cache).unwrap();
        for stage in 0..decoder.stages() {
            assert_eq!(pass.next_stage(), stage);
            let missing = pass.run(stage + 1).unwrap_err();
            assert!(matches!(missing, Error::StageMissing { stage: found } if found == stage));
            decoder.load_stage(stage, &source).unwrap();
            pass.run(stage + 1).unwrap();
        }
        pass.finish().unwrap();
        assert!(whole == bits(&states), "{case}");
        assert_eq!(cache.len(), ids.len());
    }
}

#[test]
fn a_pass_that_has_not_seen_every_stage_does_not_finish() {
    let fixture = Fixture::load(CASES[0]);
    let model = fixture.model(Stored::Bf16);
    let mut cache = model.decoder.new_cache(4, KvPrecision::F16);
    let mut states = values_of(&model.embed(&[1, 2]));
    let mut pass = Pass::begin(&model.decoder, &mut states, &mut cache).unwrap();
    pass.run(1).unwrap();
    assert!(matches!(
        pass.finish(),
        Err(Error::StageMissing { stage: 1 })
    ));
    assert_eq!(cache.len(), 0, "nothing was taken in");
}

#[test]
fn a_part_of_the_head_gives_the_logits_of_its_rows() {
    for case in CASES {
        let fixture = Fixture::load(case);
        let model = fixture.model(Stored::Q8_0);
        let source = fixture.source(Stored::Q8_0);
        let head = source.0.get("lm_head.weight");
        let Some(Weight::Dense {
            dtype,
            shape,
            bytes,
        }) = head.or_else(|| source.0.get(EMBEDDING))
        else {
            panic!("{case}: a dense head")
        };
        let mut cache = model.decoder.new_cache(3, KvPrecision::F16);
        let hidden = model.decoder.forward(&model.embed(&[1, 2, 3]), &mut cache);
        let hidden = hidden.unwrap().narrow(0, 2, 1).unwrap();
        let whole = bits(&model.head.logits(&hidden).unwrap());
        let row_bytes = bytes.len() / shape[0];
        for (at, part) in bytes.chunks(37 * row_bytes).enumerate() {
            let rows = part.len() / row_bytes;
            let weight = Weight::Dense {
                dtype: *dtype,
                shape: vec![rows, shape[1]],
                bytes: bytes.slice_ref(part),
            };
            let part = LmHead::of_rows(rows, weight, &model.config).unwrap();
            let logits = bits(&part.logits(&hidden).unwrap());
            assert!(whole[37 * at..][..rows] == logits, "{case}, part {at}");
        }
    }
}

fn values_of(hidden: &Tensor) -> Vec<f32> {
    hidden.flatten_all().unwrap().to_vec1().unwrap()
}
