//! The vocabulary matrix whose rows are of several kinds: each row goes to the row file as it is stored
//! and to the knot as it is widened, with the sidecar that finds it again.

use columnar_embed::{MixedRowFileWriter, Sidecar};
use gkq_v2::Payload;

use super::super::embed_mix::Assignment;
use super::super::mixed::RowMixer;
use super::super::output::Output;
use super::{Packing, Rows};
use crate::Error;
use crate::pack::selection::Selected;

impl Packing<'_> {
    pub(super) fn mixed_embedding(
        &mut self,
        output: &Output,
        assignment: &Assignment,
    ) -> Result<Rows, Error> {
        let (id, selected) = self.plan.embedding.clone();
        let (rows_path, sidecar_path) = (output.rows(), output.sidecar());
        let rows_error = Error::rows(&rows_path);
        let mut matrix = self.matrix_place(id)?;
        let paths = self.path_writer(id)?;
        let sidecar = assignment.sidecar(&selected)?;
        let mut file =
            MixedRowFileWriter::create(&rows_path, sidecar, paths).map_err(&rows_error)?;
        // The block's digest is asked even where the knot does not hold it.
        let mut block = blake3::Hasher::new();
        let mut mixer = RowMixer::new(&selected, assignment)?;
        self.source_rows(&selected, |rows| {
            mixer.encode(rows, |row| {
                file.push(row.kind, &row.stored).map_err(&rows_error)?;
                block.update(&row.wide);
                let place = matrix.as_mut();
                place.map_or(Ok(()), |place| place.put(&row.wide))
            })
        })?;
        let mixed = file.finish(&mixer.errors()).map_err(&rows_error)?;
        let sidecar = Sidecar::parse(&mixed.sidecar).map_err(&rows_error)?;
        std::fs::write(&sidecar_path, &mixed.sidecar).map_err(Error::io(&sidecar_path, "write"))?;
        self.record(Payload::Block(id), *block.finalize().as_bytes())?;
        self.record_conversion(id, &selected, mixer.largest_error())?;
        let blake3 = mixed.written.blake3;
        self.record_tree(id, mixed.written)?;
        let recorded = self.plan.knot.record_row_sidecar(id, &mixed.sidecar);
        recorded.map_err(|source| self.knot_error(source))?;
        Ok(Rows {
            bytes: sidecar.table_bytes(),
            row_bytes: sidecar.matrix_row_bytes(),
            blake3,
            error: mixer.largest_error(),
            mix: Some(mixer.report(&sidecar, mixed.sidecar.len() as u64)),
        })
    }

    /// The rows of the knot's block, whatever became of those of the checkpoint, a few at a time.
    pub(super) fn block_rows(
        &self,
        selected: &Selected,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(assignment) = &self.plan.mix else {
            return self.pump(selected, sink).map(|_conversion| ());
        };
        let mut mixer = RowMixer::new(selected, assignment)?;
        self.source_rows(selected, |rows| {
            let mut wide = Vec::with_capacity(rows.len());
            mixer.encode(rows, |row| {
                wide.extend(row.wide);
                Ok(())
            })?;
            sink(&wide)
        })
    }
}
