//! `tokenize`: the ids of a text, as a JSON array on stdout.

use super::{Station, print_json, text_or_stdin};
use crate::chat::Message;
use crate::cli::TokenizeArgs;
use crate::error::Error;
use crate::language::Language;
use crate::model;
use compact_tokenizer::AddSpecial;

pub(super) async fn tokenize(station: &Station, args: &TokenizeArgs) -> Result<(), Error> {
    let text = text_or_stdin(&args.text)?;
    let load = async {
        let (knot, config) = model::open(&station.config, &station.traffic).await?;
        Language::load(&knot, &config, station.config.max_context, &station.traffic).await
    };
    let language = station.unless_interrupted(Box::pin(load)).await?;
    let ids = match (&language.chat, args.chat) {
        (Some(chat), true) => language
            .tokenizer
            .encode(&chat.render(&[Message::user(&text)])?, AddSpecial::No),
        (None, true) => return Err(Error::config("the model carries no chat template")),
        (_, false) if args.no_special => language.tokenizer.encode(&text, AddSpecial::No),
        (_, false) => language.tokenizer.encode(&text, AddSpecial::Yes),
    };
    print_json(&ids)
}
