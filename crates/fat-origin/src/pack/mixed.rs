//! Rows of the vocabulary matrix in the kinds of a mix: each source row is encoded for the row file and
//! widened for the knot's block, so that both hold the same values, and what that cost is measured.

use std::fmt;
use std::path::PathBuf;

use columnar_embed::{KindError, PaletteEntry, RowKind, Sidecar, Unrepresentable};
use low_bit_kernels::{WeightType, dequantise_row};
use serde::Serialize;

use super::convert::weight_type;
use super::embed_mix::Assignment;
use super::selection::Selected;
use crate::Error;

/// What a mix made of the vocabulary matrix.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MixReport {
    /// The sidecar, which says where each row of the row file lies.
    pub sidecar: PathBuf,
    /// Its length.
    pub sidecar_bytes: u64,
    /// Rows that are not stored as the matrix has them.
    pub converted_rows: u64,
    /// The largest absolute difference of a value of these rows to the checkpoint.
    pub largest_error: f64,
    /// Frobenius norm of these differences over that of the checkpoint's values, over these rows.
    pub relative_error: f64,
    /// The rows by kind.
    pub kinds: Vec<KindReport>,
}

/// The rows of one kind.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KindReport {
    /// The kind's name.
    pub kind: &'static str,
    /// Rows.
    pub rows: u64,
    /// Bytes of one row.
    pub row_bytes: u32,
    /// Largest absolute difference to the checkpoint.
    pub largest_error: f64,
    /// Relative difference, as in [`MixReport::relative_error`].
    pub relative_error: f64,
}

impl From<&PaletteEntry> for KindReport {
    fn from(entry: &PaletteEntry) -> Self {
        Self {
            kind: entry.kind.name(),
            rows: entry.rows,
            row_bytes: entry.row_bytes,
            largest_error: entry.error.largest,
            relative_error: entry.error.relative,
        }
    }
}

impl fmt::Display for KindReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:<9} {:>9} rows of {:>5} bytes, largest error {:.3e}, relative error {:.3e}",
            self.kind, self.rows, self.row_bytes, self.largest_error, self.relative_error
        )
    }
}

/// One row, twice.
#[derive(Debug)]
pub(super) struct MixedRow {
    pub(super) kind: RowKind,
    /// As the row file has it.
    pub(super) stored: Vec<u8>,
    /// As the knot's block has it.
    pub(super) wide: Vec<u8>,
}

/// Encodes rows in order.
#[derive(Debug)]
pub(super) struct RowMixer<'a> {
    selected: &'a Selected,
    assignment: &'a Assignment,
    source: WeightType,
    source_row_bytes: usize,
    cols: usize,
    next_row: u64,
    /// For each kind of the palette.
    costs: Vec<Cost>,
}

/// Sums over the rows of one kind. They are added in the order of the rows, so they are the same
/// wherever the matrix is packed.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    largest: f64,
    squared_error: f64,
    squared_value: f64,
}

impl Cost {
    fn plus(self, other: &Self) -> Self {
        Self {
            largest: self.largest.max(other.largest),
            squared_error: self.squared_error + other.squared_error,
            squared_value: self.squared_value + other.squared_value,
        }
    }

    fn error(&self) -> KindError {
        let relative = if self.squared_value > 0.0 {
            (self.squared_error / self.squared_value).sqrt()
        } else {
            0.0
        };
        KindError {
            largest: self.largest,
            relative,
        }
    }
}

impl<'a> RowMixer<'a> {
    pub(super) fn new(selected: &'a Selected, assignment: &'a Assignment) -> Result<Self, Error> {
        let cols = selected.shape.last().copied().unwrap_or(0);
        let refuse = || Error::Option {
            option: "--embed-mix",
            reason: format!(
                "tensor `{}`: a row of {cols} values of {} cannot be converted",
                selected.name, selected.source
            ),
        };
        let row_bytes = selected.source.row_bytes(cols);
        Ok(Self {
            selected,
            assignment,
            source: weight_type(selected.source).ok_or_else(refuse)?,
            source_row_bytes: row_bytes
                .and_then(|bytes| usize::try_from(bytes).ok())
                .filter(|&bytes| bytes > 0)
                .ok_or_else(refuse)?,
            cols: usize::try_from(cols).map_err(|_too_large| refuse())?,
            next_row: 0,
            costs: vec![Cost::default(); assignment.palette.len()],
        })
    }

    /// Encodes whole rows of the source and hands them on in order.
    pub(super) fn encode(
        &mut self,
        rows: &[u8],
        mut sink: impl FnMut(MixedRow) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut values = vec![0.0; self.cols];
        let mut back = vec![0.0; self.cols];
        for row in rows.chunks_exact(self.source_row_bytes) {
            let mixed = self.row(row, &mut values, &mut back)?;
            sink(mixed)?;
            self.next_row += 1;
        }
        Ok(())
    }

    /// The account of a finished sidecar. Its path is known when it is published.
    pub(super) fn report(&self, sidecar: &Sidecar, sidecar_bytes: u64) -> MixReport {
        let own = self.assignment.matrix.kind();
        let kinds = sidecar.palette().iter().map(KindReport::from);
        let converted = self.assignment.palette.iter().zip(&self.costs);
        let converted = converted.filter(|(kind, _)| **kind != own);
        let cost = converted.fold(Cost::default(), |sum, (_, cost)| sum.plus(cost));
        let rows = sidecar.palette().iter().filter(|entry| entry.kind != own);
        MixReport {
            sidecar: PathBuf::new(),
            sidecar_bytes,
            converted_rows: rows.map(|entry| entry.rows).sum(),
            largest_error: cost.largest,
            relative_error: cost.error().relative,
            kinds: kinds.collect(),
        }
    }

    /// The largest difference of any row.
    pub(super) fn largest_error(&self) -> f64 {
        self.costs
            .iter()
            .fold(0.0, |most, cost| most.max(cost.largest))
    }

    /// What each kind of the palette cost so far.
    pub(super) fn errors(&self) -> Vec<KindError> {
        self.costs.iter().map(Cost::error).collect()
    }

    fn row(&mut self, row: &[u8], values: &mut [f32], back: &mut [f32]) -> Result<MixedRow, Error> {
        let matrix = self.assignment.matrix;
        let kind = self.assignment.kind(self.next_row);
        let kind = kind.unwrap_or(matrix.kind());
        if kind == matrix.kind() && self.selected.source == self.selected.target {
            return Ok(MixedRow {
                kind,
                stored: row.to_vec(),
                wide: row.to_vec(),
            });
        }
        dequantise_row(self.source, row, values).map_err(|error| Error::Option {
            option: "--embed-mix",
            reason: format!("tensor `{}` to {kind}: {error}", self.selected.name),
        })?;
        let stored = kind
            .encode(values)
            .map_err(|refused| self.refused(kind, refused))?;
        let wide = kind.widen(&stored, matrix, self.cols);
        matrix.kind().decode(&wide, back);
        self.measure(kind, values, back)?;
        Ok(MixedRow { kind, stored, wide })
    }

    fn measure(&mut self, kind: RowKind, values: &[f32], back: &[f32]) -> Result<(), Error> {
        let index = self
            .assignment
            .palette
            .iter()
            .position(|&other| other == kind);
        let mut cost = index
            .and_then(|index| self.costs.get(index).copied())
            .unwrap_or_default();
        for (column, (&value, &stored)) in values.iter().zip(back).enumerate() {
            if !stored.is_finite() {
                return Err(self.refused(kind, Unrepresentable { column, value }));
            }
            let error = (f64::from(value) - f64::from(stored)).abs();
            cost.largest = cost.largest.max(error);
            cost.squared_error += error * error;
            cost.squared_value += f64::from(value) * f64::from(value);
        }
        if let Some(place) = index.and_then(|index| self.costs.get_mut(index)) {
            *place = cost;
        }
        Ok(())
    }

    fn refused(&self, kind: RowKind, refused: Unrepresentable) -> Error {
        let (tensor, row) = (self.selected.name.clone(), self.next_row);
        let (column, value) = (refused.column as u64, refused.value);
        if value.is_finite() {
            return Error::ConversionOverflow {
                tensor,
                row,
                column,
                value,
                dtype: kind.name(),
            };
        }
        Error::NotFinite {
            tensor,
            row,
            column,
            value,
        }
    }
}

#[cfg(test)]
mod tests {
    use columnar_embed::RowKind;
    use gkq_v2::Dtype;

    use super::RowMixer;
    use crate::Error;
    use crate::checkpoint::{StoredDtype, Tensor};
    use crate::pack::embed_mix::EmbedMix;
    use crate::pack::selection::Selected;

    fn selected(source: Dtype, target: Dtype) -> Selected {
        let tensor = Tensor {
            name: "w".to_owned(),
            dtype: StoredDtype::Known(source),
            shape: vec![3, 2],
            file: 0,
            range: 0..0,
        };
        Selected {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            tensor,
            source,
            target,
        }
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    #[test]
    fn a_row_is_stored_in_its_kind_and_widened_for_the_block() {
        let selected = selected(Dtype::F32, Dtype::F32);
        let mix: EmbedMix = "fp8_e4m3=1..2,int8=2..3".parse().unwrap();
        let assignment = mix.assign(Dtype::F32, &[0, 1, 2]).unwrap();
        let mut mixer = RowMixer::new(&selected, &assignment).unwrap();
        let mut rows = Vec::new();
        let source = bytes(&[0.1, f32::MIN_POSITIVE, 1.0, 3.2, 1.27, -0.505]);
        mixer
            .encode(&source, |row| {
                rows.push(row);
                Ok(())
            })
            .unwrap();
        assert_eq!(rows[0].kind, RowKind::F32);
        assert_eq!(rows[0].stored, source[..8]);
        assert_eq!(rows[0].wide, source[..8]);
        // 3.2 lies between 3.0 and 3.25.
        assert_eq!(rows[1].stored, [0x38, 0x45]);
        assert_eq!(rows[1].wide, bytes(&[1.0, 3.25]));
        // Scale 0.01: -50.5 rounds to the even -50, or what f32 makes of it.
        assert_eq!(rows[2].stored.len(), 6);
        let errors = mixer.errors();
        assert_eq!(
            assignment.palette,
            [RowKind::F32, RowKind::Fp8E4m3, RowKind::Int8]
        );
        assert_eq!((errors[0].largest, errors[0].relative), (0.0, 0.0));
        let expected = f64::from(3.25_f32) - f64::from(3.2_f32);
        assert_eq!(errors[1].largest, expected);
        let norm = (1.0 + f64::from(3.2_f32).powi(2)).sqrt();
        assert!((errors[1].relative - expected / norm).abs() < 1e-15);
        assert!(errors[2].largest > 0.004 && errors[2].largest < 0.006);
    }

    #[test]
    fn what_a_kind_cannot_hold_is_refused_with_its_place() {
        let selected = selected(Dtype::F32, Dtype::F32);
        let mix: EmbedMix = "fp8_e4m3=rest".parse().unwrap();
        let assignment = mix.assign(Dtype::F32, &[0, 1, 2]).unwrap();
        let mut mixer = RowMixer::new(&selected, &assignment).unwrap();
        match mixer.encode(&bytes(&[0.0, 1.0, 2.0, 449.0, 0.0, 465.0]), |_| Ok(())) {
            Err(Error::ConversionOverflow {
                row: 2,
                column: 1,
                dtype: "fp8_e4m3",
                ..
            }) => {}
            other => panic!("{other:?}"),
        }
        let mut mixer = RowMixer::new(&selected, &assignment).unwrap();
        let refused = mixer.encode(&bytes(&[0.0, f32::INFINITY]), |_| Ok(()));
        assert!(matches!(
            refused,
            Err(Error::NotFinite {
                row: 0,
                column: 1,
                ..
            })
        ));
    }
}
