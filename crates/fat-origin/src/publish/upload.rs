//! One object to its place: not at all if it is there, in one request if it is small, in equal parts
//! otherwise, each part at most once over any number of interrupted runs. It decides nothing about the
//! order of objects and writes no manifest.

use std::path::PathBuf;

use futures::{StreamExt as _, TryStreamExt as _};
use object_store::multipart::PartId;
use object_store::{
    Attribute, Attributes, GetOptions, PutMode, PutMultipartOptions, PutOptions, PutPayload,
};
use serde::Serialize;

use super::destination::{Destination, MultipartHandle};
use super::failure::is_not_implemented;
use super::journal::Journal;
use super::objects::LocalObject;
use super::sample;
use crate::Error;
use crate::checkpoint::DataFile;
use crate::knot_file;
use crate::progress::Progress;

/// What every published object but the manifest says: it never changes, and nobody may recode it.
const IMMUTABLE: &str = "public, max-age=31536000, immutable, no-transform";
/// A type that no server compresses.
const OCTETS: &str = "application/octet-stream";
/// Parts that are on their way at once; each is held in memory.
const PARTS_IN_FLIGHT: usize = 4;
/// Ranges of an object that is there which are compared with the file.
const SAMPLES: u64 = 16;
/// Length of such a range.
const SAMPLE_BYTES: u64 = 4096;

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Outcome {
    /// It was not there and is now.
    Sent,
    /// An upload that had been cut was finished.
    Resumed,
    /// It was there: in a directory, every byte; in a bucket, the right length and the right bytes
    /// wherever they were looked at.
    Present,
    /// Something else was there under its name, and was replaced.
    Replaced,
}

/// One published object.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ObjectReport {
    /// Its name in the destination.
    pub object: String,
    /// `rows`, `index` or `knot`.
    pub kind: &'static str,
    /// Its length.
    pub bytes: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// Body bytes that this run sent for it.
    pub sent_bytes: u64,
    /// Requests that carry them: parts, or 1.
    pub sent_parts: u64,
    /// Parts that an earlier run had sent.
    pub skipped_parts: u64,
}

/// What is there under an object's name.
enum There {
    Nothing,
    Same,
    /// In what it differs, for people.
    Another(String),
}

/// Uploads to one destination.
pub(super) struct Uploader<'a> {
    pub(super) destination: &'a Destination,
    pub(super) bar: &'a Progress,
    pub(super) seed: u64,
    pub(super) warnings: &'a mut Vec<String>,
}

impl Uploader<'_> {
    /// Has `object` be there.
    ///
    /// # Errors
    /// [`Error::Store`] for the destination's refusal, [`Error::Malformed`] for a file that changed
    /// meanwhile.
    pub(super) async fn ensure(&mut self, object: &LocalObject) -> Result<ObjectReport, Error> {
        self.bar.on(&object.name);
        self.destination.check_regular(&object.name)?;
        let there = self.look(object).await?;
        let mut report = ObjectReport {
            object: object.name.clone(),
            kind: object.kind.word(),
            bytes: object.len_bytes(),
            outcome: Outcome::Sent,
            sent_bytes: 0,
            sent_parts: 0,
            skipped_parts: 0,
        };
        match there {
            There::Same => {
                report.outcome = Outcome::Present;
                self.bar.add(object.len_bytes());
                self.forget_upload(object).await;
                return Ok(report);
            }
            There::Another(found) => {
                self.warnings.push(format!(
                    "{} was there with other bytes than its name says ({found}); it is replaced, but \
                     caches in front may keep the old ones",
                    object.name
                ));
                report.outcome = Outcome::Replaced;
            }
            There::Nothing => {}
        }
        match self.destination.parts.clone() {
            Some(parts) if object.parts() > 1 => {
                self.in_parts(object, &*parts, &mut report).await?
            }
            _ if object.parts() > 1 => self.in_one_stream(object, &mut report).await?,
            _ => self.in_one_request(object, &mut report).await?,
        }
        let found = self.len_bytes(object).await?;
        if found != Some(object.len_bytes()) {
            return Err(Error::ReadBack {
                object: format!("{}/{}", self.destination.name(), object.name),
                part: "length after the upload".to_owned(),
                expected: object.len_bytes().to_string(),
                found: found.map_or("no object".to_owned(), |bytes| bytes.to_string()),
            });
        }
        Ok(report)
    }

    async fn len_bytes(&mut self, object: &LocalObject) -> Result<Option<u64>, Error> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let key = self.destination.key(&object.name);
        match self.destination.store.get_opts(&key, options).await {
            Ok(found) => {
                let cache_control = found.attributes.get(&Attribute::CacheControl);
                if self.destination.directory.is_none()
                    && cache_control.is_none_or(|value| &**value != IMMUTABLE)
                {
                    let said = cache_control.map_or("none", |value| &**value).to_owned();
                    self.warnings.push(format!(
                        "{}: Cache-Control is {said}, expected {IMMUTABLE}: caches will ask again",
                        object.name
                    ));
                }
                Ok(Some(found.meta.size))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.destination.refused("look for", &object.name)(error)),
        }
    }

    /// Compares what is there with the file: its length, then all of it where it is a file, else its
    /// two ends and ranges between.
    async fn look(&mut self, object: &LocalObject) -> Result<There, Error> {
        let len_bytes = object.len_bytes();
        match self.len_bytes(object).await? {
            None => return Ok(There::Nothing),
            Some(found) if found != len_bytes => {
                return Ok(There::Another(format!("{found} bytes, not {len_bytes}")));
            }
            Some(_) => {}
        }
        if let Some(directory) = &self.destination.directory {
            let found = digest(directory.join(&object.name)).await?;
            return Ok(match found == object.blake3() {
                true => There::Same,
                false => There::Another(format!("BLAKE3 {found}, not {}", object.blake3())),
            });
        }
        let last = len_bytes.saturating_sub(SAMPLE_BYTES);
        let starts = sample::numbers(self.seed, SAMPLES, last + 1).chain([0, last]);
        let ranges = starts.map(|start| start..start.saturating_add(SAMPLE_BYTES).min(len_bytes));
        let ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
        let key = self.destination.key(&object.name);
        let found = self.destination.store.get_ranges(&key, &ranges).await;
        let found = found.map_err(self.destination.refused("read", &object.name))?;
        for (range, found) in ranges.iter().zip(found) {
            let mut expected = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
            object.file.read_at(&mut expected, range.start)?;
            if found != expected {
                return Ok(There::Another(format!(
                    "in bytes {}..{}",
                    range.start, range.end
                )));
            }
        }
        Ok(There::Same)
    }

    fn attributes(&self) -> Attributes {
        // A directory has no place for them: whoever serves it sets them.
        match self.destination.directory {
            Some(_) => Attributes::new(),
            None => immutable(),
        }
    }

    async fn in_one_request(
        &mut self,
        object: &LocalObject,
        report: &mut ObjectReport,
    ) -> Result<(), Error> {
        let bytes = match object.parts() {
            0 => Vec::new(),
            _ => object.part(0)?,
        };
        let payload = PutPayload::from(bytes);
        let key = self.destination.key(&object.name);
        let put = |mode| {
            let options = PutOptions {
                mode,
                attributes: self.attributes(),
                ..PutOptions::default()
            };
            self.destination
                .store
                .put_opts(&key, payload.clone(), options)
        };
        // A rename is as good as a condition, and some file systems have no links to make one with.
        let unconditional =
            report.outcome == Outcome::Replaced || self.destination.directory.is_some();
        let mut done = match unconditional {
            true => put(PutMode::Overwrite).await,
            false => put(PutMode::Create).await,
        };
        if done.as_ref().is_err_and(is_not_implemented) {
            done = put(PutMode::Overwrite).await;
        }
        match done {
            Ok(_) => {
                report.sent_bytes = object.len_bytes();
                report.sent_parts = 1;
            }
            // Another publisher was quicker with the same bytes.
            Err(object_store::Error::AlreadyExists { .. })
                if matches!(self.look(object).await?, There::Same) =>
            {
                report.outcome = Outcome::Present;
            }
            Err(error) => return Err(self.destination.refused("write", &object.name)(error)),
        }
        self.bar.add(object.len_bytes());
        Ok(())
    }

    /// For stores that take parts in order only, and forget them when the process ends.
    async fn in_one_stream(
        &mut self,
        object: &LocalObject,
        report: &mut ObjectReport,
    ) -> Result<(), Error> {
        let refused = self.destination.refused("write", &object.name);
        let options = PutMultipartOptions::from(self.attributes());
        let key = self.destination.key(&object.name);
        let begun = self
            .destination
            .store
            .put_multipart_opts(&key, options)
            .await;
        let mut upload = begun.map_err(&refused)?;
        for index in 0..object.parts() {
            let sent = match object.part(index) {
                Ok(bytes) => {
                    let len = bytes.len() as u64;
                    let sent = upload.put_part(PutPayload::from(bytes)).await;
                    sent.map(|()| len).map_err(&refused)
                }
                Err(error) => Err(error),
            };
            match sent {
                Ok(len) => {
                    report.sent_bytes += len;
                    report.sent_parts += 1;
                    self.bar.add(len);
                }
                Err(error) => {
                    // The half that is there is nobody's; what failed matters more than this.
                    let _ = upload.abort().await;
                    return Err(error);
                }
            }
        }
        upload.complete().await.map_err(&refused)?;
        Ok(())
    }

    /// Parts in any order, noted as they arrive. An upload that the store does not know any more, or
    /// whose parts it lost, is begun anew once.
    async fn in_parts(
        &mut self,
        object: &LocalObject,
        parts: &dyn MultipartHandle,
        report: &mut ObjectReport,
    ) -> Result<(), Error> {
        let mut journal = Journal::open(object, self.destination.identity());
        let begun = journal
            .as_ref()
            .and_then(|journal| journal.begun(object))
            .map(|(upload, fits)| (upload.upload_id.clone(), fits));
        if let Some((upload_id, fits)) = begun {
            if fits {
                match self
                    .send(object, parts, &upload_id, &mut journal, report)
                    .await
                {
                    Ok(()) => {
                        if report.outcome == Outcome::Sent {
                            report.outcome = Outcome::Resumed;
                        }
                        journal.into_iter().for_each(Journal::remove);
                        return Ok(());
                    }
                    Err(error) if !upload_is_lost(&error) => return Err(error),
                    Err(error) => tracing::warn!("{error}; the upload begins anew"),
                }
            }
            report.skipped_parts = 0;
            self.abandon(parts, &object.name, &upload_id).await;
        }
        let key = self.destination.key(&object.name);
        let options = PutMultipartOptions::from(self.attributes());
        let begun = match parts.create_multipart_opts(&key, options).await {
            // Nothing but attributes was asked for; a store without them takes the bytes.
            Err(error) if is_not_implemented(&error) => parts.create_multipart(&key).await,
            begun => begun,
        };
        let upload_id = begun.map_err(
            self.destination
                .refused("begin the upload of", &object.name),
        )?;
        if let Some(journal) = &mut journal {
            journal.begin(object, &upload_id);
        }
        self.send(object, parts, &upload_id, &mut journal, report)
            .await?;
        journal.into_iter().for_each(Journal::remove);
        Ok(())
    }

    /// Sends what the journal does not have and completes the upload.
    #[expect(
        clippy::too_many_arguments,
        reason = "what is sent, where to, what is there, and what is told of it"
    )]
    async fn send(
        &mut self,
        object: &LocalObject,
        parts: &dyn MultipartHandle,
        upload_id: &str,
        journal: &mut Option<Journal>,
        report: &mut ObjectReport,
    ) -> Result<(), Error> {
        let key = self.destination.key(&object.name);
        let upload_id = upload_id.to_owned();
        let noted = journal.as_ref().map(|journal| journal.parts().clone());
        let mut ids = noted.unwrap_or_default();
        ids.retain(|&index, _| index < object.parts());
        report.skipped_parts = ids.len() as u64;
        let missing: Vec<_> = (0..object.parts())
            .filter(|index| !ids.contains_key(index))
            .collect();
        let skipped: u64 = ids.keys().map(|&index| object.part_len_bytes(index)).sum();
        self.bar.add(skipped);
        let refused = self.destination.refused("send a part of", &object.name);
        let sent = futures::stream::iter(missing).map(|index| {
            let (key, upload_id, refused) = (&key, &upload_id, &refused);
            async move {
                let bytes = object.part(index)?;
                let len = bytes.len() as u64;
                let sent = parts
                    .put_part(key, upload_id, index, PutPayload::from(bytes))
                    .await;
                sent.map(|part| (index, len, part.content_id))
                    .map_err(refused)
            }
        });
        let mut sent = sent.buffer_unordered(PARTS_IN_FLIGHT);
        while let Some((index, len, id)) = sent.try_next().await? {
            if let Some(journal) = journal {
                journal.note(index, &id);
            }
            ids.insert(index, id);
            report.sent_bytes += len;
            report.sent_parts += 1;
            self.bar.add(len);
        }
        drop(sent);
        let ids = ids
            .into_values()
            .map(|content_id| PartId { content_id })
            .collect();
        let completed = parts.complete_multipart(&key, &upload_id, ids).await;
        completed.map_err(
            self.destination
                .refused("complete the upload of", &object.name),
        )?;
        Ok(())
    }

    /// The object is there; if an upload of it was begun, nobody needs it.
    async fn forget_upload(&mut self, object: &LocalObject) {
        if object.parts() < 2 {
            return;
        }
        let Some(parts) = self.destination.parts.clone() else {
            return;
        };
        let Some(journal) = Journal::open(object, self.destination.identity()) else {
            return;
        };
        if let Some((upload, _)) = journal.begun(object) {
            let upload_id = upload.upload_id.clone();
            self.abandon(&*parts, &object.name, &upload_id).await;
        }
        journal.remove();
    }

    /// Has the store drop the parts of an upload. One that is gone already is as good.
    pub(super) async fn abandon(&self, parts: &dyn MultipartHandle, object: &str, upload_id: &str) {
        let key = self.destination.key(object);
        if let Err(error) = parts.abort_multipart(&key, &upload_id.to_owned()).await {
            tracing::debug!(
                "{}",
                self.destination.refused("abandon the upload of", object)(error)
            );
        }
    }
}

/// Whether another attempt with an upload of its own may do better: the store answered, and about the
/// upload. Gateways have no common word for one they forgot.
fn upload_is_lost(error: &Error) -> bool {
    use super::StoreFault;
    matches!(
        error,
        Error::Store { fault, .. }
            if !matches!(fault, StoreFault::Unreachable | StoreFault::FileSystem)
    )
}

/// The BLAKE3 of a file, on a thread that may block.
async fn digest(path: PathBuf) -> Result<blake3::Hash, Error> {
    let digested = tokio::task::spawn_blocking(move || {
        let file = DataFile::open(&path)?;
        knot_file::digest(&file, &(0..file.len_bytes), |_| ())
    });
    let digest = digested.await.unwrap_or(Err(Error::Interrupted))?;
    Ok(blake3::Hash::from_bytes(digest))
}

fn immutable() -> Attributes {
    Attributes::from_iter([
        (Attribute::CacheControl, IMMUTABLE),
        (Attribute::ContentType, OCTETS),
    ])
}
