//! What can be wrong with a knot, each variant one meaning with its facts, and the place it is about.
//! Specification: the rules of `docs/format/gkq-v2.md`.

use std::fmt;

use crate::layout::MAGIC;
use crate::section::SectionKind;

/// Whose fault an [`Error`] is, and so what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes, or what the writer was asked to write, break a rule of the format: fetch or pack
    /// the knot again.
    Corrupt,
    /// The bytes ask for something this version does not know: use a newer reader.
    Unsupported,
    /// The caller of the writer left something out, or asked for what was never declared.
    Config,
}

/// The part of a knot that an [`Error`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The fixed header.
    Header,
    /// The front: header, tables, names and inline sections.
    Front,
    /// The block table entry with this number, before its name is known.
    BlockEntry(usize),
    /// The block with this tensor name.
    Block(String),
    /// A section, of the file or of one tensor.
    Section {
        /// What the section holds.
        kind: SectionKind,
        /// The tensor it belongs to.
        tensor: Option<String>,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => formatter.write_str("header"),
            Self::Front => formatter.write_str("front"),
            Self::BlockEntry(index) => write!(formatter, "block entry {index}"),
            Self::Block(name) => write!(formatter, "block {name:?}"),
            Self::Section { kind, tensor: None } => write!(formatter, "section {kind}"),
            Self::Section {
                kind,
                tensor: Some(name),
            } => {
                write!(formatter, "section {kind} of {name:?}")
            }
        }
    }
}

/// A knot that may not be read, or may not be written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not begin with the magic of a knot.
    #[error("not a knot: it begins with {}, expected {}", spaced_hex(found), spaced_hex(&MAGIC))]
    NotAKnot {
        /// The first bytes, at most eight.
        found: Vec<u8>,
    },
    /// A knot of a version that this crate does not read.
    #[error("knot version {found} is not supported, expected {supported}")]
    UnsupportedVersion {
        /// The version in the header.
        found: u32,
        /// The version that is read.
        supported: u32,
    },
    /// Fewer bytes than the front has.
    #[error("truncated front: {needed_bytes} bytes needed, {found_bytes} given")]
    Truncated {
        /// Bytes needed from offset 0.
        needed_bytes: u64,
        /// Bytes given.
        found_bytes: u64,
    },
    /// The object is not as long as its header says.
    #[error("the header declares an object of {expected_bytes} bytes, found {found_bytes}")]
    ObjectLength {
        /// The length in the header.
        expected_bytes: u64,
        /// The length of the object.
        found_bytes: u64,
    },
    /// Bytes do not have the BLAKE3 digest that is recorded for them.
    #[error(
        "{place}: digest mismatch: expected {}, found {}",
        hex(expected),
        hex(found)
    )]
    Digest {
        /// What was digested.
        place: Place,
        /// The recorded digest.
        expected: [u8; 32],
        /// The digest of the bytes.
        found: [u8; 32],
    },
    /// A count or length above its limit.
    #[error("{place}: {field} is {found}, the limit is {limit}")]
    Limit {
        /// Where the number stands.
        place: Place,
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The largest value allowed.
        limit: u64,
    },
    /// A count or length of zero where at least one is needed.
    #[error("{place}: {field} may not be zero")]
    Empty {
        /// Where the number stands.
        place: Place,
        /// The field.
        field: &'static str,
    },
    /// A required flag that this version does not know.
    #[error("{place}: unknown required flags {bits:#010x}: a newer reader is needed")]
    UnknownRequiredFlags {
        /// Where the flags stand.
        place: Place,
        /// The bits that are not known.
        bits: u32,
    },
    /// A code of an enumeration that this version does not know.
    #[error("{place}: unknown {field} {code}: a newer reader is needed")]
    UnknownCode {
        /// Where the code stands.
        place: Place,
        /// The field.
        field: &'static str,
        /// Its value.
        code: u32,
    },
    /// Reserved bytes that are not zero.
    #[error("{place}: {field} must be zero")]
    ReservedNotZero {
        /// Where the bytes stand.
        place: Place,
        /// Which bytes.
        field: &'static str,
    },
    /// A tensor name or a text that is not UTF-8.
    #[error("{place}: not valid utf-8")]
    NotUtf8 {
        /// The entry or section.
        place: Place,
    },
    /// Two blocks of one name.
    #[error("two blocks are named {name:?}")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A shape that the element type can't have, or whose byte count overflows.
    #[error("{place}: shape {shape:?} is not possible for {dtype}: {reason}")]
    Shape {
        /// The block.
        place: Place,
        /// The shape, outermost dimension first.
        shape: Vec<u64>,
        /// Name of the element type.
        dtype: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// A number that follows from others and does not agree with them.
    #[error("{place}: {field} is {found}, expected {expected}")]
    Mismatch {
        /// Where the number stands.
        place: Place,
        /// The field.
        field: &'static str,
        /// The value that follows from the rest.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// An error figure that is negative, infinite or not a number.
    #[error("{place}: the recorded error {found} is not a finite number of at least zero")]
    ErrorFigure {
        /// The block.
        place: Place,
        /// The figure.
        found: f64,
    },
    /// A figure that says how far a sketch is from its matrix, out of its range.
    #[error("{place}: {field} is {found}, expected {range}")]
    SketchFigure {
        /// The section.
        place: Place,
        /// The figure: `relative_error`, `mean_cosine`, `worst_cosine`.
        field: &'static str,
        /// Its range.
        range: &'static str,
        /// What it is.
        found: f64,
    },
    /// A row of a sketch whose scale is infinite or not a number.
    #[error("{place}: the scale of row {row} is {found}, expected a finite number")]
    SketchScale {
        /// The section.
        place: Place,
        /// The row.
        row: u64,
        /// Its scale.
        found: f32,
    },
    /// Properties that exclude each other.
    #[error("{place}: {rule}")]
    Contradiction {
        /// The block or section.
        place: Place,
        /// The rule that is broken.
        rule: &'static str,
    },
    /// A range that does not lie where its kind must lie.
    #[error(
        "{place}: bytes {start}..{end} leave their region, which is {region_start}..{region_end}"
    )]
    OutOfBounds {
        /// The block or section.
        place: Place,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// First byte of the region.
        region_start: u64,
        /// One past the last byte of the region.
        region_end: u64,
    },
    /// A range whose end does not fit into 64 bits.
    #[error("{place}: {bytes} bytes at offset {start} end beyond 64 bits")]
    RangeOverflow {
        /// The block or section.
        place: Place,
        /// First byte.
        start: u64,
        /// Length.
        bytes: u64,
    },
    /// A payload that does not start on a multiple of 64.
    #[error("{place}: offset {offset} is not a multiple of {align}")]
    Misaligned {
        /// The block or section.
        place: Place,
        /// Its first byte.
        offset: u64,
        /// The alignment.
        align: u64,
    },
    /// Bytes that two owners claim.
    #[error("{place}: offset {offset} lies before {previous_end}, the end of what precedes it")]
    Overlap {
        /// The later of the two.
        place: Place,
        /// Its first byte.
        offset: u64,
        /// One past the last byte of the earlier.
        previous_end: u64,
    },
    /// Bytes that nobody claims.
    #[error("{place}: offset is {offset}, expected {expected}: bytes between belong to nothing")]
    Gap {
        /// What comes after the gap; [`Place::Front`] or [`Place::Header`] for the end of a region.
        place: Place,
        /// Where it starts.
        offset: u64,
        /// Where it should start.
        expected: u64,
    },
    /// A block whose payload precedes that of the block before it in the table.
    #[error("{place}: its payload precedes that of the block before it in the table")]
    OutOfOrder {
        /// The block.
        place: Place,
    },
    /// Two sections of one kind for one owner.
    #[error("{place}: there are two of it")]
    DuplicateSection {
        /// The section.
        place: Place,
    },
    /// A section that belongs to the wrong owner, or to none.
    #[error("{place}: {rule}")]
    SectionOwner {
        /// The section.
        place: Place,
        /// The rule that is broken.
        rule: &'static str,
    },
    /// A columnar-eligible block lacks one of its sections.
    #[error("{place}: missing, but the tensor is columnar-eligible")]
    MissingSection {
        /// The section that should be there.
        place: Place,
    },
    /// The columnar section speaks of another tensor than its block.
    #[error(
        "{place}: the rows have digest {}, the block {}",
        hex(rows),
        hex(block)
    )]
    RowsDiffer {
        /// The section.
        place: Place,
        /// BLAKE3 of the row file.
        rows: [u8; 32],
        /// BLAKE3 of the block's payload.
        block: [u8; 32],
    },
    /// A hot id that is no row of its tensor, or stands in the list twice.
    #[error("hot id {id} at position {position} {reason}")]
    HotId {
        /// The id.
        id: u32,
        /// Its position in the list.
        position: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The writer was not given everything before `finish`.
    #[error("{place}: {what} was not recorded before finish")]
    NotRecorded {
        /// What it belongs to.
        place: Place,
        /// What is missing.
        what: &'static str,
    },
    /// The writer was asked about something that was never declared.
    #[error("{what} was not declared in this knot")]
    NotDeclared {
        /// What was asked for.
        what: String,
    },
}

impl Error {
    /// Whose fault this is.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::UnsupportedVersion { .. }
            | Self::UnknownRequiredFlags { .. }
            | Self::UnknownCode { .. } => ErrorKind::Unsupported,
            Self::NotRecorded { .. } | Self::NotDeclared { .. } => ErrorKind::Config,
            _ => ErrorKind::Corrupt,
        }
    }
}

/// Bytes as a hexdump writes them.
fn spaced_hex(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.join(" ")
}

/// Lower-case hexadecimal digits of a digest.
fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}
