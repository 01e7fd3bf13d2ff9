//! A packed model, with its files read back.

use std::path::{Path, PathBuf};

use fat_origin::pack::{PackOptions, PackReport, pack};
use gkq_v2::{Block, Knot, SectionKind};
use tempfile::TempDir;

pub(crate) struct Packed {
    pub(crate) out: TempDir,
    pub(crate) report: PackReport,
    pub(crate) bytes: Vec<u8>,
    pub(crate) rows: Vec<u8>,
    pub(crate) knot: Knot,
}

impl Packed {
    pub(crate) fn knot_path(&self) -> PathBuf {
        self.out.path().join("tiny.gkq")
    }

    pub(crate) fn rows_path(&self) -> PathBuf {
        self.out.path().join("tiny.rows")
    }

    pub(crate) fn block(&self, name: &str) -> &Block {
        self.knot
            .block(name)
            .unwrap_or_else(|| panic!("no block {name}"))
    }

    pub(crate) fn payload(&self, name: &str) -> &[u8] {
        let range = &self.block(name).payload;
        &self.bytes[range.start as usize..range.end as usize]
    }

    pub(crate) fn text(&self, kind: SectionKind) -> &str {
        self.knot
            .text(kind)
            .unwrap_or_else(|| panic!("no section {kind}"))
    }

    pub(crate) fn json(&self, kind: SectionKind) -> serde_json::Value {
        serde_json::from_str(self.text(kind)).unwrap()
    }

    pub(crate) fn tokenizer(&self) -> compact_tokenizer::Tokenizer {
        let range = &self.knot.section(SectionKind::Tokenizer).unwrap().range;
        let bytes = self.bytes[range.start as usize..range.end as usize].to_vec();
        compact_tokenizer::Tokenizer::from_bytes(bytes.into()).unwrap()
    }

    pub(crate) fn block_names(&self) -> Vec<&str> {
        self.knot
            .blocks()
            .iter()
            .map(|block| block.name.as_str())
            .collect()
    }
}

/// Packs under the name `tiny` and opens what came out.
pub(crate) fn packed(source: &Path, options: PackOptions) -> Packed {
    let out = tempfile::tempdir().unwrap();
    let options = PackOptions {
        out: out.path().to_path_buf(),
        name: Some("tiny".to_owned()),
        ..options
    };
    let report = pack(source, &options).unwrap();
    let bytes = std::fs::read(out.path().join("tiny.gkq")).unwrap();
    let rows = std::fs::read(out.path().join("tiny.rows")).unwrap();
    let knot = Knot::parse(&bytes, bytes.len() as u64).unwrap();
    let expected: &[&str] = match report.mix {
        None => &["tiny.gkq", "tiny.rows"],
        Some(_) => &["tiny.embed-rows.idx", "tiny.gkq", "tiny.rows"],
    };
    assert_eq!(files(out.path()), expected, "nothing else stays");
    Packed {
        out,
        report,
        bytes,
        rows,
        knot,
    }
}

/// The names in a directory, sorted, hidden ones included.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}
