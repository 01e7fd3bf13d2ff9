//! The fixed header: what a reader must know before it can ask for the rest of the front.
//! No tables here. Specification: `docs/format/gkq-v2.md`, header.

use crate::error::{Error, Place};
use crate::flags::refuse_unknown_required;
use crate::layout::{MAGIC, PAYLOAD_ALIGN, VERSION, header as at};
use crate::limits::{BLOCKS_MAX, FRONT_MAX_BYTES, SECTIONS_MAX};
use crate::num::length;

/// Bytes of the fixed header, the least that [`Knot::front_len`](crate::Knot::front_len) needs.
pub const HEADER_BYTES: usize = at::BYTES;

/// The header's numbers, checked on their own.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) flags: u32,
    pub(crate) object_bytes: u64,
    pub(crate) front_bytes: u64,
    pub(crate) block_count: u32,
    pub(crate) section_count: u32,
    pub(crate) names_bytes: u32,
    pub(crate) front_blake3: [u8; 32],
}

impl Header {
    /// Reads the header from the first bytes of a knot; what follows it is not looked at.
    pub(crate) fn parse(prefix: &[u8]) -> Result<Self, Error> {
        let seen = prefix
            .iter()
            .zip(&MAGIC)
            .all(|(found, expected)| found == expected);
        if !seen {
            return Err(Error::NotAKnot {
                found: prefix.iter().copied().take(MAGIC.len()).collect(),
            });
        }
        let Some(record) = prefix.first_chunk::<{ at::BYTES }>() else {
            return Err(Error::Truncated {
                needed_bytes: length(at::BYTES),
                found_bytes: length(prefix.len()),
            });
        };
        let version = at::VERSION.u32(record);
        if version != VERSION {
            return Err(Error::UnsupportedVersion {
                found: version,
                supported: VERSION,
            });
        }
        let header = Self {
            flags: at::FLAGS.u32(record),
            object_bytes: at::OBJECT_BYTES.u64(record),
            front_bytes: at::FRONT_BYTES.u64(record),
            block_count: at::BLOCK_COUNT.u32(record),
            section_count: at::SECTION_COUNT.u32(record),
            names_bytes: at::NAMES_BYTES.u32(record),
            front_blake3: at::FRONT_BLAKE3.read(record),
        };
        refuse_unknown_required(header.flags, 0, || Place::Header)?;
        if at::RESERVED.read(record).iter().any(|&byte| byte != 0) {
            return Err(Error::ReservedNotZero {
                place: Place::Header,
                field: "reserved",
            });
        }
        header.check()?;
        Ok(header)
    }

    /// The rules that concern the header alone. The writer applies them too.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let limit = |field, found: u64, limit: u64| {
            if found > limit {
                return Err(Error::Limit {
                    place: Place::Header,
                    field,
                    found,
                    limit,
                });
            }
            Ok(())
        };
        limit("front_bytes", self.front_bytes, FRONT_MAX_BYTES)?;
        limit("block_count", self.block_count.into(), BLOCKS_MAX.into())?;
        limit(
            "section_count",
            self.section_count.into(),
            SECTIONS_MAX.into(),
        )?;
        if !self.front_bytes.is_multiple_of(PAYLOAD_ALIGN) {
            return Err(Error::Misaligned {
                place: Place::Front,
                offset: self.front_bytes,
                align: PAYLOAD_ALIGN,
            });
        }
        if self.front_bytes > self.object_bytes {
            return Err(Error::OutOfBounds {
                place: Place::Front,
                start: 0,
                end: self.front_bytes,
                region_start: 0,
                region_end: self.object_bytes,
            });
        }
        Ok(())
    }

    /// The bytes of the header.
    pub(crate) fn encode(&self) -> [u8; at::BYTES] {
        let mut record = [0; at::BYTES];
        at::MAGIC.write(&mut record, MAGIC);
        at::VERSION.write(&mut record, VERSION.to_le_bytes());
        at::FLAGS.write(&mut record, self.flags.to_le_bytes());
        at::OBJECT_BYTES.write(&mut record, self.object_bytes.to_le_bytes());
        at::FRONT_BYTES.write(&mut record, self.front_bytes.to_le_bytes());
        at::BLOCK_COUNT.write(&mut record, self.block_count.to_le_bytes());
        at::SECTION_COUNT.write(&mut record, self.section_count.to_le_bytes());
        at::NAMES_BYTES.write(&mut record, self.names_bytes.to_le_bytes());
        at::FRONT_BLAKE3.write(&mut record, self.front_blake3);
        record
    }
}

/// The digest of a front: all of it but the place where the digest stands.
pub(crate) fn front_digest(front: &[u8]) -> [u8; 32] {
    let (before, rest) = front
        .split_at_checked(at::FRONT_BLAKE3_OFFSET)
        .unwrap_or((front, &[]));
    let (_, after) = rest.split_at_checked(blake3::OUT_LEN).unwrap_or_default();
    *blake3::Hasher::new()
        .update(before)
        .update(after)
        .finalize()
        .as_bytes()
}
