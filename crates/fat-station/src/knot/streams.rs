//! Whose turn it is to stream. A link is shared by few streams as well as by many, so what decides
//! when a model can begin is their order: what is needed first stands first, whoever asked first.

use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Streams side by side. One alone may be held up by a lost packet or a narrow window; many would let
/// layers arrive all at once, late.
pub(crate) const STREAMS: usize = 6;

/// Streams beside that of the words while those are awaited: it fills the link between two requests
/// and takes half of it at most.
const STREAMS_BESIDE_WORDS: usize = 1;

/// What a stream is for. The earlier one is needed earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The tokenizer: no row can be asked for without it.
    Words,
    /// Layers, in the order that they compute in, and whatever else a model needs to compute.
    Layers,
    /// The head, which computes last.
    Head,
}

/// The streams of a station. Clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct Streams(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Streams that run, those of the words apart.
    running: usize,
    running_words: usize,
    /// Who expects words.
    words_awaited: usize,
    asked: u64,
    /// In the order of their turns.
    waiting: BTreeMap<(Rank, u64), oneshot::Sender<Stream>>,
}

/// A place in the line, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(oneshot::Receiver<Stream>);

/// The right to stream, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    streams: Streams,
    rank: Rank,
}

/// While it lives the words are on their way, and others leave the link to them.
#[derive(Debug)]
pub(crate) struct WordsAwaited(Streams);

impl Streams {
    /// Leaves the link to the words until what it gives is dropped.
    pub(crate) fn await_words(&self) -> WordsAwaited {
        self.state().words_awaited += 1;
        WordsAwaited(self.clone())
    }

    /// Stands in line.
    pub(crate) fn stand(&self, rank: Rank) -> Place {
        let (turn, mine) = oneshot::channel();
        {
            let mut state = self.state();
            let place = (rank, state.asked);
            state.asked += 1;
            state.waiting.insert(place, turn);
        }
        self.begin_next();
        Place(mine)
    }

    /// Gives turns as long as there are any to give.
    fn begin_next(&self) {
        // Who no longer waits gives it back, which takes the lock again: it is not held here.
        while let Some((turn, stream)) = self.next() {
            drop(turn.send(stream));
        }
    }

    fn next(&self) -> Option<(oneshot::Sender<Stream>, Stream)> {
        let mut state = self.state();
        let (&(rank, _), _) = state.waiting.first_key_value()?;
        if !state.admits(rank) {
            return None;
        }
        let (_, turn) = state.waiting.pop_first()?;
        *state.count(rank) += 1;
        let streams = self.clone();
        Some((turn, Stream { streams, rank }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admits(&self, rank: Rank) -> bool {
        let all = self.running + self.running_words;
        match rank {
            Rank::Words => all < STREAMS,
            _ if self.words_awaited > 0 => self.running < STREAMS_BESIDE_WORDS,
            _ => all < STREAMS,
        }
    }

    fn count(&mut self, rank: Rank) -> &mut usize {
        match rank {
            Rank::Words => &mut self.running_words,
            Rank::Layers | Rank::Head => &mut self.running,
        }
    }
}

impl Place {
    /// Waits for the turn.
    ///
    /// # Errors
    /// [`Error::Lost`] where the line was lost, which only a bug does.
    pub(crate) async fn turn(self) -> Result<Stream, Error> {
        self.0.await.map_err(|_lost| Error::Lost {
            what: "a place in the line of streams",
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *self.streams.state().count(self.rank) -= 1;
        self.streams.begin_next();
    }
}

impl Drop for WordsAwaited {
    fn drop(&mut self) {
        self.0.state().words_awaited -= 1;
        self.0.begin_next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stream, if it is this one's turn already.
    fn now(place: &mut Place) -> Option<Stream> {
        place.0.try_recv().ok()
    }

    fn running(streams: &Streams) -> Vec<Stream> {
        (0..STREAMS)
            .map(|_| now(&mut streams.stand(Rank::Layers)).unwrap())
            .collect()
    }

    #[test]
    fn ranks_come_before_the_order_of_asking() {
        let streams = Streams::default();
        let mut running = running(&streams);
        let [mut head, mut first, mut second, mut words] =
            [Rank::Head, Rank::Layers, Rank::Layers, Rank::Words].map(|rank| streams.stand(rank));
        for place in [&mut head, &mut first, &mut second, &mut words] {
            assert!(now(place).is_none());
        }
        running.pop();
        assert!(now(&mut first).is_none() && now(&mut head).is_none());
        drop(now(&mut words).unwrap());
        let _first = now(&mut first).unwrap();
        running.pop();
        assert!(now(&mut head).is_none());
        let _second = now(&mut second).unwrap();
        running.pop();
        let _head = now(&mut head).unwrap();
    }

    #[test]
    fn words_that_are_awaited_have_the_link_almost_alone() {
        let streams = Streams::default();
        let awaited = streams.await_words();
        let layer = now(&mut streams.stand(Rank::Layers)).unwrap();
        let mut next = streams.stand(Rank::Layers);
        assert!(now(&mut next).is_none());
        let words = now(&mut streams.stand(Rank::Words)).unwrap();
        drop(layer);
        let _next = now(&mut next).unwrap();
        let mut last = streams.stand(Rank::Head);
        drop(words);
        assert!(now(&mut last).is_none(), "they are not here yet");
        drop(awaited);
        let _last = now(&mut last).unwrap();
    }

    #[test]
    fn a_turn_that_nobody_waits_for_any_more_goes_to_the_next() {
        let streams = Streams::default();
        let mut running = running(&streams);
        let [gone, granted, mut last] = [(); 3].map(|()| streams.stand(Rank::Layers));
        drop(gone);
        running.pop();
        // It was given a turn, and is dropped before it has seen it.
        drop(granted);
        let _last = now(&mut last).unwrap();
        assert_eq!(streams.state().running, STREAMS);
    }
}
