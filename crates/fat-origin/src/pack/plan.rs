//! The declaration of a knot: sections, then blocks in their order, with every size known before the
//! first payload byte is read.

use gkq_v2::{
    BlockId, BlockSpec, ColumnarSpec, KnotDraft, KnotPlan, SectionId, SectionKind, SketchHeader,
};

use super::embed_mix::{Assignment, by_frequency};
use super::selection::{Selected, Selection};
use super::spectral::Factored;
use super::{Matrix, PackOptions, hot_ids, provenance, sketch};
use crate::Error;
use crate::checkpoint::Checkpoint;

/// A declared knot and what belongs to each of its blocks.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) knot: KnotPlan,
    pub(super) tokenizer: SectionId,
    pub(super) body: Vec<(BlockId, Selected)>,
    pub(super) embedding: (BlockId, Selected),
    pub(super) matrix: Matrix,
    /// The kind of each row, where they are of several.
    pub(super) mix: Option<Assignment>,
    /// Dimensions of the sketch, if there is one; its error is not known yet.
    pub(super) sketch: Option<SketchHeader>,
    /// The hot ids, hottest first; empty for no list.
    pub(super) hot_ids: Vec<u32>,
}

pub(super) fn declare(
    checkpoint: &Checkpoint,
    selection: &Selection,
    tokenizer_bytes: &[u8],
    factored: &Factored,
    options: &PackOptions,
) -> Result<Plan, Error> {
    let refused = Error::knot(&checkpoint.path);
    let mut draft = KnotDraft::new();
    for (kind, text) in texts(checkpoint, selection, options) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            draft
                .front_section(kind, text.into_bytes())
                .map_err(&refused)?;
        }
    }
    // First among the payloads: every station needs it, before any block.
    let tokenizer = draft
        .payload_section(SectionKind::Tokenizer, tokenizer_bytes.len() as u64)
        .map_err(&refused)?;
    let mut body = Vec::with_capacity(selection.body.len());
    for selected in &selection.body {
        let spec = match (factored.get(&selected.name), selected.shape.as_slice()) {
            (Some(factors), &[rows, cols]) => {
                let spec =
                    BlockSpec::spectral(&selected.name, factors.dtype, [rows, cols], factors.rank);
                spec.converted_from(selected.source)
            }
            _ => dense(selected),
        };
        body.push((draft.block(spec).map_err(&refused)?, selected.clone()));
    }
    let rows = selection.embedding.shape.first().copied().unwrap_or(0);
    let hot_ids = hot_ids::list(&options.hot_ids, tokenizer_bytes, rows)?;
    let mix = match &options.embed_mix {
        None => None,
        Some(mix) => {
            let hottest = by_frequency(&checkpoint.tokenizer, &hot_ids, rows);
            Some(mix.assign(selection.embedding.target, &hottest)?)
        }
    };
    let sidecar_bytes = match &mix {
        None => 0,
        Some(mix) => mix.sidecar(&selection.embedding)?.sidecar_bytes(),
    };
    let declared = options
        .embed_sketch
        .map(|rank| sketch::declare(&selection.embedding, rank))
        .transpose()?;
    let columnar = ColumnarSpec {
        sketch_bytes: declared
            .as_ref()
            .and_then(SketchHeader::sketch_bytes)
            .unwrap_or(0),
        row_sidecar_bytes: sidecar_bytes,
        hot_ids: u32::try_from(hot_ids.len()).unwrap_or(u32::MAX),
    };
    let mut spec = dense(&selection.embedding).columnar(columnar);
    if options.matrix == Matrix::External {
        spec = spec.external();
    }
    let embedding = (
        draft.block(spec).map_err(&refused)?,
        selection.embedding.clone(),
    );
    Ok(Plan {
        knot: draft.plan().map_err(&refused)?,
        tokenizer,
        body,
        embedding,
        matrix: options.matrix,
        mix,
        sketch: declared,
        hot_ids,
    })
}

/// The small texts of the front, as far as the checkpoint has them.
fn texts(
    checkpoint: &Checkpoint,
    selection: &Selection,
    options: &PackOptions,
) -> [(SectionKind, Option<String>); 5] {
    let texts = &checkpoint.texts;
    let provenance = provenance::describe(checkpoint, selection, options);
    [
        (SectionKind::ModelConfig, Some(texts.config.clone())),
        (SectionKind::TokenizerConfig, texts.tokenizer_config.clone()),
        (SectionKind::ChatTemplate, texts.chat_template.clone()),
        (
            SectionKind::GenerationConfig,
            texts.generation_config.clone(),
        ),
        (SectionKind::Provenance, Some(provenance)),
    ]
}

fn dense(selected: &Selected) -> BlockSpec {
    let spec = BlockSpec::dense(&selected.name, selected.target, &selected.shape);
    if selected.target == selected.source {
        spec
    } else {
        spec.converted_from(selected.source)
    }
}
