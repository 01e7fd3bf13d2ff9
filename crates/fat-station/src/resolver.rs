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
    /// How its rows are stored.
    pub kinds: RowKinds,
}

/// Whether rows are stored as the matrix has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKinds {
    /// All of them are, at one stride.
    One,
    /// A sidecar says how each row is stored and where it lies.
    Several,
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
    /// Its rows were found.
    Located {
        /// Its place.
        object: String,
        /// What was found there.
        table: LocatedTable,
    },
    /// It was looked into, and holds no such table.
    Unfit {
        /// Its place.
        object: String,
        /// Why, with numbers.
        reason: String,
    },
}

/// A table that was found in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedTable {
    /// What the object is: `bare rows`, `safetensors`.
    pub container: String,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of one row.
    pub row_bytes: u64,
    /// Name of the dtype, `bf16` for example.
    pub dtype: &'static str,
    /// Offset of row 0 in the object.
    pub base_bytes: u64,
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
    let not_asked = match table {
        Table::NotAsked => Some("--columnar-embed was not given".to_owned()),
        Table::OfAnother { tensor } => {
            Some(format!("--columnar-embed names the table of {tensor}"))
        }
        Table::Unread { .. } | Table::Located { .. } | Table::Unfit { .. } => None,
    };
    if let Some(reason) = not_asked {
        return Err(reason);
    }
    let Some(DeclaredTable {
        rows,
        row_bytes,
        dtype,
        kinds,
    }) = declared.table
    else {
        return Err("the knot does not flag this tensor as columnar-eligible".to_owned());
    };
    let expected = rows.checked_mul(row_bytes).ok_or_else(|| {
        format!("the knot declares {rows} rows of {row_bytes} bytes, more than a file can hold")
    })?;
    let stored = match kinds {
        RowKinds::One => "",
        RowKinds::Several => ", stored in several kinds",
    };
    let declared = format!("{rows} rows of {row_bytes} bytes {dtype}, {expected} bytes{stored}");
    match table {
        Table::Located { object, table } => {
            let found = format!(
                "{} rows of {} bytes {} at {}",
                table.rows, table.row_bytes, table.dtype, table.base_bytes
            );
            if (table.rows, table.row_bytes, table.dtype) == (rows, row_bytes, dtype) {
                return Ok(format!(
                    "{object} ({}) has exactly {declared} at {}",
                    table.container, table.base_bytes
                ));
            }
            Err(format!(
                "{object} ({}) has {found}, the knot declares {declared}",
                table.container
            ))
        }
        Table::Unfit { object, reason } => Err(format!(
            "{object} is no row table of this model: {reason}; the knot declares {declared}"
        )),
        Table::Unread { object } => Ok(format!(
            "{object} is to have {declared}; the first reply is checked"
        )),
        Table::NotAsked | Table::OfAnother { .. } => Err(String::new()),
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
        kinds: RowKinds::One,
    };

    fn located(rows: u64) -> Table {
        Table::Located {
            object: "https://h/q.rows".to_owned(),
            table: LocatedTable {
                container: "GGUF".to_owned(),
                rows,
                row_bytes: 64,
                dtype: "bf16",
                base_bytes: 4096,
            },
        }
    }

    fn unfit() -> Table {
        Table::Unfit {
            object: "https://h/q.rows".to_owned(),
            reason: "it has 1 bytes".to_owned(),
        }
    }

    #[test]
    fn an_exact_table_goes_columnar_with_its_numbers() {
        let resolution = resolve(&declared(Some(TABLE), Dense::Present), &located(100)).unwrap();
        assert_eq!(resolution.way, Way::Columnar);
        for part in [
            "https://h/q.rows",
            "GGUF",
            "100 rows",
            "64 bytes",
            "bf16",
            "6400",
            "at 4096",
        ] {
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
            (None, located(100), "does not flag"),
            (Some(TABLE), located(101), "has 101 rows"),
            (Some(TABLE), unfit(), "it has 1 bytes"),
            (
                Some(DeclaredTable {
                    dtype: "f16",
                    ..TABLE
                }),
                located(100),
                "64 bytes bf16 at 4096, the knot declares 100 rows of 64 bytes f16",
            ),
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
        let error = resolve(&declared(Some(TABLE), Dense::External), &unfit())
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
