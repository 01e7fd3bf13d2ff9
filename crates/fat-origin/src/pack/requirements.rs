//! Whether a station could run what is about to be packed. The decoder itself is asked: it loads the
//! selected tensors by name, shape and dtype, with zeros in place of their values, so that nothing
//! of the payloads is read. What the config does not know is refused too, because leaving it out
//! would change the answers.

use std::collections::HashSet;

use bytes::Bytes;
use decoder_models::{Decoder, DecoderConfig, LmHead, Weight, WeightSource, tensor_names};

use super::selection::{Selected, Selection};
use crate::Error;
use crate::checkpoint::{Checkpoint, EMBEDDING, HEAD};

/// Refuses a checkpoint whose knot no station could load, by the name of what is wrong.
pub(super) fn check(checkpoint: &Checkpoint, selection: &Selection) -> Result<(), Error> {
    let refused = |source| match source {
        decoder_models::Error::TensorMissing { tensor } => Error::MissingTensor {
            path: checkpoint.path.clone(),
            tensor,
        },
        source => Error::Model {
            path: checkpoint.path.clone(),
            source: Box::new(source),
        },
    };
    let config = DecoderConfig::from_json(&checkpoint.texts.config).map_err(refused)?;
    refuse_unknown(checkpoint, selection, &config)?;
    check_matrix(checkpoint, &selection.embedding, &config)?;
    check_stop_ids(checkpoint, &selection.embedding)?;
    let zeros = Zeros::of(checkpoint, selection)?;
    Decoder::load(&config, &zeros).map_err(refused)?;
    if let Some(head) = zeros.weight(HEAD).map_err(refused)? {
        LmHead::new(head, &config).map_err(refused)?;
    }
    Ok(())
}

/// Every tensor is one that the config asks for: a layer beyond the last one means a config of
/// another model.
fn refuse_unknown(
    checkpoint: &Checkpoint,
    selection: &Selection,
    config: &DecoderConfig,
) -> Result<(), Error> {
    let known: HashSet<String> = tensor_names(config).into_iter().collect();
    let unknown = selection
        .body
        .iter()
        .find(|selected| selected.name != HEAD && !known.contains(&selected.name));
    unknown.map_or(Ok(()), |unknown| {
        Err(Error::UnknownTensor {
            path: checkpoint.path.clone(),
            tensor: unknown.name.clone(),
            layers: config.num_hidden_layers,
        })
    })
}

/// The vocabulary matrix has a row for each id of the config; more are padding.
fn check_matrix(
    checkpoint: &Checkpoint,
    embedding: &Selected,
    config: &DecoderConfig,
) -> Result<(), Error> {
    let (rows, width) = (config.vocab_size as u64, config.hidden_size as u64);
    match embedding.shape.as_slice() {
        &[found_rows, found_width] if found_rows >= rows && found_width == width => Ok(()),
        found => Err(Error::malformed(
            &checkpoint.path,
            format!("tensor `{EMBEDDING}`"),
            format!("shape [{rows} or more, {width}], by the config's vocab_size and hidden_size"),
            format!("{found:?}"),
        )),
    }
}

/// An id that no row has can never be generated: it belongs to another vocabulary.
fn check_stop_ids(checkpoint: &Checkpoint, embedding: &Selected) -> Result<(), Error> {
    let rows = embedding.shape.first().copied().unwrap_or(0);
    let outside = |id: &&u32| u64::from(**id) >= rows;
    checkpoint
        .stop_ids
        .iter()
        .find(outside)
        .map_or(Ok(()), |id| {
            Err(Error::malformed(
                &checkpoint.path,
                "end-of-sequence id",
                format!("an id below {rows}, the rows of `{EMBEDDING}`"),
                id.to_string(),
            ))
        })
}

/// The selected tensors with zeros for values: all of them slices of one buffer as long as the
/// longest, whose pages the system hands out only if they are written, which nobody does.
struct Zeros<'a> {
    body: &'a [Selected],
    bytes: Bytes,
}

impl<'a> Zeros<'a> {
    fn of(checkpoint: &Checkpoint, selection: &'a Selection) -> Result<Self, Error> {
        let body = selection.body.as_slice();
        let longest = body.iter().max_by_key(|selected| stored_bytes(selected));
        let needed = longest.map_or(0, stored_bytes);
        let mut room = Vec::<u8>::new();
        let len = usize::try_from(needed).unwrap_or(usize::MAX);
        if room.try_reserve_exact(len).is_err() {
            let name = longest.map_or("", |selected| selected.name.as_str());
            return Err(Error::malformed(
                &checkpoint.path,
                format!("tensor `{name}`"),
                "a size that fits the address space",
                format!("{needed} bytes"),
            ));
        }
        drop(room);
        let bytes = Bytes::from(vec![0; len]);
        Ok(Self { body, bytes })
    }
}

impl WeightSource for Zeros<'_> {
    fn weight(&self, name: &str) -> Result<Option<Weight>, decoder_models::Error> {
        let selected = self.body.iter().find(|selected| selected.name == name);
        Ok(selected.map(|selected| {
            let width = |dim: &u64| usize::try_from(*dim).unwrap_or(usize::MAX);
            let len = usize::try_from(stored_bytes(selected)).unwrap_or(usize::MAX);
            Weight::Dense {
                dtype: selected.target,
                shape: selected.shape.iter().map(width).collect(),
                bytes: self.bytes.slice(..len.min(self.bytes.len())),
            }
        }))
    }
}

/// Bytes of a tensor in the dtype it gets; 0 for one that has no whole rows, which the decoder names.
fn stored_bytes(selected: &Selected) -> u64 {
    selected.target.tensor_bytes(&selected.shape).unwrap_or(0)
}
