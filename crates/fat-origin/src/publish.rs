//! A packed model to where stations find it: a directory or a bucket. Objects are named by their
//! content, so they never change; the manifest, which names them, is written last and in one piece, so
//! whoever reads it before, during or after sees one whole version. Specification of the manifest:
//! `docs/format/manifest.md`; a walk through it: `docs/publish-to-r2.md`.
//!
//! It packs nothing, deletes nothing that it did not replace, and keeps no list of what was published.

mod bounded_http;
mod destination;
mod failure;
mod journal;
mod manifest;
mod objects;
mod read_back;
mod sample;
mod store_source;
mod upload;

use std::path::PathBuf;

use object_store::{Attribute, Attributes, ObjectStoreExt as _, PutOptions, PutPayload};
use serde::Serialize;

pub use destination::{Destination, MultipartHandle};
pub use failure::StoreFault;
pub use read_back::{ReadBack, ReadBackReport};
pub use upload::{ObjectReport, Outcome};

use crate::Error;
use crate::pack::Stop;
use crate::progress::Progress;
use objects::Plan;
use read_back::Way;
use upload::Uploader;

/// Length of a part unless asked otherwise: four of them are in memory, and 10,000 make 84 GB.
pub const DEFAULT_PART_BYTES: u64 = 8 << 20;
/// The shortest part that S3 and R2 take, but for the last.
pub const MIN_PART_BYTES: u64 = 5 << 20;
/// The longest part that may be asked for; four are held in memory.
pub const MAX_PART_BYTES: u64 = 1 << 30;
/// Rows that are read back unless asked otherwise.
pub const DEFAULT_READ_BACK_ROWS: u64 = 32;
/// The manifest's name unless asked otherwise.
pub const DEFAULT_MANIFEST: &str = manifest::DEFAULT_NAME;

/// Objects longer than this are not cached on some plans of content networks, which then answer every
/// range with the whole object.
const CACHEABLE_BYTES: u64 = 512_000_000;
/// The manifest may be a minute old in caches: what it named a minute ago is still there.
const MUTABLE: &str = "public, max-age=60, no-transform";

/// What to publish.
#[derive(Clone, Debug)]
pub struct PublishOptions {
    /// The knot.
    pub knot: PathBuf,
    /// The row file; `STEM.rows` beside the knot if not given, or none if the knot holds its matrix
    /// and there is no such file.
    pub rows: Option<PathBuf>,
    /// The sidecar of a row file with rows of several kinds.
    pub sidecar: Option<PathBuf>,
    /// The model's name in the manifest; the knot's stem if not given.
    pub name: Option<String>,
    /// File name of the manifest.
    pub manifest: String,
    /// URL of the folder that the objects appear in; read back through it if given.
    pub public_url: Option<String>,
    /// Length of a part of a multipart upload, in bytes.
    pub part_bytes: u64,
    /// How much is read back and proved.
    pub read_back: ReadBack,
    /// Decides which rows and ranges those are.
    pub seed: u64,
    /// Stops the digesting; dropping the future of [`publish`] stops the rest.
    pub stop: Stop,
}

impl PublishOptions {
    /// Options for a knot, everything else by default.
    #[must_use]
    pub fn new(knot: PathBuf) -> Self {
        Self {
            knot,
            rows: None,
            sidecar: None,
            name: None,
            manifest: DEFAULT_MANIFEST.to_owned(),
            public_url: None,
            part_bytes: DEFAULT_PART_BYTES,
            read_back: ReadBack::default(),
            seed: 0,
            stop: Stop::default(),
        }
    }
}

/// What was published.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PublishReport {
    /// The destination, without credentials.
    pub destination: String,
    /// The manifest's file name.
    pub manifest: String,
    /// Its public URL, if one was given: what `fat-station --columnar-embed` takes.
    pub manifest_url: Option<String>,
    /// Whether the manifest was written; `false` where the same bytes were there.
    pub manifest_written: bool,
    /// The objects, in the order they were sent.
    pub objects: Vec<ObjectReport>,
    /// Body bytes that this run sent, the manifest among them.
    pub sent_bytes: u64,
    /// What was read back before the manifest was written.
    pub read_back: ReadBackReport,
    /// Multipart uploads of earlier runs that nobody needs any more and that were abandoned.
    pub abandoned_uploads: u64,
    /// What works but deserves a look.
    pub warnings: Vec<String>,
}

/// Publishes a model. The future may be dropped at any moment: what was published before stays whole,
/// and the next call goes on where this one was.
///
/// # Errors
/// [`Error::Difference`] or [`Error::Knot`] for files that are not intact, [`Error::Option`] for what
/// cannot be asked, [`Error::Store`] for a destination that refuses or is not reached,
/// [`Error::ReadBack`], [`Error::ReadBackFailed`] and [`Error::RowsBack`] if what was sent cannot be
/// read as it was sent; the manifest is not written then.
pub async fn publish(
    options: &PublishOptions,
    destination: &Destination,
) -> Result<PublishReport, Error> {
    manifest::check_name(&options.manifest)?;
    let way = Way::new(options, destination)?;
    destination.check().await?;
    let previous = previous_manifest(options, destination).await?;
    let plan = plan(options.clone()).await?;
    let manifest = plan.manifest.to_bytes()?;
    let mut warnings = size_warnings(&plan);
    let bar = Progress::new("publishing");
    bar.set_total(
        plan.objects
            .iter()
            .map(objects::LocalObject::len_bytes)
            .sum(),
    );
    let mut uploader = Uploader {
        destination,
        bar: &bar,
        seed: options.seed,
        warnings: &mut warnings,
    };
    let abandoned_uploads = abandon_stale(&uploader, &plan).await;
    let mut reports = Vec::with_capacity(plan.objects.len());
    for object in &plan.objects {
        options.stop.check()?;
        reports.push(uploader.ensure(object).await?);
    }
    let read_back = read_back::read_back(&plan, &way, options).await?;
    options.stop.check()?;
    let manifest_written = previous.as_deref() != Some(manifest.as_slice());
    let mut sent_bytes = reports.iter().map(|report| report.sent_bytes).sum();
    if manifest_written {
        sent_bytes += manifest.len() as u64;
        write_manifest(options, destination, manifest).await?;
    }
    Ok(PublishReport {
        destination: destination.name().to_owned(),
        manifest: options.manifest.clone(),
        manifest_url: way.url(&options.manifest),
        manifest_written,
        objects: reports,
        sent_bytes,
        read_back,
        abandoned_uploads,
        warnings,
    })
}

/// The files are read on a thread that may block.
async fn plan(options: PublishOptions) -> Result<Plan, Error> {
    let planned = tokio::task::spawn_blocking(move || Plan::make(&options)).await;
    planned.unwrap_or(Err(Error::Interrupted))
}

/// The manifest that is there. What is there under its name and is no manifest is somebody else's: a
/// web application has a `manifest.json` too.
async fn previous_manifest(
    options: &PublishOptions,
    destination: &Destination,
) -> Result<Option<Vec<u8>>, Error> {
    destination.check_regular(&options.manifest)?;
    let key = destination.key(&options.manifest);
    let refused = destination.refused("read", &options.manifest);
    let foreign = |found: String| Error::Option {
        option: "--manifest",
        reason: format!(
            "{}/{} is there and is no manifest of a model ({found}); give another name or another \
             destination",
            destination.name(),
            options.manifest
        ),
    };
    let found = match destination.store.get(&key).await {
        Ok(found) => found,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) if bounded_http::is_too_long(&error) => {
            return Err(foreign(failure::explain(&error).1));
        }
        Err(error) => return Err(refused(error)),
    };
    if found.meta.size > manifest::MAX_BYTES as u64 {
        return Err(foreign(format!("{} bytes", found.meta.size)));
    }
    let bytes = found.bytes().await.map_err(refused)?;
    if manifest::is_manifest(&bytes) {
        Ok(Some(bytes.to_vec()))
    } else {
        Err(foreign("it does not say `fat-station manifest`".to_owned()))
    }
}

async fn write_manifest(
    options: &PublishOptions,
    destination: &Destination,
    bytes: Vec<u8>,
) -> Result<(), Error> {
    let attributes = match destination.directory {
        Some(_) => Attributes::new(),
        None => Attributes::from_iter([
            (Attribute::CacheControl, MUTABLE),
            (Attribute::ContentType, "application/json"),
        ]),
    };
    let key = destination.key(&options.manifest);
    let put =
        destination
            .store
            .put_opts(&key, PutPayload::from(bytes), PutOptions::from(attributes));
    put.await
        .map_err(destination.refused("write", &options.manifest))?;
    Ok(())
}

fn size_warnings(plan: &Plan) -> Vec<String> {
    let long = plan
        .objects
        .iter()
        .filter(|object| object.len_bytes() > CACHEABLE_BYTES);
    long.map(|object| {
        format!(
            "{} has {} bytes: some content networks do not cache objects above {CACHEABLE_BYTES} bytes, \
             and answer ranges of them with the whole object; stations refuse such answers",
            object.name,
            object.len_bytes()
        )
    })
    .collect()
}

/// Gives up uploads that were begun from these folders and are of objects nobody publishes any more:
/// their parts are stored and charged for until somebody does.
async fn abandon_stale(uploader: &Uploader<'_>, plan: &Plan) -> u64 {
    let destination = uploader.destination;
    let Some(parts) = &destination.parts else {
        return 0;
    };
    let names: Vec<&str> = plan
        .objects
        .iter()
        .map(|object| object.name.as_str())
        .collect();
    let mut abandoned = 0;
    for object in &plan.objects {
        for (journal, upload) in journal::stale(&object.file.path, destination.identity(), &names) {
            uploader
                .abandon(&**parts, &upload.object, &upload.upload_id)
                .await;
            // Without its journal the upload is known to nobody here.
            let _ = std::fs::remove_file(journal);
            abandoned += 1;
        }
    }
    abandoned
}
