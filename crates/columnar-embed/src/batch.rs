//! The rows of one batch: distinct ids ascending, as the planner wants them, and the way back to
//! request order. No I/O.

use crate::{Error, Row, layout::RowId};

/// A batch while it is being answered.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Distinct, ascending.
    ids: Vec<RowId>,
    /// The row of each of `ids` or why there is none, as far as that is known.
    rows: Vec<Option<Result<Row, Error>>>,
    /// For each id that was asked for, its place in `ids`.
    places: Vec<usize>,
}

impl Batch {
    /// A batch for the ids `asked`, answered as far as `look_up` can.
    pub(crate) fn new(asked: &[RowId], mut look_up: impl FnMut(&RowId) -> Option<Row>) -> Self {
        let mut order: Vec<(RowId, usize)> = asked.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let mut ids = Vec::with_capacity(order.len());
        let mut places = vec![0; order.len()];
        for (id, position) in order {
            if ids.last() != Some(&id) {
                ids.push(id);
            }
            places[position] = ids.len() - 1;
        }
        let rows = ids.iter().map(|id| look_up(id).map(Ok)).collect();
        Self { ids, rows, places }
    }

    /// Number of distinct ids.
    pub(crate) fn distinct(&self) -> usize {
        self.ids.len()
    }

    /// The ids without an answer, ascending.
    pub(crate) fn missing(&self) -> Vec<RowId> {
        let unanswered = self
            .ids
            .iter()
            .zip(&self.rows)
            .filter(|(_, row)| row.is_none());
        unanswered.map(|(id, _)| *id).collect()
    }

    /// Answers `id`; an id that is not in the batch is nobody's question.
    pub(crate) fn answer(&mut self, id: RowId, row: Result<Row, Error>) {
        if let Ok(place) = self.ids.binary_search(&id) {
            self.rows[place] = Some(row);
        }
    }

    /// Answers in request order, or `None` while one is missing.
    pub(crate) fn into_answers(self) -> Option<Vec<Result<Row, Error>>> {
        self.places
            .iter()
            .map(|place| self.rows[*place].clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: u8) -> Row {
        Row::from([value])
    }

    #[test]
    fn ids_are_distinct_ascending_and_lead_back_to_the_request() {
        let asked = [7, 3, 7, 0, 3].map(RowId);
        let mut batch = Batch::new(&asked, |id| (id.0 == 3).then(|| row(3)));
        assert_eq!(batch.distinct(), 3);
        assert_eq!(batch.missing(), [0, 7].map(RowId));
        batch.answer(RowId(7), Ok(row(7)));
        batch.answer(RowId(8), Ok(row(8)));
        let failed = Error::NoRuntime {
            object: "rows".to_owned(),
        };
        batch.answer(RowId(0), Err(failed));
        let answers = batch.into_answers().unwrap();
        let rows: Vec<_> = answers.into_iter().map(Result::ok).collect();
        assert_eq!(
            rows,
            [Some(7), Some(3), Some(7), None, Some(3)].map(|value| value.map(row))
        );
    }

    #[test]
    fn a_batch_with_a_hole_has_no_rows_and_an_empty_one_has_none_missing() {
        assert!(Batch::new(&[RowId(1)], |_| None).into_answers().is_none());
        assert!(Batch::new(&[], |_| None).into_answers().unwrap().is_empty());
    }
}
