//! Reads a row cache from its page alone (docs/format/row-cache.md), so that the product's own code is not its
//! judge.

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

    /// Compares every row that the cache in `directory` has. A cache that has not been made yet has none.
    pub(super) fn compare(&self, directory: &Path) -> Result<Found> {
        let file = |ending: &str| directory.join(format!("{}.{ending}", self.digest));
        let (Ok(map), Ok(data)) = (
            std::fs::read(file("map")),
            std::fs::read(file("rows")).or_else(|_| std::fs::read(file("rows.part"))),
        ) else {
            return Ok(Found::default());
        };
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
        Ok(found)
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
