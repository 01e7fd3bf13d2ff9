//! What a knot's sidecar says about its row file: the kinds of rows and what they cost.

use std::fmt;

use columnar_embed::Sidecar;
use serde::Serialize;

use super::hex;
use crate::pack::KindReport;

/// A row file whose rows are of several kinds.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SidecarSummary {
    /// Bytes of the sidecar.
    pub bytes: u64,
    /// Its digest, in hexadecimal.
    pub blake3: String,
    /// Bytes of the row file.
    pub table_bytes: u64,
    /// BLAKE3 of the row file, in hexadecimal.
    pub table_blake3: String,
    /// The rows by kind.
    pub kinds: Vec<KindReport>,
}

impl SidecarSummary {
    pub(super) fn of(sidecar: &Sidecar, bytes: u64) -> Self {
        Self {
            bytes,
            blake3: hex(&sidecar.blake3()),
            table_bytes: sidecar.table_bytes(),
            table_blake3: hex(&sidecar.table_blake3()),
            kinds: sidecar.palette().iter().map(KindReport::from).collect(),
        }
    }
}

impl fmt::Display for SidecarSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "  stored in several kinds, {} bytes in all, sidecar {} bytes",
            self.table_bytes, self.bytes
        )?;
        for kind in &self.kinds {
            writeln!(out, "    {kind}")?;
        }
        write!(out, "  stored     {}", self.table_blake3)
    }
}
