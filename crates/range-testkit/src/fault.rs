//! The script of a [`FaultServer`](crate::FaultServer): which request meets which fault. It depends on
//! a request and its number alone (that among all requests, or among those for the same bytes), so a
//! failing seed replays.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::{Object, Several};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// What happens to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing: an honest reply.
    None,
    /// The connection is closed without a reply.
    HangUp,
    /// The connection is reset (RST) after that many body bytes; 0 is before the head.
    Reset {
        /// Body bytes sent before.
        after_body_bytes: u64,
    },
    /// An honest reply, after which the connection is closed though it was kept alive.
    CloseWhenIdle,
    /// No reply at all; the connection stays open.
    Silence,
    /// The body stops after that many bytes; the connection stays open.
    Stall {
        /// Body bytes sent before.
        after_body_bytes: u64,
    },
    /// The body comes in pieces with a pause before each.
    Drip {
        /// Length of a piece.
        piece_bytes: u64,
        /// Pause before each piece.
        pause: Duration,
    },
    /// The connection is closed (FIN) after that many body bytes.
    Truncate {
        /// Body bytes sent before.
        after_body_bytes: u64,
    },
    /// `Content-Length` names this number; the body is honest.
    ContentLength(u64),
    /// The body comes chunked, without `Content-Length`, and this many bytes longer than the range.
    ChunkedWithExtra(u64),
    /// 200 with the whole object.
    WholeObject,
    /// A status with a short text as body.
    Status {
        /// The status code.
        code: u16,
        /// `Retry-After`, as sent.
        retry_after: Option<String>,
    },
    /// An honest reply under another entity tag.
    Etag(String),
    /// 206 with a `Content-Range` that names more bytes than were asked, and those bytes.
    Superset {
        /// Bytes more in front (clipped at the object's start).
        before: u64,
        /// Bytes more behind (clipped at its end).
        after: u64,
    },
    /// Perfect headers, but bytes from this many further on.
    Shift(u64),
    /// An honest reply that claims this content coding.
    Encoding(String),
    /// This `Content-Range` value, whatever was asked; `None` leaves the field out.
    ContentRange(Option<String>),
    /// 302 to this location.
    Redirect(String),
    /// A request for several ranges is answered in this manner; one for a single range honestly.
    /// Without it several ranges are answered with the whole object, as Python's server does.
    Several(Several),
    /// This object is served in place of the one that is there: another version, as of a cache that
    /// has not heard of the new one. Several ranges are answered in the given manner.
    Instead(Object, Several),
    /// An honest reply after a pause.
    Delay(Duration),
    /// The head comes in pieces with a pause before each.
    SlowHead {
        /// Length of a piece.
        piece_bytes: u64,
        /// Pause before each piece.
        pause: Duration,
    },
    /// The connection is closed (FIN) within the head.
    TruncateHead {
        /// Head bytes sent before.
        after_head_bytes: u64,
    },
    /// The connection is reset (RST) within the head.
    ResetHead {
        /// Head bytes sent before.
        after_head_bytes: u64,
    },
    /// Interim replies (100, 102, 103) before an honest one.
    Interim {
        /// Their status.
        code: u16,
        /// How many.
        times: u32,
    },
    /// Bytes that are no HTTP, then the end.
    Garbage,
    /// An honest reply with these fields added to its head.
    Fields(Vec<(String, String)>),
    /// An honest reply as HTTP/1.0 gave it: no `Content-Length`, ended by closing.
    Http10,
    /// An honest body in chunks, without `Content-Length`.
    Chunked,
    /// The same, with trailers that contradict the head.
    Trailers,
    /// An honest reply, after which the connection is reset.
    ResetWhenIdle,
    /// An honest reply, then an unasked 408 and the end: how some servers clear idle connections.
    RequestTimeout,
    /// Several of these at once, where they concern different things.
    All(Vec<Fault>),
}

impl Fault {
    /// The faults this one is made of.
    pub(crate) fn parts(&self) -> &[Fault] {
        match self {
            Fault::All(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// A short name, for logs and tables; composed faults have that of their first part.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::HangUp => "hang-up",
            Fault::Reset { .. } => "reset",
            Fault::CloseWhenIdle => "close-when-idle",
            Fault::Silence => "silence",
            Fault::Stall { .. } => "stall",
            Fault::Drip { .. } => "drip",
            Fault::Truncate { .. } => "truncate",
            Fault::ContentLength(_) => "wrong-content-length",
            Fault::ChunkedWithExtra(_) => "chunked-too-long",
            Fault::WholeObject => "whole-object",
            Fault::Status { code, .. } => match code {
                403 => "status-403",
                404 => "status-404",
                408 => "status-408",
                416 => "status-416",
                429 => "status-429",
                500 => "status-500",
                502 => "status-502",
                503 => "status-503",
                504 => "status-504",
                _ => "status-other",
            },
            Fault::Etag(_) => "wrong-etag",
            Fault::Superset { .. } => "superset",
            Fault::Shift(_) => "shifted-bytes",
            Fault::Encoding(_) => "encoding",
            Fault::ContentRange(_) => "wrong-content-range",
            Fault::Redirect(_) => "redirect",
            Fault::Several(_) => "several",
            Fault::Instead(..) => "other-version",
            Fault::Delay(_) => "delay",
            Fault::SlowHead { .. } => "slow-head",
            Fault::TruncateHead { .. } => "truncated-head",
            Fault::ResetHead { .. } => "reset-in-head",
            Fault::Interim { .. } => "interim-replies",
            Fault::Garbage => "garbage",
            Fault::Fields(_) => "added-fields",
            Fault::Http10 => "http-1.0",
            Fault::Chunked => "chunked",
            Fault::Trailers => "trailers",
            Fault::ResetWhenIdle => "reset-when-idle",
            Fault::RequestTimeout => "unasked-408",
            Fault::All(parts) => parts.first().map_or("none", Fault::name),
        }
    }
}

/// Which request meets which fault.
#[derive(Clone, Debug)]
pub struct Script(Rule);

#[derive(Clone, Debug)]
enum Rule {
    List(Vec<Fault>),
    Target {
        contains: String,
        fault: Fault,
    },
    Bytes {
        range: Range<u64>,
        faults: Vec<Fault>,
        met: Arc<AtomicUsize>,
    },
    Always(Fault),
    Seeded {
        seed: u64,
        percent: u32,
        faults: Vec<Fault>,
    },
    Weighted {
        seed: u64,
        per_million: u32,
        faults: Vec<(u32, Fault)>,
    },
}

impl Script {
    /// Every request is answered honestly.
    #[must_use]
    pub fn honest() -> Self {
        Self(Rule::Always(Fault::None))
    }

    /// The first requests, in the order they arrive, meet these faults; later ones none.
    pub fn list(faults: impl Into<Vec<Fault>>) -> Self {
        Self(Rule::List(faults.into()))
    }

    /// Every request whose target, query included, contains this text meets this fault.
    pub fn where_target(contains: impl Into<String>, fault: Fault) -> Self {
        Self(Rule::Target {
            contains: contains.into(),
            fault,
        })
    }

    /// The first requests for one range within `range`, of whatever object, meet these faults in the
    /// order they arrive; others none. Clones of the script count together.
    pub fn of_bytes(range: Range<u64>, faults: impl Into<Vec<Fault>>) -> Self {
        Self(Rule::Bytes {
            range,
            faults: faults.into(),
            met: Arc::default(),
        })
    }

    /// Every request meets this fault.
    #[must_use]
    pub fn always(fault: Fault) -> Self {
        Self(Rule::Always(fault))
    }

    /// `percent` of the requests meet one of `faults`, drawn by `seed` and the request's number.
    pub fn seeded(seed: u64, percent: u32, faults: impl Into<Vec<Fault>>) -> Self {
        Self(Rule::Seeded {
            seed,
            percent,
            faults: faults.into(),
        })
    }

    /// `per_million` of the requests meet one of `faults`, each as often as its weight says, drawn by
    /// `seed` and the request's number.
    pub fn weighted(seed: u64, per_million: u32, faults: impl Into<Vec<(u32, Fault)>>) -> Self {
        Self(Rule::Weighted {
            seed,
            per_million,
            faults: faults.into(),
        })
    }

    /// The fault of request `number`, counted from 0 over all connections, for `target` and, if it is
    /// for one, for a range of it. Asked once a request.
    #[must_use]
    pub fn fault_at(&self, number: u64, target: &str, asked: Option<(u64, u64)>) -> Fault {
        match &self.0 {
            Rule::Bytes { range, faults, met } => {
                let within = |(start, end)| range.start <= start && end <= range.end;
                if !asked.is_some_and(within) {
                    return Fault::None;
                }
                let met = met.fetch_add(1, Ordering::Relaxed);
                faults.get(met).cloned().unwrap_or(Fault::None)
            }
            Rule::Target { contains, fault } if target.contains(contains) => fault.clone(),
            _ => self.fault(number),
        }
    }

    /// The fault of request `number`, whatever it is for.
    #[must_use]
    pub fn fault(&self, number: u64) -> Fault {
        match &self.0 {
            Rule::Target { .. } | Rule::Bytes { .. } => Fault::None,
            Rule::Always(fault) => fault.clone(),
            Rule::List(faults) => usize::try_from(number)
                .ok()
                .and_then(|index| faults.get(index))
                .cloned()
                .unwrap_or(Fault::None),
            Rule::Seeded {
                seed,
                percent,
                faults,
            } => {
                let mut random = ChaCha8Rng::seed_from_u64(*seed);
                random.set_stream(number);
                if faults.is_empty() || random.random_range(0..100) >= *percent {
                    return Fault::None;
                }
                faults[random.random_range(0..faults.len())].clone()
            }
            Rule::Weighted {
                seed,
                per_million,
                faults,
            } => {
                let mut random = ChaCha8Rng::seed_from_u64(*seed);
                random.set_stream(number);
                let weights: u32 = faults.iter().map(|(weight, _)| weight).sum();
                if weights == 0 || random.random_range(0..1_000_000) >= *per_million {
                    return Fault::None;
                }
                let mut drawn = random.random_range(0..weights);
                for (weight, fault) in faults {
                    match drawn.checked_sub(*weight) {
                        Some(rest) => drawn = rest,
                        None => return fault.clone(),
                    }
                }
                Fault::None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_bytes_are_met_in_order_by_requests_within_them() {
        let script = Script::of_bytes(100..200, [Fault::HangUp, Fault::Silence]);
        let fault = |asked| script.clone().fault_at(0, "/a", asked);
        assert_eq!(fault(None), Fault::None);
        assert_eq!(fault(Some((0, 100))), Fault::None);
        assert_eq!(fault(Some((100, 200))), Fault::HangUp);
        assert_eq!(fault(Some((100, 201))), Fault::None);
        assert_eq!(fault(Some((150, 200))), Fault::Silence);
        assert_eq!(fault(Some((150, 200))), Fault::None);
    }

    #[test]
    fn a_list_runs_out_and_a_seed_replays() {
        let list = Script::list([Fault::HangUp, Fault::Silence]);
        assert_eq!(
            [0, 1, 2].map(|n| list.fault(n)),
            [Fault::HangUp, Fault::Silence, Fault::None]
        );

        let seeded = || Script::seeded(7, 30, [Fault::HangUp, Fault::WholeObject]);
        let faults: Vec<_> = (0..1000).map(|n| seeded().fault(n)).collect();
        assert_eq!(
            faults,
            (0..1000).map(|n| seeded().fault(n)).collect::<Vec<_>>()
        );
        let faulty = faults.iter().filter(|fault| **fault != Fault::None).count();
        assert!((250..350).contains(&faulty), "{faulty}");
        assert!(faults.contains(&Fault::HangUp) && faults.contains(&Fault::WholeObject));
    }
}
