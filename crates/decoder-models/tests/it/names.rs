//! `tensor_names` is exactly what loading asks for, and what a checkpoint of the family holds.

use std::collections::BTreeSet;
use std::sync::Mutex;

use decoder_models::{Decoder, Error, Weight, WeightSource, stage_of, tensor_names};

use crate::fixture::{CASES, EMBEDDING, Fixture, MapSource, Stored};

/// Remembers which tensors it handed out.
struct Recorder {
    source: MapSource,
    found: Mutex<Vec<String>>,
}

impl WeightSource for Recorder {
    fn weight(&self, name: &str) -> Result<Option<Weight>, Error> {
        let weight = self.source.weight(name)?;
        if weight.is_some() {
            self.found.lock().unwrap().push(name.to_owned());
        }
        Ok(weight)
    }
}

#[test]
fn names_are_those_that_loading_reads_and_the_checkpoint_holds() {
    for case in CASES {
        let fixture = Fixture::load(case);
        let config = fixture.config();
        let recorder = Recorder {
            source: fixture.source(Stored::Bf16),
            found: Mutex::default(),
        };
        Decoder::load(&config, &recorder).unwrap();
        let read = recorder.found.into_inner().unwrap();
        let names = tensor_names(&config);
        let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(set(&names).len(), names.len(), "{case}: no name twice");
        assert_eq!(
            set(&read).len(),
            read.len(),
            "{case}: nothing is read twice"
        );
        assert_eq!(set(&names), set(&read), "{case}");
        let mut held: BTreeSet<String> = fixture.tensors.keys().cloned().collect();
        held.remove(EMBEDDING);
        held.remove("lm_head.weight");
        assert_eq!(set(&names), held, "{case}");
        assert_eq!(names.last().map(String::as_str), Some("model.norm.weight"));
        assert!(names[0].starts_with("model.layers.0."));
    }
}

#[test]
fn a_stage_reads_the_tensors_that_are_said_to_be_its_own() {
    for case in CASES {
        let fixture = Fixture::load(case);
        let config = fixture.config();
        let decoder = Decoder::unloaded(&config);
        let mut stages = 0;
        for stage in 0..decoder.stages() {
            let recorder = Recorder {
                source: fixture.source(Stored::Bf16),
                found: Mutex::default(),
            };
            decoder.load_stage(stage, &recorder).unwrap();
            let read = recorder.found.into_inner().unwrap();
            assert!(!read.is_empty());
            for name in read {
                assert_eq!(stage_of(&config, &name), Some(stage), "{case}: {name}");
            }
            stages += 1;
        }
        assert_eq!(stages, config.num_hidden_layers + 1);
        for stray in [
            EMBEDDING,
            "lm_head.weight",
            "model.layers.",
            "model.layers.0",
            "model.layers.00.mlp.up_proj.weight",
            "model.layers.x.mlp.up_proj.weight",
            "model.layers.99.mlp.up_proj.weight",
            "model.layers.+0.mlp.up_proj.weight",
        ] {
            assert_eq!(stage_of(&config, stray), None, "{stray}");
        }
    }
}
