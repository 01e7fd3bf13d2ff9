//! The one pass over the bytes: payloads from the checkpoint to their places in the knot, rows to the
//! row file on the way, digests taken as they go by, and the front last.

mod mixed_matrix;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use columnar_embed::{RowFileWriter, WrittenRows};
use gkq_v2::{BlockId, Payload, SketchHeader};

use super::convert::RowConverter;
use super::mixed::MixReport;
use super::output::Output;
use super::plan::Plan;
use super::selection::Selected;
use super::spectral::{Factored, Parked};
use super::{Matrix, Stop, sketch};
use crate::Error;
use crate::checkpoint::Checkpoint;
use crate::progress::Progress;

/// Bytes of a tensor held at once.
const CHUNK_BYTES: u64 = 4 << 20;

/// Where the bytes come from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) tokenizer: &'a [u8],
    pub(super) spectral: &'a Factored,
}

/// What accompanies long work.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a> {
    pub(super) stop: &'a Stop,
    pub(super) bar: &'a Progress,
}

/// Figures of what was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) knot_bytes: u64,
    pub(super) rows_bytes: u64,
    pub(super) row_bytes: u32,
    pub(super) rows_blake3: [u8; 32],
    pub(super) embed_error: f64,
    pub(super) mix: Option<MixReport>,
    pub(super) blocks: usize,
    pub(super) sketch: Option<SketchHeader>,
}

pub(super) fn write(
    source: &Source<'_>,
    plan: Plan,
    output: &Output,
    pace: &Pace<'_>,
) -> Result<Written, Error> {
    let path = output.knot();
    let file = File::create_new(&path).map_err(Error::io(&path, "create"))?;
    // Payloads are padded to 64 bytes, and the padding is zero because nothing is written there.
    file.set_len(plan.knot.object_bytes())
        .map_err(Error::io(&path, "reserve space for"))?;
    pace.bar.set_total(plan.knot.object_bytes());
    let mut packing = Packing {
        source,
        plan,
        file: &file,
        path: &path,
        pace,
    };
    packing.tokenizer()?;
    packing.body()?;
    let rows = packing.embedding(output)?;
    packing.hot_ids()?;
    let sketch = packing.sketch()?;
    let blocks = packing.plan.body.len() + 1;
    let knot_bytes = packing.plan.knot.object_bytes();
    let front = packing.plan.knot.finish().map_err(Error::knot(&path))?;
    file.write_all_at(&front, 0)
        .map_err(Error::io(&path, "write"))?;
    file.sync_all().map_err(Error::io(&path, "write"))?;
    Ok(Written {
        knot_bytes,
        blocks,
        rows_bytes: rows.bytes,
        row_bytes: rows.row_bytes,
        rows_blake3: rows.blake3,
        embed_error: rows.error,
        mix: rows.mix,
        sketch,
    })
}

struct Packing<'a> {
    source: &'a Source<'a>,
    plan: Plan,
    file: &'a File,
    path: &'a Path,
    pace: &'a Pace<'a>,
}

struct Rows {
    bytes: u64,
    row_bytes: u32,
    blake3: [u8; 32],
    error: f64,
    mix: Option<MixReport>,
}

/// A path table on its way into the knot.
type PathWriter<'a> = BufWriter<Place<'a>>;

impl<'a> Packing<'a> {
    fn knot_error(&self, source: gkq_v2::Error) -> Error {
        Error::knot(self.path)(source)
    }

    fn tokenizer(&mut self) -> Result<(), Error> {
        let payload = Payload::Section(self.plan.tokenizer);
        let mut place = self.place(payload)?;
        place.put(self.source.tokenizer)?;
        self.record(payload, place.digest())
    }

    fn body(&mut self) -> Result<(), Error> {
        for (id, selected) in std::mem::take(&mut self.plan.body)
            .iter()
            .map(|(id, selected)| (*id, selected))
        {
            self.pace.bar.on(&selected.name);
            match self.source.spectral.get(&selected.name) {
                Some(factors) => self.factors(id, factors)?,
                None => self.dense(id, selected)?,
            }
            self.plan.body.push((id, selected.clone()));
        }
        Ok(())
    }

    fn dense(&mut self, id: BlockId, selected: &Selected) -> Result<(), Error> {
        let payload = Payload::Block(id);
        let mut place = self.place(payload)?;
        let error = self.pump(selected, |bytes| place.put(bytes))?;
        let digest = place.digest();
        self.record(payload, digest)?;
        self.record_conversion(id, selected, error)
    }

    /// Reads a tensor in whole rows, converts it if its dtype changes, hands the bytes on. Returns the
    /// largest error of the conversion.
    fn pump(
        &self,
        selected: &Selected,
        mut sink: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let mut converter = match selected.source == selected.target {
            true => None,
            false => Some(RowConverter::new(selected)?),
        };
        self.source_rows(selected, |rows| match &mut converter {
            None => sink(rows),
            Some(converter) => sink(&converter.convert(rows)?),
        })?;
        Ok(converter.map_or(0.0, |converter| converter.largest_error()))
    }

    /// Reads a tensor in whole rows, as the checkpoint has them.
    fn source_rows(
        &self,
        selected: &Selected,
        mut sink: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let cols = selected.shape.last().copied().unwrap_or(1);
        let row_bytes = selected.source.row_bytes(cols).unwrap_or(0).max(1);
        let chunk_bytes = (CHUNK_BYTES / row_bytes).max(1).saturating_mul(row_bytes);
        let len = selected.tensor.range.end - selected.tensor.range.start;
        let mut buffer = Vec::new();
        let mut offset = 0;
        while offset < len {
            self.pace.stop.check()?;
            let chunk = chunk_bytes.min(len - offset);
            buffer.resize(usize::try_from(chunk).unwrap_or(0), 0);
            self.source
                .checkpoint
                .read(&selected.tensor, offset, &mut buffer)?;
            sink(&buffer)?;
            offset += chunk;
        }
        Ok(())
    }

    fn factors(&mut self, id: BlockId, factors: &Parked) -> Result<(), Error> {
        let payload = Payload::Block(id);
        let ranges = self.plan.knot.factor_ranges(id).unwrap_or_default();
        let mut place = self.place(payload)?;
        let mut cursor = 0;
        for (bytes, range) in factors.read()?.iter().zip(ranges) {
            // The digest covers the padding between factors.
            let padding = usize::try_from(range.start.saturating_sub(cursor)).unwrap_or(0);
            place.put(&vec![0; padding])?;
            place.put(bytes)?;
            cursor = range.end;
        }
        let digest = place.digest();
        self.record(payload, digest)?;
        self.plan
            .knot
            .record_error(id, factors.error)
            .map_err(|source| self.knot_error(source))
    }

    /// The vocabulary matrix: into the row file row by row, with its tree, and into the knot.
    fn embedding(&mut self, output: &Output) -> Result<Rows, Error> {
        let (id, selected) = self.plan.embedding.clone();
        self.pace.bar.on(&selected.name);
        if let Some(assignment) = self.plan.mix.take() {
            let rows = self.mixed_embedding(output, &assignment);
            self.plan.mix = Some(assignment);
            return rows;
        }
        let rows_path = output.rows();
        let rows_error = Error::rows(&rows_path);
        let shape = selected.shape.as_slice();
        let rows = shape.first().copied().unwrap_or(0);
        let row_bytes = selected
            .target
            .row_bytes(shape.last().copied().unwrap_or(0))
            .unwrap_or(0);
        let row_bytes = u32::try_from(row_bytes).map_err(|_too_large| Error::Option {
            option: "pack",
            reason: format!("a row of {row_bytes} bytes is beyond 32 bits"),
        })?;

        let mut matrix = self.matrix_place(id)?;
        let paths = self.path_writer(id)?;
        let mut file =
            RowFileWriter::create(&rows_path, rows, row_bytes, paths).map_err(&rows_error)?;
        let error = self.pump(&selected, |bytes| {
            for row in bytes.chunks(row_bytes as usize) {
                file.push(row).map_err(&rows_error)?;
            }
            matrix.as_mut().map_or(Ok(()), |place| place.put(bytes))
        })?;
        let written = file.finish().map_err(&rows_error)?;
        let blake3 = written.blake3;
        self.record(Payload::Block(id), blake3)?;
        self.record_conversion(id, &selected, error)?;
        self.record_tree(id, written)?;
        Ok(Rows {
            bytes: rows * u64::from(row_bytes),
            row_bytes,
            blake3,
            error,
            mix: None,
        })
    }

    /// Where the matrix goes, if the knot has it.
    fn matrix_place(&self, id: BlockId) -> Result<Option<Place<'a>>, Error> {
        match self.plan.matrix {
            Matrix::Inside => self.place(Payload::Block(id)).map(Some),
            Matrix::External => Ok(None),
        }
    }

    /// Where the path table goes. A small vocabulary has none: its leaves themselves are pinned.
    fn path_writer(&self, id: BlockId) -> Result<PathWriter<'a>, Error> {
        let place = match self.plan.knot.range(Payload::PathTable(id)) {
            Some(_) => self.place(Payload::PathTable(id))?,
            None => self.nowhere(),
        };
        Ok(BufWriter::with_capacity(1 << 20, place))
    }

    /// Records the row tree and the path table of rows that are written.
    fn record_tree(
        &mut self,
        id: BlockId,
        written: WrittenRows<PathWriter<'a>>,
    ) -> Result<(), Error> {
        let paths = Payload::PathTable(id);
        if self.plan.knot.range(paths).is_some() {
            let place = written.paths.into_inner().map_err(|error| Error::Io {
                path: self.path.to_path_buf(),
                action: "write",
                source: error.into_error(),
            })?;
            let digest = place.digest();
            self.record(paths, digest)?;
        }
        let tree = &written.tree;
        let recorded = self
            .plan
            .knot
            .record_row_tree(id, tree.root, &tree.pinned_nodes);
        recorded.map_err(|source| self.knot_error(source))
    }

    fn hot_ids(&mut self) -> Result<(), Error> {
        if self.plan.hot_ids.is_empty() {
            return Ok(());
        }
        let payload = Payload::HotIds(self.plan.embedding.0);
        let mut place = self.place(payload)?;
        let ids = self.plan.hot_ids.iter();
        place.put(&ids.flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>())?;
        let digest = place.digest();
        self.record(payload, digest)
    }

    /// The sketch of the vocabulary matrix, if one is asked for, with its measured error.
    fn sketch(&mut self) -> Result<Option<SketchHeader>, Error> {
        let Some(declared) = self.plan.sketch else {
            return Ok(None);
        };
        let (id, selected) = self.plan.embedding.clone();
        self.pace.bar.on("sketch of the vocabulary matrix");
        let (body, error) = sketch::build(&selected, &declared, &mut |sink| {
            self.block_rows(&selected, sink)
        })?;
        let payload = Payload::Sketch(id);
        let mut place = self.place(payload)?;
        place.put(&body)?;
        let digest = place.digest();
        self.record(payload, digest)?;
        Ok(Some(SketchHeader { error, ..declared }))
    }

    fn record(&mut self, payload: Payload, digest: [u8; 32]) -> Result<(), Error> {
        self.plan
            .knot
            .record_digest(payload, digest)
            .map_err(|source| self.knot_error(source))
    }

    fn record_conversion(
        &mut self,
        id: BlockId,
        selected: &Selected,
        error: f64,
    ) -> Result<(), Error> {
        if selected.source == selected.target {
            return Ok(());
        }
        self.plan
            .knot
            .record_error(id, error)
            .map_err(|source| self.knot_error(source))
    }

    fn place(&self, payload: Payload) -> Result<Place<'a>, Error> {
        let range = self.plan.knot.range(payload).unwrap_or(0..0);
        Ok(Place::new(self.file, self.path, range, self.pace.bar))
    }

    fn nowhere(&self) -> Place<'a> {
        Place::new(self.file, self.path, 0..0, self.pace.bar)
    }
}

/// A range of the knot being filled from its start, with the digest of what went in.
struct Place<'a> {
    file: &'a File,
    path: &'a Path,
    range: Range<u64>,
    hasher: blake3::Hasher,
    bar: &'a Progress,
}

impl<'a> Place<'a> {
    fn new(file: &'a File, path: &'a Path, range: Range<u64>, bar: &'a Progress) -> Self {
        Self {
            file,
            path,
            range,
            hasher: blake3::Hasher::new(),
            bar,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write_all(bytes).map_err(Error::io(self.path, "write"))
    }

    fn digest(&self) -> [u8; 32] {
        debug_assert!(
            self.range.is_empty(),
            "{} bytes of a payload were not written",
            self.range.end - self.range.start
        );
        *self.hasher.finalize().as_bytes()
    }
}

impl Write for Place<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len() as u64;
        // Never into a neighbour's bytes.
        if len > self.range.end - self.range.start {
            return Err(io::Error::other(
                "more bytes than the layout gives this payload",
            ));
        }
        self.file.write_all_at(bytes, self.range.start)?;
        self.hasher.update(bytes);
        self.range.start += len;
        self.bar.add(len);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
