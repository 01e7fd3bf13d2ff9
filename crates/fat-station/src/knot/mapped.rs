//! Payloads of a mapped knot: views, each hashed before it is handed out. Opening hashes the front
//! alone, so that a knot of any size opens at once; what is never used is never read.

use super::arrivals::Arrivals;
use super::fetch::WantedPayload;
use crate::cli::Verify;
use crate::error::Error;
use crate::telemetry;
use bytes::Bytes;
use helix_transport::Meter;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// A mapped knot.
#[derive(Debug, Clone)]
pub(super) struct Mapped {
    /// The file's name for people.
    object: String,
    bytes: Bytes,
    verify: Verify,
}

impl Mapped {
    pub(super) fn new(object: String, bytes: Bytes, verify: Verify) -> Self {
        Self {
            object,
            bytes,
            verify,
        }
    }

    /// Bytes of the map, unchecked.
    pub(super) fn view(&self, range: &Range<u64>) -> Option<Bytes> {
        let start = usize::try_from(range.start).ok()?;
        let end = usize::try_from(range.end).ok()?;
        (start <= end && end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }

    /// Payloads in the order asked. Reading and hashing them is work for all cores, away from the
    /// runtime; a failure counts in `meter`, and each is told as it comes.
    ///
    /// # Errors
    /// [`Error::Digest`] of the first whose bytes are not those of the table.
    pub(super) async fn read(
        &self,
        wanted: &[WantedPayload],
        meter: Arc<Meter>,
        arrivals: Arc<dyn Arrivals>,
    ) -> Result<Vec<Bytes>, Error> {
        arrivals.in_line();
        let (mapped, wanted) = (self.clone(), wanted.to_vec());
        let read = move || {
            let payload = |(at, payload): (usize, &WantedPayload)| {
                let bytes = mapped.payload(payload, &meter)?;
                arrivals.arrived(at, &bytes);
                Ok(bytes)
            };
            wanted.par_iter().enumerate().map(payload).collect()
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_panicked| Error::Lost {
                what: "the check of the knot's payloads",
            })?
    }

    fn payload(&self, wanted: &WantedPayload, meter: &Meter) -> Result<Bytes, Error> {
        let span = telemetry::knot_block(&wanted.name, wanted.range.end - wanted.range.start);
        span.record("from", "map");
        // The front was checked against the length of the map: only a bug leads here.
        let bytes = self.view(&wanted.range).ok_or(Error::Lost {
            what: "a mapped payload",
        })?;
        if self.verify != Verify::Off {
            wanted
                .check(blake3::hash(&bytes), &self.object)
                .inspect_err(|_| meter.add_integrity_failure())?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_payload_is_checked_and_named_unless_told_not_to() {
        let wanted = |name: &str, range: Range<u64>, of: &[u8]| WantedPayload {
            name: name.to_owned(),
            range,
            blake3: *blake3::hash(of).as_bytes(),
        };
        let wanted = [wanted("a", 0..3, b"abc"), wanted("b", 3..6, b"xyz")];
        let read = async |bytes: &'static [u8], verify| {
            let meter = Arc::new(Meter::default());
            let mapped = Mapped::new("m.gkq".to_owned(), Bytes::from_static(bytes), verify);
            let read = mapped.read(&wanted, Arc::clone(&meter), Arc::new(())).await;
            (read, meter.snapshot().integrity_failures)
        };
        assert_eq!(
            read(b"abcxyz", Verify::Auto).await.0.unwrap(),
            ["abc", "xyz"]
        );
        let (damaged, failures) = read(b"abcxyZ", Verify::Auto).await;
        let error = damaged.unwrap_err();
        assert_eq!(error.class(), crate::error::FailureClass::Integrity);
        let text = error.to_string();
        assert!(text.contains("block b of m.gkq"), "{text}");
        assert_eq!(failures, 1);
        let (damaged, failures) = read(b"abcxyZ", Verify::Off).await;
        assert_eq!(damaged.unwrap(), ["abc", "xyZ"]);
        assert_eq!(failures, 0);
    }
}
