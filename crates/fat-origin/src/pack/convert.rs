//! Changing the element type of a tensor, a few rows at a time, with the largest error measured on
//! the way. What does not fit the target is refused, with its place.

use gkq_v2::Dtype;
use low_bit_kernels::{WeightType, dequantise_row, quantise_rows};

use super::selection::Selected;
use crate::Error;

/// The kernels' name for an element type. `None` for one that this program cannot compute with yet.
pub(super) fn weight_type(dtype: Dtype) -> Option<WeightType> {
    Some(match dtype {
        Dtype::F32 => WeightType::F32,
        Dtype::F16 => WeightType::F16,
        Dtype::Bf16 => WeightType::Bf16,
        Dtype::Q4_0 => WeightType::Q4_0,
        Dtype::Q4_1 => WeightType::Q4_1,
        Dtype::Q5_0 => WeightType::Q5_0,
        Dtype::Q5_1 => WeightType::Q5_1,
        Dtype::Q8_0 => WeightType::Q8_0,
        Dtype::Q2K => WeightType::Q2K,
        Dtype::Q3K => WeightType::Q3K,
        Dtype::Q4K => WeightType::Q4K,
        Dtype::Q5K => WeightType::Q5K,
        Dtype::Q6K => WeightType::Q6K,
        _ => return None,
    })
}

/// Turns rows of one type into rows of another.
#[derive(Debug)]
pub(super) struct RowConverter<'a> {
    tensor: &'a str,
    source: WeightType,
    target: WeightType,
    target_name: &'static str,
    cols: usize,
    source_row_bytes: usize,
    next_row: u64,
    /// Largest absolute difference so far, in the tensor's unit.
    largest_error: f64,
}

impl<'a> RowConverter<'a> {
    pub(super) fn new(selected: &'a Selected) -> Result<Self, Error> {
        let cols = selected.shape.last().copied().unwrap_or(0);
        let refused = |dtype: Dtype| Error::Option {
            option: "dtype conversion",
            reason: format!(
                "tensor `{}`: a row of {cols} values of {dtype} cannot be converted",
                selected.name
            ),
        };
        let row = selected
            .source
            .row_bytes(cols)
            .and_then(|bytes| usize::try_from(bytes).ok());
        Ok(Self {
            tensor: &selected.name,
            source: weight_type(selected.source).ok_or_else(|| refused(selected.source))?,
            target: weight_type(selected.target).ok_or_else(|| refused(selected.target))?,
            target_name: selected.target.name(),
            cols: usize::try_from(cols).map_err(|_too_large| refused(selected.source))?,
            source_row_bytes: row
                .filter(|&bytes| bytes > 0)
                .ok_or_else(|| refused(selected.source))?,
            next_row: 0,
            largest_error: 0.0,
        })
    }

    /// Converts whole rows, in order.
    pub(super) fn convert(&mut self, rows: &[u8]) -> Result<Vec<u8>, Error> {
        let mut values = vec![0.0; self.cols];
        let mut back = vec![0.0; self.cols];
        let mut out = Vec::with_capacity(rows.len());
        for row in rows.chunks_exact(self.source_row_bytes) {
            dequantise_row(self.source, row, &mut values).map_err(|error| self.kernel(&error))?;
            if let Some(column) = values.iter().position(|value| !value.is_finite()) {
                return Err(Error::NotFinite {
                    tensor: self.tensor.to_owned(),
                    row: self.next_row,
                    column: column as u64,
                    value: values.get(column).copied().unwrap_or(f32::NAN),
                });
            }
            let converted = quantise_rows(self.target, &values, self.cols)
                .map_err(|error| self.kernel(&error))?;
            dequantise_row(self.target, &converted, &mut back)
                .map_err(|error| self.kernel(&error))?;
            self.measure(&values, &back)?;
            out.extend_from_slice(&converted);
            self.next_row += 1;
        }
        Ok(out)
    }

    pub(super) fn largest_error(&self) -> f64 {
        self.largest_error
    }

    fn measure(&mut self, values: &[f32], back: &[f32]) -> Result<(), Error> {
        for (column, (&value, &stored)) in values.iter().zip(back).enumerate() {
            if !stored.is_finite() {
                return Err(Error::ConversionOverflow {
                    tensor: self.tensor.to_owned(),
                    row: self.next_row,
                    column: column as u64,
                    value,
                    dtype: self.target_name,
                });
            }
            self.largest_error = self
                .largest_error
                .max((f64::from(value) - f64::from(stored)).abs());
        }
        Ok(())
    }

    fn kernel(&self, error: &low_bit_kernels::Error) -> Error {
        Error::Option {
            option: "dtype conversion",
            reason: format!("tensor `{}` to {}: {error}", self.tensor, self.target_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RowConverter;
    use crate::Error;
    use crate::checkpoint::{StoredDtype, Tensor};
    use crate::pack::selection::Selected;
    use gkq_v2::Dtype;

    fn selected(source: Dtype, target: Dtype, cols: u64) -> Selected {
        let tensor = Tensor {
            name: "w".to_owned(),
            dtype: StoredDtype::Known(source),
            shape: vec![2, cols],
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

    fn f32_bytes(values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    #[test]
    fn widening_costs_nothing_and_narrowing_is_measured() {
        let halves: Vec<u8> = [1.5_f32, -0.25]
            .iter()
            .flat_map(|&value| half::bf16::from_f32(value).to_le_bytes())
            .collect();
        let widen = selected(Dtype::Bf16, Dtype::F32, 2);
        let mut converter = RowConverter::new(&widen).unwrap();
        assert_eq!(
            converter.convert(&halves).unwrap(),
            f32_bytes(&[1.5, -0.25])
        );
        assert_eq!(converter.largest_error(), 0.0);

        let narrow = selected(Dtype::F32, Dtype::Bf16, 2);
        let mut converter = RowConverter::new(&narrow).unwrap();
        converter
            .convert(&f32_bytes(&[1.0, 1.0 + 1.0 / 512.0]))
            .unwrap();
        assert_eq!(converter.largest_error(), 1.0 / 512.0);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_place() {
        let narrow = selected(Dtype::F32, Dtype::F16, 2);
        let mut converter = RowConverter::new(&narrow).unwrap();
        converter.convert(&f32_bytes(&[0.0, 1.0])).unwrap();
        match converter.convert(&f32_bytes(&[0.0, 70_000.0])) {
            Err(Error::ConversionOverflow {
                row: 1,
                column: 1,
                dtype: "f16",
                ..
            }) => {}
            other => panic!("{other:?}"),
        }
        let mut converter = RowConverter::new(&narrow).unwrap();
        assert!(matches!(
            converter.convert(&f32_bytes(&[f32::NAN, 0.0])),
            Err(Error::NotFinite { row: 0, .. })
        ));
    }
}
