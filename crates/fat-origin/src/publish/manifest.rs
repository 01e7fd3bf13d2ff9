//! The manifest: the one small object whose bytes may change, which names the others. It is written
//! last. Specification: `docs/format/manifest.md`; its reader is the station's.

use serde::{Deserialize, Serialize};

use crate::Error;

/// What makes a JSON object a manifest.
const FORMAT: &str = "fat-station manifest";
/// The version this program writes.
const VERSION: u32 = 1;
/// A manifest is no longer than this; readers refuse more.
pub(super) const MAX_BYTES: usize = 64 * 1024;
/// The name where none is asked for.
pub(super) const DEFAULT_NAME: &str = "manifest.json";

/// An object in the manifest's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ObjectEntry {
    pub(super) object: String,
    pub(super) bytes: u64,
    pub(super) blake3: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct KnotEntry {
    #[serde(flatten)]
    pub(super) entry: ObjectEntry,
    pub(super) front_bytes: u64,
    pub(super) front_blake3: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RowsEntry {
    #[serde(flatten)]
    pub(super) entry: ObjectEntry,
    pub(super) tensor: String,
    pub(super) rows: u64,
    pub(super) row_bytes: u32,
    pub(super) dtype: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sidecar: Option<ObjectEntry>,
}

/// One model's objects. It holds no time and no place, so that publishing the same files twice writes
/// the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Manifest {
    format: &'static str,
    version: u32,
    name: String,
    knot: KnotEntry,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<RowsEntry>,
}

impl Manifest {
    pub(super) fn new(name: String, knot: KnotEntry, rows: Option<RowsEntry>) -> Self {
        Self {
            format: FORMAT,
            version: VERSION,
            name,
            knot,
            rows,
        }
    }

    /// The bytes that are published.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let lost = |reason: String| Error::Option {
            option: "--name",
            reason,
        };
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|error| lost(error.to_string()))?;
        bytes.push(b'\n');
        if bytes.len() > MAX_BYTES {
            return Err(lost(format!(
                "the manifest takes {} bytes, at most {MAX_BYTES} are allowed",
                bytes.len()
            )));
        }
        Ok(bytes)
    }
}

/// Whether `bytes` are a manifest of any version: what may be replaced.
pub(super) fn is_manifest(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head {
        format: String,
    }
    serde_json::from_slice::<Head>(bytes).is_ok_and(|head| head.format == FORMAT)
}

/// Refuses a manifest's name that a URL or a directory could take for something else.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.ends_with(".json")
        && !name.starts_with('.')
        && name.len() <= 128
        && name.bytes().all(plain)
    {
        return Ok(());
    }
    Err(Error::Option {
        option: "--manifest",
        reason: format!(
            "`{name}` is no plain file name that ends in .json (letters, digits, `.`, `_`, `-`)"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_again_and_names_are_plain() {
        let knot = KnotEntry {
            entry: ObjectEntry {
                object: "knot-00.gkq".to_owned(),
                bytes: 1,
                blake3: "00".to_owned(),
            },
            front_bytes: 1,
            front_blake3: "00".to_owned(),
        };
        let bytes = Manifest::new("m".to_owned(), knot, None)
            .to_bytes()
            .unwrap();
        assert!(is_manifest(&bytes));
        for other in [
            &b"{}"[..],
            b"[]",
            b"{\"format\": 1}",
            b"{\"name\": \"app\"}",
            b"",
        ] {
            assert!(!is_manifest(other));
        }
        check_name("qwen2.5-0.5b.json").unwrap();
        for name in [
            "", ".json", "a/b.json", "a b.json", "..json/x", "m.txt", "a?b.json",
        ] {
            check_name(name).unwrap_err();
        }
    }
}
