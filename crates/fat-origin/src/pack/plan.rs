//! The declaration of a knot: sections, then blocks in their order, with every size known before the
//! first payload byte is read.

use gkq_v2::{BlockId, BlockSpec, ColumnarSpec, KnotDraft, KnotPlan, SectionId, SectionKind};

use super::selection::{Selected, Selection};
use super::spectral::Factored;
use super::{Matrix, PackOptions, provenance};
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
}

pub(super) fn declare(
    checkpoint: &Checkpoint,
    selection: &Selection,
    tokenizer: &[u8],
    factored: &Factored,
    options: &PackOptions,
) -> Result<Plan, Error> {
    let refused = Error::knot(&checkpoint.path);
    let mut draft = KnotDraft::new();
    let texts = &checkpoint.texts;
    let sections = [
        (SectionKind::ModelConfig, Some(texts.config.clone())),
        (SectionKind::TokenizerConfig, texts.tokenizer_config.clone()),
        (SectionKind::ChatTemplate, texts.chat_template.clone()),
        (
            SectionKind::GenerationConfig,
            texts.generation_config.clone(),
        ),
        (
            SectionKind::Provenance,
            Some(provenance::describe(checkpoint, selection, options)),
        ),
    ];
    for (kind, text) in sections {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            draft
                .front_section(kind, text.into_bytes())
                .map_err(&refused)?;
        }
    }
    // First among the payloads: every station needs it, before any block.
    let tokenizer = draft
        .payload_section(SectionKind::Tokenizer, tokenizer.len() as u64)
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
    let mut spec = dense(&selection.embedding).columnar(ColumnarSpec::default());
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
    })
}

fn dense(selected: &Selected) -> BlockSpec {
    let spec = BlockSpec::dense(&selected.name, selected.target, &selected.shape);
    if selected.target == selected.source {
        spec
    } else {
        spec.converted_from(selected.source)
    }
}
