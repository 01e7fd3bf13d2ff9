//! A manifest: the small mutable object that names a published model's knot and rows. Text and its own
//! place in, places of the objects out; it opens nothing and keeps nothing. Specification:
//! docs/format/manifest.md; its writer is `fat-origin publish`.

use crate::error::Error;
use crate::locator::Locator;
use gkq_v2::Knot;
use serde::Deserialize;
use std::fmt;

/// Longest manifest that is read, in bytes. One of a single model takes about 1 KB.
pub const MAX_BYTES: u64 = 64 * 1024;

/// What the field `format` says.
const FORMAT: &str = "fat-station manifest";
/// The only version there is.
const VERSION: u64 = 1;
/// Longest name of an object, in bytes: what file systems allow.
const MAX_NAME_BYTES: usize = 255;
/// Longest name of a model that is shown, in characters.
const MAX_MODEL_NAME_CHARS: usize = 256;

/// One version of a published model. A station reads it once and stays with it: what it names never
/// changes, whatever replaces the manifest meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    place: String,
    /// The model's name, for people.
    pub name: String,
    /// The knot.
    pub knot: KnotObject,
    /// The row table; absent where the knot's own block is the table.
    pub rows: Option<RowObject>,
}

/// An object that the manifest names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its place: the manifest's folder.
    pub locator: Locator,
    /// Its length in bytes.
    pub bytes: u64,
    /// BLAKE3 of the whole of it.
    pub blake3: [u8; 32],
}

/// The knot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnotObject {
    /// The object.
    pub object: Object,
    /// Length of its front in bytes: one range that opens it.
    pub front_bytes: u64,
    /// The front's digest, as [`Knot::front_blake3`] has it.
    pub front_blake3: [u8; 32],
}

/// The row table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowObject {
    /// The object.
    pub object: Object,
    /// The tensor whose rows they are.
    pub tensor: String,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of one row of the matrix.
    pub row_bytes: u64,
    /// Element type of the matrix, `bf16` for example.
    pub dtype: String,
    /// Where each row lies, for rows of several kinds; the knot has a copy.
    pub sidecar: Option<Object>,
}

impl Manifest {
    /// Whether `bytes`, the whole of a small object, are to be read as a manifest: JSON that says so,
    /// of any version.
    #[must_use]
    pub fn is_manifest(bytes: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Head {
            format: String,
        }
        bytes.len() as u64 <= MAX_BYTES
            && serde_json::from_slice::<Head>(bytes).is_ok_and(|head| head.format == FORMAT)
    }

    /// Reads the manifest `bytes` that lie at `place`.
    ///
    /// # Errors
    /// [`Error::Config`] with the field that is missing or cannot be, what was expected and found.
    pub fn parse(bytes: &[u8], place: &Locator) -> Result<Self, Error> {
        let refused = |reason: String| Error::config(format!("manifest {place}: {reason}"));
        if bytes.len() as u64 > MAX_BYTES {
            let found = bytes.len();
            return Err(refused(format!(
                "{found} bytes, at most {MAX_BYTES} are read"
            )));
        }
        // Head first: another version's other fields are not to be complained of.
        let head: wire::Head =
            serde_json::from_slice(bytes).map_err(|error| refused(error.to_string()))?;
        if head.format != FORMAT {
            let found = Shown(&head.format);
            return Err(refused(format!("format is {found}, expected `{FORMAT}`")));
        }
        if head.version != VERSION {
            return Err(refused(format!(
                "version is {}, this station reads {VERSION}; a newer one reads it",
                head.version
            )));
        }
        let text: wire::Manifest =
            serde_json::from_slice(bytes).map_err(|error| refused(error.to_string()))?;
        let names = Names { place };
        Ok(Self {
            place: place.to_string(),
            name: text
                .name
                .chars()
                .filter(|character| !character.is_control())
                .take(MAX_MODEL_NAME_CHARS)
                .collect(),
            knot: names.knot(&text.knot).map_err(refused)?,
            rows: match &text.rows {
                Some(rows) => Some(names.rows(rows).map_err(refused)?),
                None => None,
            },
        })
    }

    /// The object that rows are read from: the row table, or the knot where it holds them.
    #[must_use]
    pub fn rows_locator(&self) -> &Locator {
        match &self.rows {
            Some(rows) => &rows.object.locator,
            None => &self.knot.object.locator,
        }
    }

    /// Whether the object at `rows` is the row table of this manifest, by its name: a folder may hold
    /// the objects of several manifests.
    #[must_use]
    pub fn names_rows(&self, rows: &Locator) -> bool {
        let name = rows.file_name();
        !name.is_empty() && self.rows_locator().file_name() == name
    }

    /// Whether the object at `knot` is the knot of this manifest, by its name.
    #[must_use]
    pub fn names_knot(&self, knot: &Locator) -> bool {
        let name = knot.file_name();
        !name.is_empty() && self.knot.object.locator.file_name() == name
    }

    /// Compares an opened knot with what the manifest says of it and of its row table. With that the
    /// chain is closed: the front's digest covers the digests of all blocks and the root of the row
    /// tree, and those cover the rest.
    ///
    /// # Errors
    /// [`Error::Published`] with the first fact that differs.
    pub fn check_knot(&self, knot: &Knot) -> Result<(), Error> {
        let object = &self.knot.object.locator;
        let same = |fact: &'static str, expected: &dyn fmt::Display, found: &dyn fmt::Display| {
            let (expected, found) = (expected.to_string(), found.to_string());
            if expected == found {
                return Ok(());
            }
            Err(Error::Published {
                manifest: self.place.clone(),
                object: object.to_string(),
                fact,
                expected,
                found,
            })
        };
        same(
            "length in bytes",
            &self.knot.object.bytes,
            &knot.object_bytes(),
        )?;
        same(
            "length of its front in bytes",
            &self.knot.front_bytes,
            &knot.front_bytes(),
        )?;
        let hex = blake3::Hash::from_bytes;
        same(
            "BLAKE3 of its front",
            &hex(self.knot.front_blake3),
            &hex(knot.front_blake3()),
        )?;
        let Some(rows) = &self.rows else {
            return Ok(());
        };
        let table = knot
            .block(&rows.tensor)
            .and_then(|block| block.columnar.as_ref());
        let Some(table) = table else {
            return same(
                "columnar-eligible tensor",
                &rows.tensor,
                &"none of that name",
            );
        };
        same("number of rows", &rows.rows, &table.rows)?;
        same("bytes of a row", &rows.row_bytes, &table.row_bytes)?;
        same("element type of the rows", &rows.dtype, &table.dtype.name())?;
        if table.row_sidecar.is_some() {
            // Rows of several kinds: the sidecar names the length and digest of their file.
            return Ok(());
        }
        let table_bytes = table.rows.saturating_mul(table.row_bytes.into());
        same(
            "length of the rows in bytes",
            &rows.object.bytes,
            &table_bytes,
        )?;
        same(
            "BLAKE3 of the rows",
            &hex(rows.object.blake3),
            &hex(table.rows_blake3),
        )
    }
}

/// Turns what the text says into places and numbers that can be.
struct Names<'a> {
    place: &'a Locator,
}

impl Names<'_> {
    fn object(&self, field: &str, text: &wire::Object) -> Result<Object, String> {
        check_name(&text.object)
            .map_err(|reason| format!("{field}.object is {}: {reason}", Shown(&text.object)))?;
        if text.bytes == 0 {
            return Err(format!("{field}.bytes is 0: no such object is empty"));
        }
        Ok(Object {
            locator: self.place.below(&text.object),
            bytes: text.bytes,
            blake3: digest(field, "blake3", &text.blake3)?,
        })
    }

    fn knot(&self, text: &wire::Knot) -> Result<KnotObject, String> {
        let object = self.object("knot", &text.object)?;
        if text.front_bytes == 0 || text.front_bytes > object.bytes {
            return Err(format!(
                "knot.front_bytes is {}, expected 1 to knot.bytes, {}",
                text.front_bytes, object.bytes
            ));
        }
        Ok(KnotObject {
            front_bytes: text.front_bytes,
            front_blake3: digest("knot", "front_blake3", &text.front_blake3)?,
            object,
        })
    }

    fn rows(&self, text: &wire::Rows) -> Result<RowObject, String> {
        let object = self.object("rows", &text.object)?;
        let sidecar = text.sidecar.as_ref();
        let sidecar = sidecar
            .map(|sidecar| self.object("rows.sidecar", sidecar))
            .transpose()?;
        if text.rows == 0 || text.row_bytes == 0 {
            return Err(format!(
                "rows.rows is {} and rows.row_bytes {}, expected at least 1",
                text.rows, text.row_bytes
            ));
        }
        Ok(RowObject {
            object,
            tensor: text.tensor.clone(),
            rows: text.rows,
            row_bytes: text.row_bytes,
            dtype: text.dtype.clone(),
            sidecar,
        })
    }
}

/// A name that is a file of the manifest's folder on every system and in every URL, and nothing else:
/// no path, no scheme, no query, nothing that has to be encoded.
fn check_name(name: &str) -> Result<(), &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() {
        return Err("expected a file name");
    }
    if name.len() > MAX_NAME_BYTES {
        return Err("a file name has at most 255 bytes");
    }
    if name.starts_with('.') {
        return Err("a file name must not begin with a dot");
    }
    if !name.bytes().all(plain) {
        return Err(
            "expected a file in the manifest's own folder: letters, digits, `.`, `_` and `-` alone",
        );
    }
    Ok(())
}

fn digest(entry: &str, field: &str, text: &str) -> Result<[u8; 32], String> {
    let hash = blake3::Hash::from_hex(text);
    hash.map(|hash| *hash.as_bytes()).map_err(|_not_hex| {
        format!(
            "{entry}.{field} is {}, expected 64 hexadecimal digits",
            Shown(text)
        )
    })
}

/// A text of the manifest as it may be shown: short, printable, without secrets.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What could be a query is not shown, whether or not the rest is a URL.
        let text = self.0.split(['?', '#']).next().unwrap_or_default();
        let text: String = text
            .chars()
            .filter(|character| !character.is_control())
            .take(80)
            .collect();
        write!(formatter, "`{}`", crate::locator::redacted(&text))
    }
}

/// The JSON as it is written; unknown fields are ignored.
mod wire {
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(super) struct Head {
        pub(super) format: String,
        pub(super) version: u64,
    }

    #[derive(Deserialize)]
    pub(super) struct Manifest {
        #[serde(default)]
        pub(super) name: String,
        pub(super) knot: Knot,
        pub(super) rows: Option<Rows>,
    }

    #[derive(Deserialize)]
    pub(super) struct Object {
        pub(super) object: String,
        pub(super) bytes: u64,
        pub(super) blake3: String,
    }

    #[derive(Deserialize)]
    pub(super) struct Knot {
        #[serde(flatten)]
        pub(super) object: Object,
        pub(super) front_bytes: u64,
        pub(super) front_blake3: String,
    }

    #[derive(Deserialize)]
    pub(super) struct Rows {
        #[serde(flatten)]
        pub(super) object: Object,
        pub(super) tensor: String,
        pub(super) rows: u64,
        pub(super) row_bytes: u64,
        pub(super) dtype: String,
        pub(super) sidecar: Option<Object>,
    }
}

#[cfg(test)]
mod tests;
