//! The body of a `sketch` section: a matrix of few components that stands in for rows that cannot be
//! had, with its measured error. It reads and writes bytes and approximates one row; it decomposes
//! nothing. Specification: `docs/format/embed-sketch.md`.

mod layout;

use crate::error::{Error, Place};
use crate::num::length;
use crate::section::SectionKind;
use layout as at;

/// How far a sketch's rows are from the rows they stand for, as whoever made it measured over all
/// of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SketchError {
    /// `|W - W'| / |W|`, Frobenius: 0 is exact, 1 as wrong as zeros.
    pub relative: f64,
    /// Mean over the rows of the cosine between a row and its approximation: 1 is the same direction.
    /// A row without length counts as 1 where its approximation has none either, else as 0.
    pub mean_cosine: f64,
    /// The least of these cosines.
    pub worst_cosine: f32,
    /// The row that has it.
    pub worst_row: u32,
}

/// Dimensions and error of a sketch: its first 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SketchHeader {
    /// Rows of the matrix.
    pub rows: u64,
    /// Columns of the matrix.
    pub cols: u32,
    /// Components, at most `cols`.
    pub rank: u32,
    /// How far it is from the matrix.
    pub error: SketchError,
}

/// A checked sketch over its bytes.
#[derive(Clone, Debug)]
pub struct EmbedSketch<B> {
    header: SketchHeader,
    bytes: B,
    row_bytes: usize,
    components: Vec<f32>,
}

impl SketchHeader {
    /// Bytes of the header.
    pub const BYTES: usize = at::HEADER_BYTES;

    /// Bytes of a whole sketch of these dimensions, or `None` where they overflow.
    pub fn sketch_bytes(&self) -> Option<u64> {
        let (cols, rank) = (u64::from(self.cols), u64::from(self.rank));
        let components = rank.checked_mul(cols)?.checked_mul(at::COMPONENT_BYTES)?;
        let rows = self
            .rows
            .checked_mul(rank.checked_add(length(at::SCALE_BYTES))?)?;
        length(at::HEADER_BYTES)
            .checked_add(components)?
            .checked_add(rows)
    }

    /// Reads the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`Error::Truncated`] for fewer than [`Self::BYTES`], [`Error::Contradiction`] for what is no
    /// sketch, [`Error::UnknownCode`] for another version or form, otherwise the field that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let record: &[u8; at::HEADER_BYTES] = bytes.first_chunk().ok_or(Error::Truncated {
            needed_bytes: length(at::HEADER_BYTES),
            found_bytes: length(bytes.len()),
        })?;
        if at::MAGIC_AT.read(record) != at::MAGIC {
            return Err(Error::Contradiction {
                place: place(),
                rule: "does not begin with the magic of a sketch",
            });
        }
        for (field, known, code) in [
            ("version", at::VERSION, at::VERSION_AT.u32(record)),
            ("form", at::FORM_F32_I8, at::FORM.u32(record)),
        ] {
            if code != known {
                return Err(Error::UnknownCode {
                    place: place(),
                    field,
                    code,
                });
            }
        }
        if at::RESERVED.u64(record) != 0 {
            return Err(Error::ReservedNotZero {
                place: place(),
                field: "reserved",
            });
        }
        let header = Self {
            rows: at::ROWS.u64(record),
            cols: at::COLS.u32(record),
            rank: at::RANK.u32(record),
            error: SketchError {
                relative: f64::from_bits(at::RELATIVE_ERROR.u64(record)),
                mean_cosine: f64::from_bits(at::MEAN_COSINE.u64(record)),
                worst_cosine: f32::from_bits(at::WORST_COSINE.u32(record)),
                worst_row: at::WORST_ROW.u32(record),
            },
        };
        header.check()?;
        Ok(header)
    }

    /// The rules that a header keeps, whoever made it.
    fn check(&self) -> Result<(), Error> {
        let dimensions = [
            ("rows", self.rows),
            ("cols", u64::from(self.cols)),
            ("rank", u64::from(self.rank)),
        ];
        if let Some((field, _)) = dimensions.into_iter().find(|(_, number)| *number == 0) {
            return Err(Error::Empty {
                place: place(),
                field,
            });
        }
        let limits = [
            ("rank", u64::from(self.rank), u64::from(self.cols)),
            (
                "worst_row",
                u64::from(self.error.worst_row),
                self.rows.saturating_sub(1),
            ),
        ];
        for (field, found, limit) in limits {
            if found > limit {
                return Err(Error::Limit {
                    place: place(),
                    field,
                    found,
                    limit,
                });
            }
        }
        let (cosine, distance) = (
            (-1.0, 1.0, "-1 to 1"),
            (0.0, f64::MAX, "a finite number from 0"),
        );
        for (field, found, (least, most, range)) in [
            ("relative_error", self.error.relative, distance),
            ("mean_cosine", self.error.mean_cosine, cosine),
            ("worst_cosine", f64::from(self.error.worst_cosine), cosine),
        ] {
            // Not a number is in no range.
            if !(least..=most).contains(&found) {
                return Err(Error::SketchFigure {
                    place: place(),
                    field,
                    range,
                    found,
                });
            }
        }
        Ok(())
    }

    /// The first bytes of a sketch.
    ///
    /// # Errors
    /// For dimensions and figures that no sketch has.
    pub fn encode(&self) -> Result<[u8; Self::BYTES], Error> {
        self.check()?;
        let mut record = [0; at::HEADER_BYTES];
        at::MAGIC_AT.write(&mut record, at::MAGIC);
        at::VERSION_AT.write(&mut record, at::VERSION.to_le_bytes());
        at::FORM.write(&mut record, at::FORM_F32_I8.to_le_bytes());
        at::ROWS.write(&mut record, self.rows.to_le_bytes());
        at::COLS.write(&mut record, self.cols.to_le_bytes());
        at::RANK.write(&mut record, self.rank.to_le_bytes());
        at::RELATIVE_ERROR.write(&mut record, self.error.relative.to_le_bytes());
        at::MEAN_COSINE.write(&mut record, self.error.mean_cosine.to_le_bytes());
        at::WORST_COSINE.write(&mut record, self.error.worst_cosine.to_le_bytes());
        at::WORST_ROW.write(&mut record, self.error.worst_row.to_le_bytes());
        Ok(record)
    }
}

impl<B: AsRef<[u8]>> EmbedSketch<B> {
    /// Checks a sketch of a matrix `[rows, cols]`; its digest is the caller's matter.
    ///
    /// # Errors
    /// Those of [`SketchHeader::parse`]; [`Error::Mismatch`] where it is not a sketch of that matrix
    /// or has not the length of its dimensions; [`Error::Contradiction`] for a component value and
    /// [`Error::SketchScale`] for a row's scale that is not finite.
    pub fn parse(bytes: B, rows: u64, cols: u64) -> Result<Self, Error> {
        let header = SketchHeader::parse(bytes.as_ref())?;
        let expected_bytes = header.sketch_bytes().unwrap_or(u64::MAX);
        for (field, expected, found) in [
            ("rows", rows, header.rows),
            ("cols", cols, u64::from(header.cols)),
            ("body_bytes", expected_bytes, length(bytes.as_ref().len())),
        ] {
            if expected != found {
                return Err(Error::Mismatch {
                    place: place(),
                    field,
                    expected,
                    found,
                });
            }
        }
        // The length was found to be that of the dimensions, so they fit a `usize`.
        let (rank, cols) = (size(header.rank), size(header.cols));
        let values = rank.saturating_mul(cols);
        let (_, rest) = bytes
            .as_ref()
            .split_at_checked(at::HEADER_BYTES)
            .unwrap_or_default();
        let components: Vec<f32> = rest
            .as_chunks()
            .0
            .iter()
            .take(values)
            .map(|value| f32::from_le_bytes(*value))
            .collect();
        if !components.iter().all(|value| value.is_finite()) {
            return Err(Error::Contradiction {
                place: place(),
                rule: "a component holds a value that is not finite",
            });
        }
        let sketch = Self {
            header,
            bytes,
            row_bytes: rank.saturating_add(at::SCALE_BYTES),
            components,
        };
        for row in 0..sketch.header.rows {
            match sketch.coefficients(row) {
                Some((found, _)) if !found.is_finite() => {
                    return Err(Error::SketchScale {
                        place: place(),
                        row,
                        found,
                    });
                }
                _ => {}
            }
        }
        Ok(sketch)
    }

    /// Dimensions and error.
    pub fn header(&self) -> &SketchHeader {
        &self.header
    }

    /// The approximation of row `row`, `[cols]`; `None` for a row that the matrix has not.
    pub fn row(&self, row: u64) -> Option<Vec<f32>> {
        let (scale, coefficients) = self.coefficients(row)?;
        let mut values = vec![0.0; size(self.header.cols)];
        let components = self.components.chunks_exact(values.len());
        for (&coefficient, component) in coefficients.iter().zip(components) {
            let factor = scale * f32::from(i8::from_le_bytes([coefficient]));
            for (value, part) in values.iter_mut().zip(component) {
                *value += factor * part;
            }
        }
        Some(values)
    }

    /// Scale and stored coefficients of a row.
    fn coefficients(&self, row: u64) -> Option<(f32, &[u8])> {
        if row >= self.header.rows {
            return None;
        }
        let components = self.components.len().checked_mul(4)?;
        let begin = at::HEADER_BYTES
            .checked_add(components)?
            .checked_add(usize::try_from(row).ok()?.checked_mul(self.row_bytes)?)?;
        let bytes = self.bytes.as_ref();
        let bytes = bytes.get(begin..begin.checked_add(self.row_bytes)?)?;
        let (scale, coefficients) = bytes.split_first_chunk()?;
        Some((f32::from_le_bytes(*scale), coefficients))
    }
}

/// Appends a row's coefficients, one for each component, to `out`: a scale and an i8 each, rounded
/// to the nearest. Values that are not finite count as 0.
pub fn push_sketch_row(coefficients: &[f32], out: &mut Vec<u8>) {
    let finite = |value: f32| if value.is_finite() { value } else { 0.0 };
    let largest = coefficients
        .iter()
        .fold(0.0_f32, |largest, &value| largest.max(finite(value).abs()));
    let scale = largest / f32::from(i8::MAX);
    out.extend_from_slice(&scale.to_le_bytes());
    out.extend(coefficients.iter().map(|&value| {
        let steps = if scale > 0.0 {
            finite(value) / scale
        } else {
            0.0
        };
        nearest(steps).to_le_bytes()[0]
    }));
}

/// The nearest whole number, at most 127 away from 0.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "the value is within the range of an i8; a cast of a float saturates"
)]
fn nearest(steps: f32) -> i8 {
    steps.round().clamp(-127.0, 127.0) as i8
}

/// A dimension in memory. Where it does not fit, the bytes that it stands for were not there either.
fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn place() -> Place {
    Place::Section {
        kind: SectionKind::Sketch,
        tensor: None,
    }
}

#[cfg(test)]
mod tests;
