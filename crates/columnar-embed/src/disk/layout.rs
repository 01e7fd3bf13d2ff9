//! Byte positions of a presence map, and the entry that says which bytes a row has. Pure: no I/O,
//! no policy. Specification: docs/format/row-cache.md.

use crate::layout::RowId;

/// First bytes of a presence map.
pub(crate) const MAGIC: [u8; 8] = *b"GKQROWC\0";
/// The version that this code reads and writes.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the header: the first entry lies behind it, so that no entry straddles a sector.
pub(crate) const HEADER_BYTES: usize = 128;
/// Bytes of an entry, a truncated hash as in the row tree.
pub(crate) const ENTRY_BYTES: usize = 16;
/// The entry of a row that is not there.
pub(crate) const ABSENT: Entry = [0; ENTRY_BYTES];

/// What the map holds for one row.
pub(crate) type Entry = [u8; ENTRY_BYTES];

/// BLAKE3 `derive_key` context of the key of a table's entries.
const KEY_CONTEXT: &str = "gkq row cache v1";

const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;
const TRUST_AT: usize = 12;
const ROWS_AT: usize = 16;
const TABLE_BYTES_AT: usize = 24;
const ROW_BYTES_AT: usize = 32;
const RESERVED_AT: usize = 36;
const DIGEST_AT: usize = 64;
const CHECK_AT: usize = 112;

/// Whether rows were checked before they came here. Rows of the two kinds never mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Each row was checked against the row tree of its table.
    Verified,
    /// Rows were taken as they arrived.
    Unchecked,
}

impl Trust {
    fn code(self) -> u32 {
        match self {
            Self::Verified => 1,
            Self::Unchecked => 2,
        }
    }
}

/// One table on disk: what names its files and what their header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedTable {
    /// BLAKE3 of the whole row file: names the files, and is what the complete one is checked against.
    pub digest: [u8; 32],
    /// Number of rows, at least 1.
    pub rows: u64,
    /// Bytes of each stored row; 0 where rows have several lengths.
    pub row_bytes: u32,
    /// Bytes of all stored rows together, which is the length of the row file.
    pub table_bytes: u64,
    /// Whether rows were checked.
    pub trust: Trust,
}

/// A field of a header that is not what the table asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) field: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl CachedTable {
    /// The header of the table's map.
    pub(crate) fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| {
            header[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(MAGIC_AT, &MAGIC);
        put(VERSION_AT, &VERSION.to_le_bytes());
        put(TRUST_AT, &self.trust.code().to_le_bytes());
        put(ROWS_AT, &self.rows.to_le_bytes());
        put(TABLE_BYTES_AT, &self.table_bytes.to_le_bytes());
        put(ROW_BYTES_AT, &self.row_bytes.to_le_bytes());
        put(DIGEST_AT, &self.digest);
        let check = check(&header);
        header[CHECK_AT..].copy_from_slice(&check);
        header
    }

    /// Whether `found` is this table's header; the first field that differs, where it is not.
    pub(crate) fn check_header(&self, found: &[u8; HEADER_BYTES]) -> Result<(), Mismatch> {
        let expected = self.header();
        let differ = |field, expected: String, found: String| {
            Err(Mismatch {
                field,
                expected,
                found,
            })
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let word = |header: &[u8; HEADER_BYTES], at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&header[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        let long = |header: &[u8; HEADER_BYTES], at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        if found[..VERSION_AT] != MAGIC {
            return differ("magic", hex(&MAGIC), hex(&found[..VERSION_AT]));
        }
        if word(found, VERSION_AT) != VERSION {
            let found = word(found, VERSION_AT).to_string();
            return differ("version", VERSION.to_string(), found);
        }
        if found[CHECK_AT..] != check(found) {
            return differ("check", hex(&check(found)), hex(&found[CHECK_AT..]));
        }
        for (field, at) in [("trust", TRUST_AT), ("row_bytes", ROW_BYTES_AT)] {
            let (expected, found) = (word(&expected, at), word(found, at));
            if expected != found {
                return differ(field, expected.to_string(), found.to_string());
            }
        }
        for (field, at) in [("rows", ROWS_AT), ("table_bytes", TABLE_BYTES_AT)] {
            let (expected, found) = (long(&expected, at), long(found, at));
            if expected != found {
                return differ(field, expected.to_string(), found.to_string());
            }
        }
        let (start, end) = (DIGEST_AT, DIGEST_AT + 32);
        if found[start..end] != self.digest {
            return differ("digest", hex(&self.digest), hex(&found[start..end]));
        }
        if expected != *found {
            let found = hex(&found[RESERVED_AT..DIGEST_AT]);
            return differ("reserved", "zeros".to_owned(), found);
        }
        Ok(())
    }

    /// Length of the table's map, or `None` where it does not fit 63 bits, as file lengths must.
    pub(crate) fn map_bytes(&self) -> Option<u64> {
        let entries = self.rows.checked_mul(ENTRY_BYTES as u64)?;
        let bytes = entries.checked_add(HEADER_BYTES as u64)?;
        i64::try_from(bytes).is_ok().then_some(bytes)
    }

    /// Where the entry of row `id` lies; the caller has checked that there is such a row.
    pub(crate) fn entry_at(id: RowId) -> u64 {
        HEADER_BYTES as u64 + id.0 * ENTRY_BYTES as u64
    }

    /// The name that the table's files begin with.
    pub(crate) fn stem(&self) -> String {
        let digest = blake3::Hash::from_bytes(self.digest).to_hex();
        match self.trust {
            Trust::Verified => digest.to_string(),
            Trust::Unchecked => format!("{digest}.unchecked"),
        }
    }

    /// What makes the table's entries.
    pub(crate) fn entry_key(&self) -> EntryKey {
        let mut hasher = blake3::Hasher::new_derive_key(KEY_CONTEXT);
        hasher.update(&self.digest);
        hasher.update(&self.trust.code().to_le_bytes());
        EntryKey(*hasher.finalize().as_bytes())
    }
}

/// The key of one table's entries. Rows of another table, or rows that nobody checked, have other
/// entries: files that were mixed up hold no rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryKey([u8; 32]);

impl EntryKey {
    /// The entry of row `id` with the stored bytes `row`.
    pub(crate) fn entry(&self, id: RowId, row: &[u8]) -> Entry {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&id.0.to_le_bytes());
        hasher.update(row);
        truncated(&hasher)
    }
}

/// The header's own check: BLAKE3 of all bytes before it.
fn check(header: &[u8; HEADER_BYTES]) -> Entry {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[..CHECK_AT]);
    truncated(&hasher)
}

fn truncated(hasher: &blake3::Hasher) -> Entry {
    let mut entry = ABSENT;
    hasher.finalize_xof().fill(&mut entry);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> CachedTable {
        CachedTable {
            digest: [7; 32],
            rows: 5,
            row_bytes: 4,
            table_bytes: 20,
            trust: Trust::Verified,
        }
    }

    /// The page's own example, byte for byte.
    #[test]
    fn the_header_is_the_pages() {
        let hex: String = table()
            .header()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let seven = "07".repeat(32);
        let fields = [
            "474b51524f574300", // magic
            "01000000",         // version
            "01000000",         // trust
            "0500000000000000", // rows
            "1400000000000000", // table_bytes
            "04000000",         // row_bytes
        ];
        assert!(hex.starts_with(&fields.concat()), "{hex}");
        assert_eq!(&hex[128..192], seven);
        assert_eq!(table().map_bytes(), Some(128 + 5 * 16));
        assert_eq!(CachedTable::entry_at(RowId(3)), 128 + 48);
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_refused_with_its_field() {
        let good = table().header();
        assert_eq!(table().check_header(&good), Ok(()));
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let field = table().check_header(&bad).unwrap_err().field;
            let expected = match bit / 8 {
                0..8 => "magic",
                8..12 => "version",
                _ => "check",
            };
            assert_eq!(field, expected, "bit {bit}");
        }
    }

    #[test]
    fn headers_of_other_tables_are_refused_with_the_field_that_differs() {
        let base = table();
        for (other, field) in [
            (
                CachedTable {
                    trust: Trust::Unchecked,
                    ..base
                },
                "trust",
            ),
            (
                CachedTable {
                    row_bytes: 0,
                    ..base
                },
                "row_bytes",
            ),
            (CachedTable { rows: 6, ..base }, "rows"),
            (
                CachedTable {
                    table_bytes: 21,
                    ..base
                },
                "table_bytes",
            ),
            (
                CachedTable {
                    digest: [8; 32],
                    ..base
                },
                "digest",
            ),
        ] {
            assert_eq!(base.check_header(&other.header()).unwrap_err().field, field);
        }
    }

    /// Entries by the page's words, without the code under test.
    #[test]
    fn an_entry_binds_table_trust_index_and_bytes() {
        let context = [&[7_u8; 32][..], &1_u32.to_le_bytes()].concat();
        let key = blake3::derive_key("gkq row cache v1", &context);
        let input = [&3_u64.to_le_bytes()[..], b"abcd"].concat();
        let whole = blake3::keyed_hash(&key, &input);
        let entry = table().entry_key().entry(RowId(3), b"abcd");
        assert_eq!(entry, whole.as_bytes()[..16]);
        let unchecked = CachedTable {
            trust: Trust::Unchecked,
            ..table()
        };
        let other = CachedTable {
            digest: [8; 32],
            ..table()
        };
        for different in [
            table().entry_key().entry(RowId(2), b"abcd"),
            table().entry_key().entry(RowId(3), b"abce"),
            unchecked.entry_key().entry(RowId(3), b"abcd"),
            other.entry_key().entry(RowId(3), b"abcd"),
        ] {
            assert_ne!(entry, different);
        }
    }

    #[test]
    fn a_map_that_no_file_can_hold_has_no_length() {
        let rows = u64::MAX / 8;
        assert_eq!(CachedTable { rows, ..table() }.map_bytes(), None);
    }
}
