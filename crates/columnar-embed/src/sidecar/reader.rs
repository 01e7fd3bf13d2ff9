//! Reads a sidecar and checks all of it: nothing in the bytes is believed before its rule has held,
//! and nothing larger than they are is allocated. Specification: docs/format/sidecar.md, "Rules".

use super::{
    KindError, PaletteEntry, Sidecar,
    layout::{
        BLOCK_ROWS, BLOCK_TABLE_AT, ENTRY_BYTES, HEADER_BYTES, MAGIC, MAX_KINDS, OFFSET_BYTES,
        PLANE_BYTES, PLANE_WORDS, REQUIRED_FLAGS, VERSION, entry as entry_at, header as at,
    },
    planes_for, rows_of_kind,
};
use crate::{
    Error,
    row_kind::{FloatKind, RowKind},
    row_tree::MAX_ROWS,
};

/// `N` bytes at `offset`; the caller has checked that they are there.
fn read<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; N])
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(read(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(read(bytes, offset))
}

/// `Ok` where a part of the sidecar is what its other parts ask for.
fn same(part: impl FnOnce() -> String, expected: u64, found: u64) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    Err(wrong(part(), expected, found))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "numbers and words, written where they are refused"
)]
fn wrong(part: impl Into<String>, expected: impl ToString, found: impl ToString) -> Error {
    Error::Sidecar {
        part: part.into(),
        expected: expected.to_string(),
        found: found.to_string(),
    }
}

/// The fixed part of a sidecar, checked against itself.
struct Geometry {
    rows: u64,
    cols: u64,
    matrix: FloatKind,
    kinds: usize,
    blocks: usize,
}

impl Sidecar {
    /// Reads a sidecar: exactly `bytes`, no more and no less.
    ///
    /// # Errors
    /// [`Error::SidecarMagic`] for other bytes, [`Error::SidecarUnsupported`] for a version, required
    /// flag or row kind that this version does not know, [`Error::SidecarDigest`] for bytes that
    /// changed, [`Error::Sidecar`] with the first rule that is broken.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let magic = bytes.get(..MAGIC.len()).unwrap_or(bytes);
        if magic != MAGIC {
            return Err(Error::SidecarMagic {
                found: magic.to_vec(),
            });
        }
        if bytes.len() < BLOCK_TABLE_AT {
            let expected = format!("at least {BLOCK_TABLE_AT}");
            return Err(wrong("length in bytes", expected, bytes.len()));
        }
        let blake3 = check_whole(bytes)?;
        let geometry = geometry(bytes)?;
        let palette = palette(bytes, &geometry)?;
        let planes = planes_for(geometry.kinds);
        let (offsets, planes_bytes) = bytes
            .get(BLOCK_TABLE_AT..)
            .unwrap_or_default()
            .split_at(geometry.blocks * OFFSET_BYTES);
        let words_of = |bytes: &[u8]| -> Vec<u64> {
            let (words, _) = bytes.as_chunks::<8>();
            words.iter().map(|word| u64::from_le_bytes(*word)).collect()
        };
        let sidecar = Self {
            rows: geometry.rows,
            cols: usize::try_from(geometry.cols).unwrap_or(usize::MAX),
            matrix: geometry.matrix,
            matrix_row_bytes: row_bytes(geometry.matrix.kind(), geometry.cols)?,
            table_bytes: u64_at(bytes, at::TABLE_BYTES),
            table_blake3: read(bytes, at::TABLE_BLAKE3),
            blake3,
            palette,
            planes,
            offsets: words_of(offsets),
            words: words_of(planes_bytes),
        };
        sidecar.check_rows()?;
        Ok(sidecar)
    }

    /// Every row has a kind of the palette, the bits behind the last row are 0, and every offset is
    /// the sum of the rows before it.
    fn check_rows(&self) -> Result<(), Error> {
        let mut rows_of = [0_u64; MAX_KINDS];
        let mut offset = 0_u64;
        for block in 0..self.offsets.len() {
            same(
                || format!("offset of block {block}"),
                offset,
                self.offsets[block],
            )?;
            let words = self.block_words(block);
            let first = block as u64 * BLOCK_ROWS;
            for word in 0..PLANE_WORDS {
                let row = first + 64 * word as u64;
                let present = match self.rows.saturating_sub(row) {
                    rows @ 0..64 => (1_u64 << rows) - 1,
                    _ => u64::MAX,
                };
                let stray = (0..self.planes)
                    .fold(0, |stray, plane| stray | words[plane * PLANE_WORDS + word])
                    & !present;
                if stray != 0 {
                    let row = row + u64::from(stray.trailing_zeros());
                    return Err(wrong(format!("bits of row {row}, which is none"), 0, 1));
                }
                for (index, rows_of) in rows_of.iter_mut().take(1 << self.planes).enumerate() {
                    let rows = rows_of_kind(words, self.planes, word, index) & present;
                    let Some(entry) = self.palette.get(index) else {
                        if rows == 0 {
                            continue;
                        }
                        let row = row + u64::from(rows.trailing_zeros());
                        let part = format!("palette index of row {row}");
                        let expected = format!("below {}", self.palette.len());
                        return Err(wrong(part, expected, index));
                    };
                    let count = u64::from(rows.count_ones());
                    *rows_of += count;
                    offset = count
                        .checked_mul(entry.row_bytes.into())
                        .and_then(|bytes| offset.checked_add(bytes))
                        .ok_or_else(|| wrong("sum of the rows", "a 64-bit number", "more"))?;
                }
            }
        }
        same(
            || "length of the row file".to_owned(),
            offset,
            self.table_bytes,
        )?;
        for (entry, rows) in self.palette.iter().zip(rows_of) {
            same(|| format!("rows of kind {}", entry.kind), rows, entry.rows)?;
            if rows == 0 {
                let part = format!("rows of kind {}", entry.kind);
                return Err(wrong(part, "at least 1", 0));
            }
        }
        Ok(())
    }
}

/// Version, length and digest: what must hold before any other field is looked at. Gives the digest.
fn check_whole(bytes: &[u8]) -> Result<[u8; 32], Error> {
    let version = u32_at(bytes, at::VERSION);
    if version != VERSION {
        return Err(Error::SidecarUnsupported {
            part: "version",
            found: version.into(),
        });
    }
    let unknown = u32_at(bytes, at::FLAGS) & REQUIRED_FLAGS;
    if unknown != 0 {
        return Err(Error::SidecarUnsupported {
            part: "required flags",
            found: unknown.into(),
        });
    }
    let (expected, found) = (u64_at(bytes, at::SIDECAR_BYTES), bytes.len() as u64);
    same(|| "length in bytes".to_owned(), expected, found)?;
    let (expected, found) = (read(bytes, at::SIDECAR_BLAKE3), digest(bytes));
    if expected != found {
        return Err(Error::SidecarDigest { expected, found });
    }
    Ok(found)
}

/// BLAKE3 of a sidecar without the field that holds it.
pub(super) fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes.get(..at::SIDECAR_BLAKE3).unwrap_or_default());
    hasher.update(bytes.get(HEADER_BYTES..).unwrap_or_default());
    *hasher.finalize().as_bytes()
}

fn geometry(bytes: &[u8]) -> Result<Geometry, Error> {
    let reserved = u64_at(bytes, at::RESERVED);
    same(|| "reserved bytes of the header".to_owned(), 0, reserved)?;
    let (rows, cols) = (u64_at(bytes, at::ROWS), u64_at(bytes, at::COLS));
    if rows == 0 || rows > MAX_ROWS {
        return Err(wrong("rows", format!("1 to {MAX_ROWS}"), rows));
    }
    if cols == 0 {
        return Err(wrong("values of a row", "at least 1", 0));
    }
    let kind = known_kind(u32_at(bytes, at::MATRIX_KIND))?;
    let matrix = FloatKind::from_kind(kind)
        .ok_or_else(|| wrong("element type of the matrix", "f32, f16 or bf16", kind))?;
    let kinds = usize::try_from(u32_at(bytes, at::KINDS)).unwrap_or(usize::MAX);
    if !(1..=MAX_KINDS).contains(&kinds) {
        return Err(wrong("kinds of rows", format!("1 to {MAX_KINDS}"), kinds));
    }
    let expected = sidecar_bytes(rows, kinds);
    same(
        || format!("length in bytes, for {rows} rows of {kinds} kinds,"),
        expected,
        bytes.len() as u64,
    )?;
    // The table of that many blocks is in memory.
    let blocks = usize::try_from(rows.div_ceil(BLOCK_ROWS)).unwrap_or(usize::MAX);
    Ok(Geometry {
        rows,
        cols,
        matrix,
        kinds,
        blocks,
    })
}

/// Length of a sidecar of `rows` rows, at most [`MAX_ROWS`], of `kinds` kinds.
pub(super) fn sidecar_bytes(rows: u64, kinds: usize) -> u64 {
    let block = OFFSET_BYTES as u64 + planes_for(kinds) as u64 * PLANE_BYTES;
    BLOCK_TABLE_AT as u64 + rows.div_ceil(BLOCK_ROWS) * block
}

fn palette(bytes: &[u8], geometry: &Geometry) -> Result<Vec<PaletteEntry>, Error> {
    let (entries, _) = bytes
        .get(HEADER_BYTES..BLOCK_TABLE_AT)
        .unwrap_or_default()
        .as_chunks::<ENTRY_BYTES>();
    let (used, unused) = entries.split_at(geometry.kinds.min(entries.len()));
    if let Some(index) = unused.iter().position(|entry| entry != &[0; ENTRY_BYTES]) {
        let part = format!("palette entry {}", geometry.kinds + index);
        return Err(wrong(part, "unused and zero", "other bytes"));
    }
    let mut palette: Vec<PaletteEntry> = Vec::with_capacity(used.len());
    for entry in used {
        let entry = palette_entry(entry, geometry)?;
        if palette.iter().any(|other| other.kind == entry.kind) {
            return Err(wrong("palette", "each kind once", entry.kind));
        }
        palette.push(entry);
    }
    if let [only] = palette.as_slice()
        && only.kind == geometry.matrix.kind()
    {
        let expected = "another kind than the matrix's, or no sidecar";
        return Err(wrong("palette", expected, only.kind));
    }
    Ok(palette)
}

fn palette_entry(bytes: &[u8; ENTRY_BYTES], geometry: &Geometry) -> Result<PaletteEntry, Error> {
    let kind = known_kind(u32_at(bytes, entry_at::KIND))?;
    if !kind.fits(geometry.matrix) {
        let expected = format!("{0} or fewer bits than {0} has", geometry.matrix.name());
        return Err(wrong("kind of a row", expected, kind));
    }
    let (expected, found) = (
        row_bytes(kind, geometry.cols)?,
        u32_at(bytes, entry_at::ROW_BYTES),
    );
    same(
        || format!("row_bytes of kind {kind}"),
        expected.into(),
        found.into(),
    )?;
    let figure = |offset, name| {
        let value = f64::from_le_bytes(read(bytes, offset));
        if value.is_finite() && !value.is_sign_negative() {
            return Ok(value);
        }
        let part = format!("{name} error of kind {kind}");
        Err(wrong(part, "finite and not negative", value))
    };
    Ok(PaletteEntry {
        kind,
        row_bytes: found,
        rows: u64_at(bytes, entry_at::ROWS),
        error: KindError {
            largest: figure(entry_at::LARGEST_ERROR, "largest")?,
            relative: figure(entry_at::RELATIVE_ERROR, "relative")?,
        },
    })
}

fn known_kind(code: u32) -> Result<RowKind, Error> {
    RowKind::from_code(code).ok_or(Error::SidecarUnsupported {
        part: "row kind",
        found: code.into(),
    })
}

/// Bytes of a row of `cols` values.
pub(super) fn row_bytes(kind: RowKind, cols: u64) -> Result<u32, Error> {
    kind.row_bytes(cols).ok_or_else(|| {
        wrong(
            format!("bytes of a row of {cols} {kind}"),
            "32 bits",
            "more",
        )
    })
}
