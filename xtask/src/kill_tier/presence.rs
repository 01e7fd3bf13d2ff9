//! Reads a row cache from its page alone (docs/format/row-cache.md), so that the product's own code is not its
//! judge.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const HEADER_BYTES: usize = 128;
const ENTRY_BYTES: usize = 16;
/// Code of rows that were verified.
const VERIFIED: u32 = 1;

/// The row file that the cache is to have.
pub(super) struct Table {
    bytes: Vec<u8>,
    digest: blake3::Hash,
    rows: usize,
    key: [u8; 32],
}

/// What one look at a cache found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) compared: u64,
    pub(super) wrong: u64,
    pub(super) refused: u64,
}

impl Table {
    pub(super) fn open(path: &Path, rows: usize) -> Result<Self> {
        let bytes =
            std::fs::read(path).with_context(|| format!("no row file {}", path.display()))?;
        ensure!(
            bytes.len() % rows == 0,
            "{} is not {rows} rows",
            path.display()
        );
        let digest = blake3::hash(&bytes);
        let context = [&digest.as_bytes()[..], &VERIFIED.to_le_bytes()].concat();
        Ok(Self {
            key: blake3::derive_key("gkq row cache v1", &context),
            bytes,
            digest,
            rows,
        })
    }

    pub(super) fn digest_hex(&self) -> String {
        self.digest.to_hex().to_string()
    }

    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes
    }

    /// Compares every row that the cache in `directory` has; `None` for a cache that has not been made yet.
    ///
    /// # Errors
    /// If a file cannot be read, there is a map without rows, or they are not of this table.
    pub(super) fn compare(&self, directory: &Path) -> Result<Option<Found>> {
        let file = |ending: &str| directory.join(format!("{}.{ending}", self.digest));
        let Some(map) = read_if_there(&file("map"))? else {
            return Ok(None);
        };
        // The last of a table's stations renames the rows, perhaps between two of these looks.
        let mut data = None;
        for ending in ["rows", "rows.part", "rows"] {
            if data.is_none() {
                data = read_if_there(&file(ending))?;
            }
        }
        let data =
            data.with_context(|| format!("{} has a map and no rows", directory.display()))?;
        self.check_map(&map)?;
        ensure!(
            data.len() == self.bytes.len(),
            "the rows have {} bytes, expected {}",
            data.len(),
            self.bytes.len()
        );
        let row_bytes = self.bytes.len() / self.rows;
        let mut found = Found::default();
        let (entries, _) = map[HEADER_BYTES..].as_chunks::<ENTRY_BYTES>();
        let rows = data
            .chunks_exact(row_bytes)
            .zip(self.bytes.chunks_exact(row_bytes));
        for (id, (entry, (row, expected))) in entries.iter().zip(rows).enumerate() {
            if *entry == [0; ENTRY_BYTES] {
                continue;
            }
            let input = [&(id as u64).to_le_bytes()[..], row].concat();
            let hash = blake3::keyed_hash(&self.key, &input);
            if hash.as_bytes()[..ENTRY_BYTES] != *entry {
                found.refused += 1;
                continue;
            }
            found.compared += 1;
            if row != expected {
                found.wrong += 1;
            }
        }
        Ok(Some(found))
    }

    /// Magic, version, shape and digest of the header: a map that has its name is whole.
    fn check_map(&self, map: &[u8]) -> Result<()> {
        let expected = HEADER_BYTES + self.rows * ENTRY_BYTES;
        ensure!(
            map.len() == expected,
            "the map has {} bytes, expected {expected}",
            map.len()
        );
        let row_bytes = u32::try_from(self.bytes.len() / self.rows)?;
        let fields = [
            &b"GKQROWC\0"[..],
            &1_u32.to_le_bytes(),
            &VERIFIED.to_le_bytes(),
            &(self.rows as u64).to_le_bytes(),
            &(self.bytes.len() as u64).to_le_bytes(),
            &row_bytes.to_le_bytes(),
            &[0; 28],
            self.digest.as_bytes(),
            &[0; 16],
        ]
        .concat();
        ensure!(map[..112] == fields, "the map's header is not this table's");
        let check = blake3::hash(&map[..112]);
        ensure!(
            map[112..HEADER_BYTES] == check.as_bytes()[..ENTRY_BYTES],
            "the map's header does not match its check"
        );
        Ok(())
    }
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cache_is_none_and_half_a_cache_is_an_error() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("presence-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let rows = folder.join("table");
        std::fs::write(&rows, [7; 40])?;
        let table = Table::open(&rows, 4)?;
        assert!(table.compare(&folder)?.is_none());
        std::fs::write(folder.join(format!("{}.map", table.digest)), [0; 192])?;
        let error = table
            .compare(&folder)
            .map(|_| ())
            .map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.ends_with("has a map and no rows")));
        std::fs::remove_dir_all(&folder)?;
        Ok(())
    }
}
