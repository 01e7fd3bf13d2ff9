//! A batch of ranges over one object: which go out next, alone or together, until every one has its
//! answer. A canary is one of the batch's own requests, sent only where there is a second wave that
//! would profit: it costs no wave. One request is `transfer` or `group`; what an origin can do is
//! `capability`; how many ranges make a request is `plan`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, pin_mut};
use tokio::time::Instant;

use super::capability::{CANARY_RANGES, Canary, MAX_RANGES, MultiRange};
use super::exchange::Target;
use super::group::{Call, Group, Trust};
use super::response::{Ask, Extent};
use super::transfer::{Terms, collect};
use crate::error::TimeoutPhase;
use crate::plan::{GroupOptions, next_group};
use crate::source::{Connection, ManyRead, check_inside};
use crate::{ByteRange, Error, ReadOptions};

type Answer = Result<Bytes, Arc<Error>>;

/// Reads all of `ranges`.
pub(super) async fn read_many(
    target: &Target,
    ranges: &[ByteRange],
    options: &ReadOptions,
) -> ManyRead {
    let terms = Terms::of(target.client.config(), options);
    let len_bytes = target.len_bytes();
    let mut answers: Vec<Option<Answer>> = Vec::with_capacity(ranges.len());
    let mut pending = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        let refusal = check_inside(&target.name, *range, len_bytes.unwrap_or(u64::MAX));
        answers.push(match refusal {
            Err(error) => Some(Err(Arc::new(error))),
            Ok(()) if range.is_empty() => Some(Ok(Bytes::new())),
            Ok(()) => {
                pending.push((*range, index));
                None
            }
        });
    }
    pending.sort_unstable();
    if pending.len() > 1 {
        target.settle_protocol(terms.reuse).await;
    }
    let mut batch = Batch {
        target,
        call: Call {
            target,
            options,
            terms,
        },
        disjoint: pending
            .windows(2)
            .all(|pair| pair[0].0.end <= pair[1].0.start),
        spans: pending.iter().map(|(range, _)| *range).collect(),
        indexes: pending.iter().map(|(_, index)| *index).collect(),
        next: 0,
        again: VecDeque::new(),
        answers,
        requests: 0,
        depth: 0,
        generation: 1,
        canary: CanaryState::None,
        canary_is_theirs: false,
        began: Instant::now(),
    };
    batch.run().await;
    batch.finish(ranges)
}

/// The canary of this batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CanaryState {
    None,
    /// Out, and nothing else has come back yet.
    Out,
    /// Out; until then free slots wait for it rather than take single ranges.
    Awaited(Instant),
    Back,
}

/// What a batch waits for.
enum Event {
    Done(Done),
    /// Another batch's canary is back, or has been waited for long enough.
    NoLongerAwaited,
    Nothing,
}

struct Batch<'a> {
    target: &'a Target,
    call: Call<'a>,
    /// Ascending; only disjoint ranges may be asked together.
    spans: Vec<ByteRange>,
    disjoint: bool,
    /// For each span, whose answer it is.
    indexes: Vec<usize>,
    /// The first span that was not asked yet.
    next: usize,
    /// Spans to be asked alone, since they did not come together, with their generation.
    again: VecDeque<(usize, u64)>,
    answers: Vec<Option<Answer>>,
    requests: u64,
    /// The longest chain of requests that had to wait for each other's answers.
    depth: u64,
    /// Of the requests that start now.
    generation: u64,
    canary: CanaryState,
    /// The canary that is waited for is another batch's: of the rows whose paths this one reads.
    canary_is_theirs: bool,
    began: Instant,
}

/// One request that is to start.
struct Job<'c> {
    /// Positions in `spans`.
    spans: std::ops::Range<usize>,
    generation: u64,
    kind: Kind<'c>,
}

enum Kind<'c> {
    Single,
    /// A single range beside another batch's canary, which the rest had better wait for.
    Beside,
    Group,
    /// With the claim, which ends with the request.
    Canary(#[expect(dead_code, reason = "held for its end")] Canary<'c>),
}

/// A request that is over.
struct Done {
    spans: std::ops::Range<usize>,
    generation: u64,
    canary: bool,
    answers: Vec<Option<Answer>>,
}

impl<'a> Batch<'a> {
    async fn run(&mut self) {
        let call = self.call;
        let mut flying: FuturesUnordered<BoxFuture<'_, Done>> = FuturesUnordered::new();
        loop {
            while let Some(job) = self.next_job(flying.len()) {
                let spans = self.spans[job.spans.clone()].to_vec();
                flying.push(run(job, spans, call).boxed());
            }
            match self.event(&mut flying).await {
                Event::Done(done) => self.settle(done),
                Event::NoLongerAwaited => {
                    self.canary = CanaryState::Back;
                    self.generation += u64::from(self.canary_is_theirs);
                }
                Event::Nothing => return,
            }
        }
    }

    async fn event(&self, flying: &mut FuturesUnordered<BoxFuture<'_, Done>>) -> Event {
        let waits = self.next < self.spans.len();
        let until = match self.canary {
            CanaryState::Awaited(until) if waits => Some(until),
            // Theirs may come back before anything of ours does.
            CanaryState::Out if waits && self.canary_is_theirs => None,
            _ => return flying.next().await.map_or(Event::Nothing, Event::Done),
        };
        let back = self.target.client.capabilities().canary_back();
        pin_mut!(back);
        // From here on it is not missed; if it came before, something is known by now.
        back.as_mut().enable();
        let origin = self.target.asked_origin_name();
        let known = self.target.client.capabilities().of(&origin);
        if self.canary_is_theirs && known != MultiRange::Unknown {
            return Event::NoLongerAwaited;
        }
        let patience = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(done) = flying.next() => Event::Done(done),
            () = back, if self.canary_is_theirs => Event::NoLongerAwaited,
            // It may yet come, but nobody waits for it any more.
            () = patience => Event::NoLongerAwaited,
            else => Event::Nothing,
        }
    }

    /// The next request, if there is one and a free slot for it.
    fn next_job(&mut self, in_flight: usize) -> Option<Job<'a>> {
        let free_slots = self.target.parallelism().checked_sub(in_flight)?;
        if free_slots == 0 {
            return None;
        }
        if self
            .call
            .terms
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            self.give_up();
            return None;
        }
        if let Some((span, generation)) = self.again.pop_front() {
            return Some(self.job(span..span + 1, generation, Kind::Single));
        }
        let rest = &self.spans[self.next..];
        if rest.is_empty() {
            return None;
        }
        // Enough to fill every free slot; a batch of tens of thousands is not reckoned anew each time.
        let pending = &rest[..rest.len().min(free_slots.saturating_mul(MAX_RANGES))];
        let (size, kind) = self.group_size(pending, free_slots)?;
        match kind {
            Kind::Canary(_) => self.canary = CanaryState::Out,
            Kind::Beside => {
                self.canary = CanaryState::Out;
                self.canary_is_theirs = true;
            }
            Kind::Single | Kind::Group => {}
        }
        let spans = self.next..self.next + size;
        self.next = spans.end;
        Some(self.job(spans, self.generation, kind))
    }

    fn job(&mut self, spans: std::ops::Range<usize>, generation: u64, kind: Kind<'a>) -> Job<'a> {
        self.requests += 1;
        self.depth = self.depth.max(generation);
        Job {
            spans,
            generation,
            kind,
        }
    }

    /// How many of `pending` go together, and as what; `None` if they had better wait.
    fn group_size(&self, pending: &[ByteRange], free_slots: usize) -> Option<(usize, Kind<'a>)> {
        let origin = &self.target.asked_origin_name();
        let single = Some((1, Kind::Single));
        // What came with wrong bytes is asked again alone: an origin may take single ranges rightly
        // and put several together wrongly.
        if !self.disjoint || self.call.options.connection == Connection::Fresh {
            return single;
        }
        let capabilities = self.target.client.capabilities();
        let sized = |most_ranges| {
            let options = GroupOptions {
                most_ranges,
                free_slots,
                request_cost_bytes: self.target.request_cost_bytes(),
                object_bytes: self.target.len_bytes(),
            };
            next_group(pending, &options)
        };
        match capabilities.of(origin) {
            MultiRange::Single => single,
            known @ MultiRange::Several { .. } => match sized(known.most_ranges()) {
                0 | 1 => single,
                several => Some((several, Kind::Group)),
            },
            MultiRange::Unknown => match self.canary {
                CanaryState::Awaited(until) if Instant::now() < until => None,
                // Only where a second wave is due anyway, and would be saved.
                CanaryState::None
                    if pending.len() > free_slots
                        && sized(MAX_RANGES) > 1
                        && sized(CANARY_RANGES) == CANARY_RANGES =>
                {
                    let canary = capabilities.canary(origin);
                    let one = Some((1, Kind::Beside));
                    canary.map_or(one, |canary| Some((CANARY_RANGES, Kind::Canary(canary))))
                }
                _ => single,
            },
        }
    }

    fn settle(&mut self, done: Done) {
        if done.canary {
            self.canary = CanaryState::Back;
            self.generation = done.generation + 1;
        } else if self.canary == CanaryState::Out {
            // Half as long again as the first reply took: a canary's is hardly longer.
            let patience = self
                .began
                .elapsed()
                .mul_f64(1.5)
                .max(Duration::from_millis(2));
            self.canary = CanaryState::Awaited(self.began + patience);
        }
        for (span, answer) in done.spans.zip(done.answers) {
            if answer.is_none() {
                self.call.options.meter.add_retry();
                self.again.push_back((span, done.generation + 1));
            } else {
                self.answer(span, answer);
            }
        }
    }

    /// Every span has its place among the answers: they are made together.
    fn answer(&mut self, span: usize, answer: Option<Answer>) {
        let slot = self
            .indexes
            .get(span)
            .and_then(|index| self.answers.get_mut(*index));
        debug_assert!(slot.is_some(), "span {span} is nobody's");
        if let Some(slot) = slot {
            *slot = answer;
        }
    }

    /// The time of the batch is over: what was not asked is not asked any more.
    fn give_up(&mut self) {
        let again = std::mem::take(&mut self.again);
        let left = again.into_iter().map(|(span, _)| span);
        for span in left.chain(self.next..self.spans.len()) {
            if let Some(range) = self.spans.get(span).copied() {
                let error = self.target.out_of_time(range);
                self.answer(span, Some(Err(Arc::new(error))));
            }
        }
        self.next = self.spans.len();
    }

    fn finish(self, ranges: &[ByteRange]) -> ManyRead {
        let target = self.target;
        let replies = self.answers.into_iter().zip(ranges).map(|(answer, range)| {
            debug_assert!(answer.is_some(), "{range} was left out");
            answer.unwrap_or_else(|| {
                let (object, range) = (target.name.clone(), *range);
                Err(Arc::new(Error::Unanswered { object, range }))
            })
        });
        let replies = replies.collect();
        let parallelism = target.parallelism().max(1) as u64;
        ManyRead {
            replies,
            requests: self.requests,
            round_trips: self.requests.div_ceil(parallelism).max(self.depth),
        }
    }
}

async fn run(job: Job<'_>, spans: Vec<ByteRange>, call: Call<'_>) -> Done {
    let done = |answers, canary| Done {
        spans: job.spans.clone(),
        generation: job.generation,
        canary,
        answers,
    };
    let trust = match &job.kind {
        Kind::Single | Kind::Beside => {
            let mut answers = Vec::new();
            for range in spans {
                let ask = Ask {
                    range,
                    extent: Extent::Exact,
                };
                let answer = collect(call.target, ask, call.options, call.terms).await;
                answers.push(Some(answer.map_err(Arc::new)));
            }
            return done(answers, false);
        }
        Kind::Group => Trust::Proved,
        Kind::Canary(_) => Trust::Canary,
    };
    let read = Group::new(call, trust, spans.clone()).read().await;
    let (failure, others) = (read.failure, spans.len().saturating_sub(1));
    let failed = |range: ByteRange| {
        let (object, failure) = (call.target.name.clone(), failure.clone()?);
        Some(Err(Arc::new(Error::Together {
            object,
            range,
            others,
            failure,
        })))
    };
    let answers = read
        .pieces
        .into_iter()
        .zip(spans)
        .map(|(piece, range)| piece.map(Ok).or_else(|| failed(range)))
        .collect();
    // `job`, and with it a canary's claim, ends here: what it showed is known by now.
    done(answers, trust == Trust::Canary)
}

impl Target {
    /// The object's length, once a reply was accepted.
    fn len_bytes(&self) -> Option<u64> {
        self.pinned.get().map(|version| version.len_bytes)
    }

    fn out_of_time(&self, range: ByteRange) -> Error {
        Error::Timeout {
            object: self.name.clone(),
            range,
            phase: TimeoutPhase::Total,
            limit: self.client.config().batch_timeout,
        }
    }
}
