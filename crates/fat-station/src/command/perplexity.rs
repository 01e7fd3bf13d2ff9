//! `perplexity`: one JSON object on stdout.

use super::{RunTokens, Station, print_json};
use crate::cli::PerplexityArgs;
use crate::engine::Waiting;
use crate::engine::perplexity::{Windows, measure};
use crate::error::Error;
use crate::model::Model;
use crate::user_file::{MAX_BYTES, read_text};
use compact_tokenizer::AddSpecial;
use std::sync::Arc;
use tokio::runtime::Handle;

pub(super) async fn perplexity(station: &Station, args: &PerplexityArgs) -> Result<(), Error> {
    let text = read_text("--file", &args.file, MAX_BYTES)?;
    // The first row read tells the length of the row table; which row does not matter.
    let probe = |_: &crate::language::Language| Ok(vec![0]);
    let loaded = Model::load(&station.config, Arc::clone(&station.traffic), probe);
    let (model, _) = station.unless_interrupted(Box::pin(loaded)).await?;
    let waiting = Waiting {
        runtime: Handle::current(),
        cancel: station.interrupt.token().clone(),
    };
    let windows = Windows {
        context: args.context,
        limit: args.chunks,
    };
    let model_of_thread = Arc::clone(&model);
    let work = move || {
        let tokenizer = &model_of_thread.language.tokenizer;
        let tokens = tokenizer.encode(&text, AddSpecial::Yes);
        // What the tokenizer puts before an empty text is what it puts before every text.
        let bos = tokenizer.encode("", AddSpecial::Yes).first().copied();
        measure(&model_of_thread, &tokens, bos, windows, &waiting)
    };
    let measured = tokio::task::spawn_blocking(work)
        .await
        .map_err(|_panicked| Error::Lost {
            what: "the computation",
        })??;
    print_json(&measured)?;
    model.embedding.settle().await;
    let prompt = measured.chunks * args.context as u64;
    station.summarise(
        Some(&model),
        RunTokens {
            prompt,
            ..RunTokens::default()
        },
    )
}
