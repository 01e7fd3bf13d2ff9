//! The file of what origins can do: JSON, a few kilobytes, no secrets (an origin has no path, query
//! or user). Losing it costs a canary, so whatever cannot be read counts as nothing known.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Known, bound};

const VERSION: u32 = 1;
/// A longer file is none of ours: 256 origins take about 32 KiB.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Longer names are no origins.
const MAX_ORIGIN_BYTES: usize = 300;

#[derive(Debug, Serialize, Deserialize)]
struct Page {
    format: String,
    version: u32,
    origins: BTreeMap<String, Known>,
}

const FORMAT: &str = "helix-transport origins";

/// What the file knows and is still believed; nothing where there is no usable file.
pub(super) fn read(path: &Path, now_unix_s: u64) -> BTreeMap<String, Known> {
    let mut text = String::new();
    let page = File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .ok()
        .filter(|bytes| *bytes as u64 <= MAX_FILE_BYTES)
        .and_then(|_| serde_json::from_str::<Page>(&text).ok())
        .filter(|page| page.format == FORMAT && page.version == VERSION);
    let mut origins = page.map(|page| page.origins).unwrap_or_default();
    origins
        .retain(|origin, known| origin.len() <= MAX_ORIGIN_BYTES && known.is_believed(now_unix_s));
    bound(&mut origins);
    origins
}

/// Puts one origin into the file, beside what other processes have put there meanwhile. The file is
/// replaced whole: a reader sees the old one or the new one.
pub(super) fn remember(path: &Path, origin: &str, known: Known, now_unix_s: u64) -> io::Result<()> {
    let mut origins = read(path, now_unix_s);
    origins.insert(origin.to_owned(), known);
    bound(&mut origins);
    let page = Page {
        format: FORMAT.to_owned(),
        version: VERSION,
        origins,
    };
    let text = serde_json::to_string_pretty(&page)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Named by process and moment: two writers never share a temporary file.
    let unique = format!(
        ".origins-{}-{:016x}.tmp",
        std::process::id(),
        rand::random::<u64>()
    );
    let temporary = folder.join(unique);
    let written = File::create_new(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Nothing more can be done about a file that cannot be removed either.
        let _ = fs::remove_file(&temporary);
    }
    written
}
