//! What is published: the files, digested and named by their content, with what the manifest says about
//! them. It reads files and talks to nobody.

use std::path::{Path, PathBuf};

use gkq_v2::{Columnar, SectionKind};

use super::manifest::{KnotEntry, Manifest, ObjectEntry, RowsEntry};
use super::{PublishOptions, Stop};
use crate::Error;
use crate::checkpoint::{DataFile, EMBEDDING};
use crate::knot_file::KnotFile;

use crate::progress::Progress;

/// Digits of a BLAKE3 in hexadecimal.
const DIGEST_DIGITS: usize = 64;

/// What an object is, and so how it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rows,
    Sidecar,
    Knot,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Rows, Self::Sidecar, Self::Knot];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Sidecar => "index",
            Self::Knot => "knot",
        }
    }

    const fn extension(self) -> &'static str {
        match self {
            Self::Rows => "bin",
            Self::Sidecar => "idx",
            Self::Knot => "gkq",
        }
    }
}

/// Whether `name` is one that [`LocalObject`] gives.
pub(super) fn is_object_name(name: &str) -> bool {
    Kind::ALL.iter().any(|kind| {
        name.strip_prefix(kind.word())
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(kind.extension()))
            .and_then(|rest| rest.strip_suffix('.'))
            .is_some_and(|digest| {
                digest.len() == DIGEST_DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
    })
}

/// A file and the object it becomes.
#[derive(Debug)]
pub(super) struct LocalObject {
    pub(super) kind: Kind,
    /// `rows-<blake3>.bin` and the like.
    pub(super) name: String,
    pub(super) file: DataFile,
    /// Length of every part but the last.
    pub(super) part_bytes: u64,
    /// BLAKE3 of each part as it was when the whole was digested: a file that changes later is
    /// noticed before the changed part is sent.
    part_digests: Vec<[u8; 32]>,
    blake3: blake3::Hash,
}

impl LocalObject {
    fn digest(path: &Path, kind: Kind, pace: &Pace<'_>) -> Result<Self, Error> {
        let file = DataFile::open(path)?;
        let part_bytes = part_bytes(file.len_bytes, pace.part_bytes);
        let mut whole = blake3::Hasher::new();
        let mut part_digests = Vec::new();
        let mut buffer = Vec::new();
        let mut offset = 0;
        while offset < file.len_bytes {
            pace.stop.check()?;
            let len = part_bytes.min(file.len_bytes - offset);
            buffer.resize(usize::try_from(len).unwrap_or(0), 0);
            file.read_at(&mut buffer, offset)?;
            whole.update(&buffer);
            part_digests.push(*blake3::hash(&buffer).as_bytes());
            pace.bar.add(len);
            offset += len;
        }
        let blake3 = whole.finalize();
        Ok(Self {
            kind,
            name: format!("{}-{}.{}", kind.word(), blake3.to_hex(), kind.extension()),
            file,
            part_bytes,
            part_digests,
            blake3,
        })
    }

    pub(super) fn parts(&self) -> usize {
        self.part_digests.len()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.file.len_bytes
    }

    pub(super) fn blake3(&self) -> blake3::Hash {
        self.blake3
    }

    /// Length of a part.
    pub(super) fn part_len_bytes(&self, index: usize) -> u64 {
        let offset = self.part_bytes.saturating_mul(index as u64);
        self.part_bytes
            .min(self.file.len_bytes.saturating_sub(offset))
    }

    /// Bytes of a part, checked against what was digested.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the file changed since.
    pub(super) fn part(&self, index: usize) -> Result<Vec<u8>, Error> {
        let offset = self.part_bytes.saturating_mul(index as u64);
        let len = self.part_len_bytes(index);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.file.read_at(&mut bytes, offset)?;
        let found = blake3::hash(&bytes);
        match self.part_digests.get(index) {
            Some(expected) if expected == found.as_bytes() => Ok(bytes),
            expected => Err(Error::malformed(
                &self.file.path,
                format!("bytes {offset}..{}", offset.saturating_add(len)),
                expected.map_or("nothing".to_owned(), |digest| {
                    format!(
                        "BLAKE3 {}, as when it was digested for its name",
                        blake3::Hash::from_bytes(*digest)
                    )
                }),
                found.to_string(),
            )),
        }
    }

    fn entry(&self) -> ObjectEntry {
        ObjectEntry {
            object: self.name.clone(),
            bytes: self.len_bytes(),
            blake3: self.blake3.to_string(),
        }
    }
}

/// How the digesting goes.
struct Pace<'a> {
    part_bytes: u64,
    stop: &'a Stop,
    bar: &'a Progress,
}

/// Most parts of one object that S3 and R2 take.
const MAX_PARTS: u64 = 10_000;

/// A part's length: as asked, or longer by whole MiB if more parts than are allowed would come of it.
fn part_bytes(object_bytes: u64, asked: u64) -> u64 {
    let asked = asked.max(1);
    let least = object_bytes.div_ceil(MAX_PARTS);
    if least <= asked {
        asked
    } else {
        least.next_multiple_of(1 << 20)
    }
}

/// The files of a model, named, and the manifest that names them.
#[derive(Debug)]
pub(super) struct Plan {
    /// In the order they are sent.
    pub(super) objects: Vec<LocalObject>,
    pub(super) manifest: Manifest,
    pub(super) knot: KnotFile,
}

impl Plan {
    /// Checks the files as `fat-origin verify` does, then digests them.
    ///
    /// # Errors
    /// [`Error::Difference`] for bytes that are not what the knot says, [`Error::Option`] for files
    /// that do not go together.
    pub(super) fn make(options: &PublishOptions) -> Result<Self, Error> {
        let knot = KnotFile::open(&options.knot)?;
        let rows = rows_path(&knot, options)?;
        let report = crate::verify::verify(&options.knot, rows.as_deref())?;
        if let Some(difference) = report.differences.first() {
            return Err(Error::Difference {
                path: difference.file.clone(),
                part: difference.part.clone(),
                offset: difference.offset,
                expected: difference.expected.clone(),
                found: difference.found.clone(),
            });
        }
        options.stop.check()?;
        let bar = Progress::new("digesting");
        let pace = Pace {
            part_bytes: options.part_bytes,
            stop: &options.stop,
            bar: &bar,
        };
        let object = |path: &Path, kind| LocalObject::digest(path, kind, &pace);
        let rows = rows.map(|path| object(&path, Kind::Rows)).transpose()?;
        let sidecar = sidecar_path(&knot, rows.as_ref(), options);
        let sidecar = sidecar
            .map(|path| object(&path, Kind::Sidecar))
            .transpose()?;
        if let Some(sidecar) = &sidecar {
            check_sidecar(&knot, sidecar)?;
        }
        let local = object(&options.knot, Kind::Knot)?;
        let rows_entry = match &rows {
            Some(rows) => Some(rows_entry(&knot, rows, sidecar.as_ref())?),
            None => None,
        };
        let manifest = Manifest::new(
            model_name(options)?,
            KnotEntry {
                entry: local.entry(),
                front_bytes: knot.knot.front_bytes(),
                front_blake3: blake3::Hash::from_bytes(knot.knot.front_blake3()).to_string(),
            },
            rows_entry,
        );
        // The knot goes last: it is what makes a model visible to those who guess names.
        let objects = rows.into_iter().chain(sidecar).chain([local]).collect();
        Ok(Self {
            objects,
            manifest,
            knot,
        })
    }

    pub(super) fn object(&self, kind: Kind) -> Option<&LocalObject> {
        self.objects.iter().find(|object| object.kind == kind)
    }
}

/// The table of the knot's vocabulary matrix.
pub(super) fn table(knot: &KnotFile) -> Option<&Columnar> {
    knot.knot.block(EMBEDDING)?.columnar.as_ref()
}

/// The row file: as asked, or beside the knot, or none if the knot holds the matrix itself.
fn rows_path(knot: &KnotFile, options: &PublishOptions) -> Result<Option<PathBuf>, Error> {
    if let Some(rows) = &options.rows {
        return Ok(Some(rows.clone()));
    }
    let beside = options.knot.with_extension("rows");
    if beside.is_file() {
        return Ok(Some(beside));
    }
    // The row tree of rows of several kinds is not over the rows of the block.
    let of_several_kinds = table(knot).is_some_and(|table| table.row_sidecar.is_some());
    match knot.knot.block(EMBEDDING) {
        Some(block) if !block.is_external() && !of_several_kinds => Ok(None),
        _ => Err(Error::Option {
            option: "--rows",
            reason: format!(
                "`{}` does not hold the rows itself and `{}` is not there",
                options.knot.display(),
                beside.display()
            ),
        }),
    }
}

/// The sidecar: as asked, or beside the rows where pack writes it and the knot has a copy.
fn sidecar_path(
    knot: &KnotFile,
    rows: Option<&LocalObject>,
    options: &PublishOptions,
) -> Option<PathBuf> {
    if let Some(sidecar) = &options.sidecar {
        return Some(sidecar.clone());
    }
    table(knot)?.row_sidecar.as_ref()?;
    let beside = rows?.file.path.with_extension("embed-rows.idx");
    beside.is_file().then_some(beside)
}

/// The sidecar must be the one of the knot, or two readers would find different rows.
fn check_sidecar(knot: &KnotFile, sidecar: &LocalObject) -> Result<(), Error> {
    let section = knot.knot.section_of(EMBEDDING, SectionKind::RowSidecar);
    let section = section.ok_or_else(|| Error::Option {
        option: "--sidecar",
        reason: format!("`{}` has no sidecar for its rows", knot.path.display()),
    })?;
    let expected = blake3::Hash::from_bytes(section.blake3);
    if sidecar.blake3 == expected {
        return Ok(());
    }
    Err(Error::Difference {
        path: sidecar.file.path.clone(),
        part: "sidecar".to_owned(),
        offset: 0,
        expected: format!("BLAKE3 {expected}, as in the knot"),
        found: sidecar.blake3.to_string(),
    })
}

fn rows_entry(
    knot: &KnotFile,
    rows: &LocalObject,
    sidecar: Option<&LocalObject>,
) -> Result<RowsEntry, Error> {
    let table = table(knot).ok_or_else(|| Error::Option {
        option: "--rows",
        reason: format!(
            "`{}` has no columnar-eligible tensor `{EMBEDDING}`",
            knot.path.display()
        ),
    })?;
    Ok(RowsEntry {
        entry: rows.entry(),
        tensor: EMBEDDING.to_owned(),
        rows: table.rows,
        row_bytes: table.row_bytes,
        dtype: table.dtype.name().to_owned(),
        sidecar: sidecar.map(LocalObject::entry),
    })
}

fn model_name(options: &PublishOptions) -> Result<String, Error> {
    if let Some(name) = &options.name {
        return Ok(name.clone());
    }
    let stem = options.knot.file_stem().unwrap_or_default();
    Ok(stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_asked_unless_there_would_be_too_many() {
        assert_eq!(part_bytes(100, 8 << 20), 8 << 20);
        assert_eq!(part_bytes(80_000 << 20, 8 << 20), 8 << 20, "10,000 parts");
        assert_eq!(part_bytes((80_000 << 20) + 1, 8 << 20), 9 << 20);
        assert_eq!(
            part_bytes(u64::MAX, 1),
            u64::MAX.div_ceil(MAX_PARTS).next_multiple_of(1 << 20)
        );
        assert_eq!(part_bytes(0, 0), 1);
    }

    #[test]
    fn a_file_that_changes_is_noticed_before_its_part_is_sent() {
        use std::os::unix::fs::FileExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; 10]).unwrap();
        let (stop, bar) = (Stop::default(), Progress::new("digesting"));
        let pace = Pace {
            part_bytes: 4,
            stop: &stop,
            bar: &bar,
        };
        let object = LocalObject::digest(file.path(), Kind::Rows, &pace).unwrap();
        assert_eq!(object.parts(), 3);
        assert_eq!(object.part(2).unwrap(), [7, 7]);
        file.as_file().write_all_at(&[8], 5).unwrap();
        assert_eq!(object.part(0).unwrap(), [7; 4]);
        let error = object.part(1).unwrap_err().to_string();
        assert!(error.contains("bytes 4..8"), "{error}");
        file.as_file().set_len(8).unwrap();
        object.part(2).unwrap_err();
    }

    #[test]
    fn names_are_known_again() {
        let digest = "0f".repeat(32);
        for name in [
            format!("rows-{digest}.bin"),
            format!("knot-{digest}.gkq"),
            format!("index-{digest}.idx"),
        ] {
            assert!(is_object_name(&name), "{name}");
        }
        for name in [
            format!("rows-{digest}.gkq"),
            format!("rows-{digest}bin"),
            "rows-ab.bin".to_owned(),
            format!("x{digest}.bin"),
        ] {
            assert!(!is_object_name(&name), "{name}");
        }
    }
}
