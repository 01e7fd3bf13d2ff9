//! Checks a row file whose rows are of several kinds: the sidecar against the block, every stored row
//! widened against the block's row, the row tree against the stored rows.

use std::ops::Range;
use std::path::Path;

use columnar_embed::{RowId, RowTreeBuilder, Sidecar};
use gkq_v2::{Block, Columnar};

use super::{At, Check, hex};
use crate::Error;
use crate::checkpoint::DataFile;
use crate::knot_file::CHUNK_BYTES;

/// Where the rows of a row file stop being those of the block.
#[derive(Default)]
struct Compared {
    first_wrong: Option<RowId>,
    wrong: u64,
}

impl Check<'_> {
    pub(super) fn mixed_rows(
        &mut self,
        block: &Block,
        columnar: &Columnar,
        sidecar: &Range<u64>,
        rows: Option<&DataFile>,
    ) -> Result<(), Error> {
        let bytes = self.knot.knot.front_slice(sidecar).unwrap_or_default();
        let Some(parsed) = self.sidecar(block, columnar, sidecar, bytes) else {
            return Ok(());
        };
        let Some(rows) = rows else {
            self.report
                .unchecked
                .push(format!("stored rows of `{}`", block.name));
            return Ok(());
        };
        self.published_sidecar(rows, bytes)?;
        let found = rows.len_bytes;
        if found != parsed.table_bytes() {
            let expected = format!("{} bytes (rows of several kinds)", parsed.table_bytes());
            let at = At {
                file: &rows.path,
                offset: 0,
            };
            let part = format!("rows of `{}`", block.name);
            self.differ(at, part, expected, format!("{found} bytes"));
            return Ok(());
        }
        self.stored_rows(block, columnar, &parsed, rows)
    }

    /// The sidecar of a block, if it is one and fits the block.
    fn sidecar(
        &mut self,
        block: &Block,
        columnar: &Columnar,
        range: &Range<u64>,
        bytes: &[u8],
    ) -> Option<Sidecar> {
        let cols = block.shape.last().copied().unwrap_or(0);
        let expected = (columnar.rows, cols, columnar.dtype.name());
        let found = Sidecar::parse(bytes).map_err(|error| error.to_string());
        let found = found.and_then(|sidecar| {
            let matrix = sidecar.matrix().name();
            match (sidecar.rows(), sidecar.cols() as u64, matrix) {
                found if found == expected => Ok(sidecar),
                (rows, cols, matrix) => Err(format!("one of {rows} x {cols} in {matrix}")),
            }
        });
        match found {
            Ok(sidecar) => Some(sidecar),
            Err(found) => {
                let at = At {
                    file: &self.knot.path,
                    offset: range.start,
                };
                let (rows, cols, dtype) = expected;
                let expected = format!("one of {rows} x {cols} in {dtype}");
                self.differ(at, format!("sidecar of `{}`", block.name), expected, found);
                None
            }
        }
    }

    /// The sidecar beside the row file, if it is there, is the knot's.
    fn published_sidecar(&mut self, rows: &DataFile, expected: &[u8]) -> Result<(), Error> {
        let path = rows.path.with_extension("embed-rows.idx");
        if !path.exists() {
            return Ok(());
        }
        let file = DataFile::open(&path)?;
        let digest = |bytes: &[u8]| hex(blake3::hash(bytes).as_bytes());
        let found = if file.len_bytes == expected.len() as u64 {
            let mut bytes = vec![0; expected.len()];
            file.read_at(&mut bytes, 0)?;
            digest(&bytes)
        } else {
            format!("{} bytes", file.len_bytes)
        };
        if found != digest(expected) {
            let at = At {
                file: &path,
                offset: 0,
            };
            self.differ(at, "sidecar".to_owned(), digest(expected), found);
        }
        Ok(())
    }

    fn stored_rows(
        &mut self,
        block: &Block,
        columnar: &Columnar,
        sidecar: &Sidecar,
        rows: &DataFile,
    ) -> Result<(), Error> {
        let rows_error = Error::rows(&rows.path);
        let mut tree =
            RowTreeBuilder::new(sidecar.rows(), blake3::Hasher::new()).map_err(&rows_error)?;
        let (mut stored_digest, mut wide_digest) = (blake3::Hasher::new(), blake3::Hasher::new());
        let mut compared = Compared::default();
        let width = u64::from(sidecar.matrix_row_bytes()).max(1);
        let step = (CHUNK_BYTES / width).max(1);
        let mut first = 0;
        while first < sidecar.rows() {
            let end = (first + step).min(sidecar.rows());
            let ids = first..end;
            let wide = widened(sidecar, rows, ids.clone(), |id, stored| {
                stored_digest.update(stored);
                tree.push(stored).map_err(Error::rows(&rows.path))?;
                sidecar.widen(id, stored).map_err(&rows_error)
            })?;
            wide_digest.update(&wide);
            if !block.is_external() {
                compared.chunk(self, block, ids, &wide)?;
            }
            self.bar.add(wide.len() as u64);
            first = end;
        }
        self.report.payloads += 1;
        self.report.bytes += rows.len_bytes;
        let (tree, paths) = tree.finish().map_err(&rows_error)?;
        let paths = *paths.finalize().as_bytes();
        let stored = *stored_digest.finalize().as_bytes();
        self.tell_stored(sidecar, &rows.path, &block.name, stored);
        let wide = *wide_digest.finalize().as_bytes();
        self.tell_widened(block, sidecar, rows, (&compared, wide));
        self.compare_tree(block, columnar, (tree, paths));
        Ok(())
    }

    fn tell_stored(&mut self, sidecar: &Sidecar, file: &Path, name: &str, found: [u8; 32]) {
        let expected = sidecar.table_blake3();
        if found != expected {
            let part = format!("rows of `{name}`");
            self.differ(At { file, offset: 0 }, part, hex(&expected), hex(&found));
        }
    }

    fn tell_widened(
        &mut self,
        block: &Block,
        sidecar: &Sidecar,
        rows: &DataFile,
        (compared, wide): (&Compared, [u8; 32]),
    ) {
        let part = format!("widened rows of `{}`", block.name);
        if let Some(row) = compared.first_wrong {
            let offset = sidecar.range(row).map_or(0, |range| range.start);
            let at = At {
                file: &rows.path,
                offset,
            };
            let part = format!("{part}, row {row}");
            let found = format!("other bytes, {} rows in all", compared.wrong);
            self.differ(at, part, "the block's bytes".to_owned(), found);
        } else if block.is_external() && wide != block.blake3 {
            let at = At {
                file: &rows.path,
                offset: 0,
            };
            self.differ(at, part, hex(&block.blake3), hex(&wide));
        }
    }
}

/// The rows `ids` widened, one after another; `each` sees their stored bytes.
fn widened(
    sidecar: &Sidecar,
    rows: &DataFile,
    ids: Range<u64>,
    mut each: impl FnMut(RowId, &[u8]) -> Result<Vec<u8>, Error>,
) -> Result<Vec<u8>, Error> {
    let rows_error = Error::rows(&rows.path);
    let start = sidecar.range(RowId(ids.start)).map_err(&rows_error)?.start;
    let last = RowId(ids.end.saturating_sub(1));
    let end = sidecar.range(last).map_err(&rows_error)?.end;
    // A few megabytes: no stored row is much longer than a widened one.
    let mut stored = vec![0; usize::try_from(end - start).unwrap_or(0)];
    rows.read_at(&mut stored, start)?;
    let mut wide = Vec::new();
    let mut rest = stored.as_slice();
    for id in ids.map(RowId) {
        let bytes = sidecar.range(id).map_err(&rows_error)?.len();
        let (row, behind) = rest.split_at(usize::try_from(bytes).unwrap_or(0).min(rest.len()));
        wide.extend(each(id, row)?);
        rest = behind;
    }
    Ok(wide)
}

impl Compared {
    /// Compares widened rows with those of the block.
    fn chunk(
        &mut self,
        check: &Check<'_>,
        block: &Block,
        ids: Range<u64>,
        wide: &[u8],
    ) -> Result<(), Error> {
        let width = wide.len() as u64 / (ids.end - ids.start).max(1);
        let start = block.payload.start + ids.start * width;
        let mut ours = Vec::with_capacity(wide.len());
        check
            .knot
            .chunks(&(start..start + wide.len() as u64), CHUNK_BYTES, |bytes| {
                ours.extend_from_slice(bytes);
                Ok(())
            })?;
        let width = usize::try_from(width).unwrap_or(usize::MAX).max(1);
        let pairs = ours.chunks(width).zip(wide.chunks(width));
        for (id, (ours, theirs)) in ids.zip(pairs) {
            if ours != theirs {
                self.wrong += 1;
                self.first_wrong.get_or_insert(RowId(id));
            }
        }
        Ok(())
    }
}
