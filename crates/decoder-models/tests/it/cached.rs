//! A sequence gives the same bits whole, in pieces and token by token, and after a roll-back.

use crate::fixture::{CASES, Fixture, Stored, bits};

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
