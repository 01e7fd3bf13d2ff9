//! Which way each tensor that could come from a row store goes, and why. Pure: what is known of
//! the knot and of the table goes in, a decision with its reason comes out.
//! Specification: the priority order of docs/format/row-store.md. It fetches nothing; the caller
//! asks again when the first reply has told the table's length.

use crate::error::Error;
use serde::Serialize;

/// What the knot says about one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The tensor's name.
    pub tensor: String,
    /// The columnar section, where the tensor is flagged and has one.
    pub table: Option<DeclaredTable>,
    /// Whether the knot holds the dense block itself.
    pub dense: Dense,
}

/// The table that a columnar section declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredTable {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of one row.
    pub row_bytes: u64,
    /// Name of the dtype, `bf16` for example.
    pub dtype: &'static str,
}

/// Whether a dense block is in the knot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dense {
    /// Its payload is in the knot.
    Present,
    /// The knot was packed without it.
    External,
}

/// What is known of the table at `--columnar-embed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Table {
    /// The flag was not given.
    NotAsked,
    /// The flag names the table of another tensor.
    OfAnother {
        /// That tensor.
        tensor: String,
    },
    /// Nothing has been read of it yet.
    Unread {
        /// Its place.
        object: String,
    },
    /// A reply told its length.
    Located {
        /// Its place.
        object: String,
        /// Length of the object in bytes.
        len_bytes: u64,
    },
}

/// The way a tensor went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Rows come from the row store.
    Columnar,
    /// The knot's dense block is used.
    Dense,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resolution {
    /// The tensor.
    pub tensor: String,
    /// Its way.
    pub way: Way,
    /// Why, with numbers.
    pub reason: String,
}

/// Decides for one tensor.
///
/// # Errors
/// [`Error::NoWay`] where neither the row store nor the knot can serve it, with both reasons.
pub fn resolve(declared: &Declared, table: &Table) -> Result<Resolution, Error> {
    let (way, reason) = match (store(declared, table), declared.dense) {
        (Ok(reason), _) => (Way::Columnar, reason),
        (Err(reason), Dense::Present) => (Way::Dense, reason),
        (Err(store), Dense::External) => {
            return Err(Error::NoWay {
                tensor: declared.tensor.clone(),
                store,
                knot: "packed without this tensor's payload".to_owned(),
            });
        }
    };
    Ok(Resolution {
        tensor: declared.tensor.clone(),
        way,
        reason,
    })
}

/// Why the store serves the tensor, or why it does not.
fn store(declared: &Declared, table: &Table) -> Result<String, String> {
    let (object, len_bytes) = match table {
        Table::NotAsked => return Err("--columnar-embed was not given".to_owned()),
        Table::OfAnother { tensor } => {
            return Err(format!("--columnar-embed names the table of {tensor}"));
        }
        Table::Unread { object } => (object, None),
        Table::Located { object, len_bytes } => (object, Some(*len_bytes)),
    };
    let Some(DeclaredTable {
        rows,
        row_bytes,
        dtype,
    }) = declared.table
    else {
        return Err("the knot does not flag this tensor as columnar-eligible".to_owned());
    };
    let expected = rows.checked_mul(row_bytes).ok_or_else(|| {
        format!("the knot declares {rows} rows of {row_bytes} bytes, more than a file can hold")
    })?;
    match len_bytes {
        Some(found) if found != expected => Err(format!(
            "{object} has {found} bytes, the knot declares {rows} rows of {row_bytes} bytes {dtype}, \
             {expected} bytes"
        )),
        Some(_) => Ok(format!(
            "{object} has exactly {rows} rows of {row_bytes} bytes {dtype}, {expected} bytes"
        )),
        None => Ok(format!(
            "{object} is to have {rows} rows of {row_bytes} bytes {dtype}, {expected} bytes; the \
             first reply is checked"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(table: Option<DeclaredTable>, dense: Dense) -> Declared {
        Declared {
            tensor: "model.embed_tokens.weight".to_owned(),
            table,
            dense,
        }
    }

    const TABLE: DeclaredTable = DeclaredTable {
        rows: 100,
        row_bytes: 64,
        dtype: "bf16",
    };

    fn located(len_bytes: u64) -> Table {
        Table::Located {
            object: "https://h/q.rows".to_owned(),
            len_bytes,
        }
    }

    #[test]
    fn an_exact_table_goes_columnar_with_its_numbers() {
        let resolution = resolve(&declared(Some(TABLE), Dense::Present), &located(6400)).unwrap();
        assert_eq!(resolution.way, Way::Columnar);
        for part in ["https://h/q.rows", "100 rows", "64 bytes", "bf16", "6400"] {
            assert!(resolution.reason.contains(part), "{}", resolution.reason);
        }
        let unread = Table::Unread {
            object: "q.rows".to_owned(),
        };
        assert_eq!(
            resolve(&declared(Some(TABLE), Dense::External), &unread)
                .unwrap()
                .way,
            Way::Columnar
        );
    }

    #[test]
    fn each_condition_that_fails_leads_to_the_dense_block() {
        for (table, place, part) in [
            (Some(TABLE), Table::NotAsked, "not given"),
            (None, located(6400), "does not flag"),
            (Some(TABLE), located(6401), "6401"),
            (
                Some(DeclaredTable {
                    rows: u64::MAX,
                    ..TABLE
                }),
                located(1),
                "more than",
            ),
        ] {
            let resolution = resolve(&declared(table, Dense::Present), &place).unwrap();
            assert_eq!(resolution.way, Way::Dense);
            assert!(resolution.reason.contains(part), "{}", resolution.reason);
        }
    }

    #[test]
    fn without_either_way_the_error_has_both_reasons() {
        let error = resolve(&declared(Some(TABLE), Dense::External), &located(1))
            .unwrap_err()
            .to_string();
        for part in [
            "model.embed_tokens.weight",
            "has 1 bytes",
            "6400",
            "packed without",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
