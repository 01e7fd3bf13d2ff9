//! Checks a knot, and the row file beside it, byte for byte: every payload against its digest, the row
//! file against the matrix, the rows against their tree. What differs is named with its offset; all
//! of it is looked at, so one run tells everything.

mod mixed;

use std::path::{Path, PathBuf};

use columnar_embed::{RowTree, RowTreeBuilder};
use gkq_v2::{Block, Columnar, EmbedSketch, SectionKind};
use serde::Serialize;

use crate::Error;
use crate::checkpoint::DataFile;
use crate::knot_file::{self, CHUNK_BYTES, KnotFile};
use crate::progress::Progress;

/// The outcome of a check.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The knot.
    pub knot: PathBuf,
    /// The row file, if one was checked.
    pub rows: Option<PathBuf>,
    /// Payloads whose digest was computed.
    pub payloads: usize,
    /// Bytes that were read for it.
    pub bytes: u64,
    /// Row trees that were rebuilt from their rows.
    pub trees: usize,
    /// What the knot promises and this run could not look at: the rows of a matrix that is not in the
    /// knot, if no row file was given. A knot with such parts is not known to be intact.
    pub unchecked: Vec<String>,
    /// What is not as it should be; empty for a good knot.
    pub differences: Vec<Difference>,
}

/// Bytes that are not what the knot says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The file.
    pub file: PathBuf,
    /// The block, section or tree.
    pub part: String,
    /// Offset in the file: of the first wrong byte where that is known, else of the part.
    pub offset: u64,
    /// What the knot says.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// Checks a knot and, if given, the row file of its columnar-eligible tensor.
///
/// # Errors
/// Only what keeps the check from being made: a front that cannot be parsed, or I/O. Wrong bytes are
/// in the report.
pub fn verify(knot: &Path, rows: Option<&Path>) -> Result<VerifyReport, Error> {
    let file = KnotFile::open(knot)?;
    let rows = rows.map(DataFile::open).transpose()?;
    let mut check = Check {
        bar: Progress::new("verifying"),
        report: VerifyReport {
            knot: knot.to_path_buf(),
            rows: rows.as_ref().map(|rows| rows.path.clone()),
            payloads: 0,
            bytes: 0,
            trees: 0,
            unchecked: Vec::new(),
            differences: Vec::new(),
        },
        knot: &file,
    };
    let rows_bytes = rows.as_ref().map_or(0, |rows| rows.len_bytes);
    check
        .bar
        .set_total(file.knot.object_bytes().saturating_add(rows_bytes));
    check.sections()?;
    check.sketches()?;
    check.blocks()?;
    check.padding()?;
    check.rows(rows.as_ref())?;
    Ok(check.report)
}

/// Where something differs.
#[derive(Clone, Copy)]
struct At<'a> {
    file: &'a Path,
    offset: u64,
}

struct Check<'a> {
    knot: &'a KnotFile,
    bar: Progress,
    report: VerifyReport,
}

impl Check<'_> {
    fn sections(&mut self) -> Result<(), Error> {
        for section in self.knot.knot.sections() {
            // What lies in the front was digested when the front was parsed.
            if section.range.end <= self.knot.knot.front_bytes() {
                continue;
            }
            self.payload(
                format!("section {}", section.kind),
                &section.range,
                section.blake3,
            )?;
        }
        Ok(())
    }

    /// A sketch whose digest is right may still be one that no station takes.
    fn sketches(&mut self) -> Result<(), Error> {
        for block in self.knot.knot.blocks() {
            let section = self.knot.knot.section_of(&block.name, SectionKind::Sketch);
            let (Some(section), &[rows, cols]) = (section, block.shape.as_slice()) else {
                continue;
            };
            let part = format!("section {}", section.kind);
            let offset = section.range.start;
            let told = |found: &Difference| found.part == part && found.offset == offset;
            if self.report.differences.iter().any(told) {
                continue;
            }
            let mut bytes = Vec::new();
            self.knot.chunks(&section.range, CHUNK_BYTES, |chunk| {
                bytes.extend_from_slice(chunk);
                Ok(())
            })?;
            if let Err(error) = EmbedSketch::parse(bytes.as_slice(), rows, cols) {
                let file = &self.knot.path;
                let expected = "a sketch that stations take".to_owned();
                self.differ(At { file, offset }, part, expected, error.to_string());
            }
        }
        Ok(())
    }

    fn blocks(&mut self) -> Result<(), Error> {
        for block in self.knot.knot.blocks() {
            self.bar.on(&block.name);
            if !block.is_external() {
                self.payload(
                    format!("block `{}`", block.name),
                    &block.payload,
                    block.blake3,
                )?;
            }
        }
        Ok(())
    }

    /// The bytes between payloads belong to nobody and must be zero, or a knot could carry what no
    /// digest covers.
    fn padding(&mut self) -> Result<(), Error> {
        for range in self.knot.knot.padding() {
            let mut offset = range.start;
            let mut first = None;
            self.knot.chunks(&range, CHUNK_BYTES, |bytes| {
                if first.is_none() {
                    let position = bytes.iter().position(|&byte| byte != 0);
                    first = position.and_then(|position| {
                        let byte = bytes.get(position).copied()?;
                        Some((offset + position as u64, byte))
                    });
                }
                offset += bytes.len() as u64;
                Ok(())
            })?;
            if let Some((offset, byte)) = first {
                let at = At {
                    file: &self.knot.path,
                    offset,
                };
                let part = format!("padding {}..{}", range.start, range.end);
                self.differ(at, part, "00".to_owned(), format!("{byte:02x}"));
            }
        }
        Ok(())
    }

    fn payload(
        &mut self,
        part: String,
        range: &std::ops::Range<u64>,
        expected: [u8; 32],
    ) -> Result<(), Error> {
        let found = self.knot.digest(range, |bytes| self.bar.add(bytes))?;
        self.report.payloads += 1;
        self.report.bytes += range.end - range.start;
        if found != expected {
            self.differ(
                At {
                    file: &self.knot.path.clone(),
                    offset: range.start,
                },
                part,
                hex(&expected),
                hex(&found),
            );
        }
        Ok(())
    }

    fn rows(&mut self, rows: Option<&DataFile>) -> Result<(), Error> {
        let eligible: Vec<_> = self
            .knot
            .knot
            .blocks()
            .iter()
            .filter_map(|block| block.columnar.as_ref().map(|columnar| (block, columnar)))
            .collect();
        if let (Some(rows), [] | [_, _, ..]) = (rows, eligible.as_slice()) {
            return Err(Error::Option {
                option: "--rows",
                reason: format!(
                    "`{}` fits a knot with one columnar-eligible tensor, this one has {}",
                    rows.path.display(),
                    eligible.len()
                ),
            });
        }
        for (block, columnar) in eligible {
            if let Some(sidecar) = &columnar.row_sidecar {
                self.mixed_rows(block, columnar, sidecar, rows)?;
                continue;
            }
            if let Some(rows) = rows {
                self.row_file(block, columnar, rows)?;
            }
            match (block.is_external(), rows) {
                (false, _) => self.tree(block, columnar, None)?,
                (true, Some(rows)) => self.tree(block, columnar, Some(rows))?,
                (true, None) => self
                    .report
                    .unchecked
                    .push(format!("rows of `{}`", block.name)),
            }
        }
        Ok(())
    }

    /// The row file: its length, its digest, and where it first differs from the block.
    fn row_file(
        &mut self,
        block: &Block,
        columnar: &Columnar,
        rows: &DataFile,
    ) -> Result<(), Error> {
        let part = format!("rows of `{}`", block.name);
        let expected = columnar.rows.saturating_mul(columnar.row_bytes.into());
        if rows.len_bytes != expected {
            let expected = format!(
                "{expected} bytes ({} rows of {})",
                columnar.rows, columnar.row_bytes
            );
            self.differ(
                At {
                    file: &rows.path,
                    offset: 0,
                },
                part,
                expected,
                format!("{} bytes", rows.len_bytes),
            );
            return Ok(());
        }
        let found = knot_file::digest(rows, &(0..rows.len_bytes), |bytes| self.bar.add(bytes))?;
        self.report.payloads += 1;
        self.report.bytes += rows.len_bytes;
        if found == columnar.rows_blake3 {
            return Ok(());
        }
        let first = if block.is_external() {
            None
        } else {
            first_difference(self.knot, block, rows)?
        };
        match first {
            Some(offset) => {
                let row = offset.checked_div(columnar.row_bytes.into()).unwrap_or(0);
                let part = format!("{part}, row {row}");
                self.differ(
                    At {
                        file: &rows.path,
                        offset,
                    },
                    part,
                    "the block's bytes".to_owned(),
                    "other bytes".to_owned(),
                );
            }
            None => self.differ(
                At {
                    file: &rows.path,
                    offset: 0,
                },
                part,
                hex(&columnar.rows_blake3),
                hex(&found),
            ),
        }
        Ok(())
    }

    /// Compares the recorded row tree with the one of the rows: the block's, or the row file's if the
    /// block is external.
    fn tree(
        &mut self,
        block: &Block,
        columnar: &Columnar,
        rows: Option<&DataFile>,
    ) -> Result<(), Error> {
        if let Some(rebuilt) = rebuild(self.knot, block, columnar, rows)? {
            self.compare_tree(block, columnar, rebuilt);
        }
        Ok(())
    }

    /// Compares the recorded row tree, and the digest of its path table, with those of the rows.
    fn compare_tree(
        &mut self,
        block: &Block,
        columnar: &Columnar,
        (tree, paths): (RowTree, [u8; 32]),
    ) {
        self.report.trees += 1;
        let file = self.knot.path.as_path();
        let name = &block.name;
        if tree.root != columnar.tree_root {
            let (expected, found) = (short(&columnar.tree_root), short(&tree.root));
            self.differ(
                At { file, offset: 0 },
                format!("row tree root of `{name}`"),
                expected,
                found,
            );
        }
        let pinned = self
            .knot
            .knot
            .front_slice(&columnar.pinned_nodes)
            .unwrap_or_default();
        if tree.pinned_nodes != pinned {
            let at = At {
                file,
                offset: columnar.pinned_nodes.start,
            };
            let found = format!("others at node {}", first_node(&tree.pinned_nodes, pinned));
            let expected = "the nodes of the rows".to_owned();
            self.differ(at, format!("pinned nodes of `{name}`"), expected, found);
        }
        // The path table's own digest was checked; here it is checked that it belongs to these rows.
        let stored = self.knot.knot.section_of(name, SectionKind::PathTable);
        if let Some(stored) = stored
            .map(|section| section.blake3)
            .filter(|stored| *stored != paths)
        {
            let at = At {
                file,
                offset: columnar.path_table.start,
            };
            self.differ(
                at,
                format!("path table of `{name}`"),
                hex(&paths),
                hex(&stored),
            );
        }
    }

    fn differ(&mut self, at: At<'_>, part: String, expected: String, found: String) {
        self.report.differences.push(Difference {
            file: at.file.to_path_buf(),
            part,
            offset: at.offset,
            expected,
            found,
        });
    }
}

/// The row tree of a block's rows and the digest of its path table; `None` for a row file of the wrong
/// length, which is told elsewhere.
fn rebuild(
    knot: &KnotFile,
    block: &Block,
    columnar: &Columnar,
    rows: Option<&DataFile>,
) -> Result<Option<(RowTree, [u8; 32])>, Error> {
    let rows_error = Error::rows(&knot.path);
    let mut builder =
        RowTreeBuilder::new(columnar.rows, blake3::Hasher::new()).map_err(&rows_error)?;
    let row_bytes = u64::from(columnar.row_bytes).max(1);
    let chunk = (CHUNK_BYTES / row_bytes).max(1) * row_bytes;
    let width = usize::try_from(row_bytes).unwrap_or(usize::MAX);
    let push = |bytes: &[u8]| {
        bytes
            .chunks(width)
            .try_for_each(|row| builder.push(row))
            .map_err(&rows_error)
    };
    match rows {
        Some(rows) if rows.len_bytes != columnar.rows.saturating_mul(row_bytes) => return Ok(None),
        Some(rows) => knot_file::chunks(rows, &(0..rows.len_bytes), chunk, push)?,
        None => knot.chunks(&block.payload, chunk, push)?,
    }
    let (tree, paths) = builder.finish().map_err(&rows_error)?;
    Ok(Some((tree, *paths.finalize().as_bytes())))
}

/// The offset of the first byte in which a row file and a block of equal length differ.
fn first_difference(knot: &KnotFile, block: &Block, rows: &DataFile) -> Result<Option<u64>, Error> {
    let mut offset = 0_u64;
    let mut found = None;
    let mut theirs = Vec::new();
    knot.chunks(&block.payload, CHUNK_BYTES, |ours| {
        if found.is_none() {
            theirs.resize(ours.len(), 0);
            rows.read_at(&mut theirs, offset)?;
            let position = ours
                .iter()
                .zip(&theirs)
                .position(|(ours, theirs)| ours != theirs);
            found = position.map(|position| offset + position as u64);
            offset += ours.len() as u64;
        }
        Ok(())
    })?;
    Ok(found)
}

fn first_node(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .zip(other)
        .position(|(one, other)| one != other)
        .unwrap_or(0)
        / 16
}

fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

fn short(hash: &[u8; 16]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
