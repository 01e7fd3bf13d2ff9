//! `tokenize`: the ids that `run` would give the model for a text, as a JSON array on stdout.

use super::{Station, print_json, text_or_stdin};
use crate::cli::TokenizeArgs;
use crate::error::Error;
use crate::language::{Language, PromptForm};
use crate::model;
use crate::user_file::{MAX_BYTES, read_text};

pub(super) async fn tokenize(station: &Station, args: &TokenizeArgs) -> Result<(), Error> {
    let text = match (&args.file, &args.text) {
        (Some(path), _) => read_text("--file", path, MAX_BYTES)?,
        (None, Some(text)) => text_or_stdin(station, text).await?,
        // The command line was refused without either.
        (None, None) => String::new(),
    };
    let load = async {
        let (knot, config) = model::open(&station.config, &station.traffic).await?;
        let limit = station.config.max_context;
        Language::load(&knot, &config, limit, &station.traffic).await
    };
    let language = station.unless_interrupted(Box::pin(load)).await?;
    let form = match (args.no_special, args.raw) {
        (true, _) => PromptForm::Bare,
        (false, true) => PromptForm::Raw,
        (false, false) => PromptForm::Chat,
    };
    let tokens = tokio::task::block_in_place(|| language.tokens(&text, form))?;
    print_json(&tokens)
}
