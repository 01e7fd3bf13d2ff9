//! Leaders, followers, and every way a load can end. Time is never waited for: gates are.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;

use super::*;

type Flights = SingleFlight<u32, String>;

fn nothing(_: &u32) -> Option<()> {
    None
}

/// A load that ends when told, with what it is told.
fn gated() -> (oneshot::Sender<String>, impl FnOnce(Vec<u32>) -> GatedLoad) {
    let (open, gate) = oneshot::channel();
    (open, move |_| GatedLoad(gate))
}

struct GatedLoad(oneshot::Receiver<String>);

impl Future for GatedLoad {
    type Output = String;
    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<String> {
        std::pin::Pin::new(&mut self.0)
            .poll(context)
            .map(|told| told.expect("gate dropped"))
    }
}

/// The load of a claim that has nothing to load.
fn never() -> impl FnOnce(Vec<u32>) -> std::future::Ready<String> {
    |keys| panic!("{keys:?} are loaded already")
}

#[tokio::test]
async fn keys_in_flight_are_followed_and_the_rest_is_led_together() {
    let flights = Flights::default();
    let (open_first, load) = gated();
    let first = flights.claim(&Handle::current(), &[1, 2], nothing, load);
    let (open_second, load) = gated();
    let second = flights.claim(&Handle::current(), &[2, 3, 4], nothing, load);
    let (led, first) = first.led.unwrap();
    assert_eq!(led, [1, 2]);
    let (led, second_led) = second.led.unwrap();
    assert_eq!(led, [3, 4]);
    let (key, followed) = second.followed.into_iter().next().unwrap();
    assert_eq!(key, 2);

    open_second.send("second".into()).unwrap();
    assert_eq!(*second_led.landed().await.unwrap(), "second");
    open_first.send("first".into()).unwrap();
    assert_eq!(*first.landed().await.unwrap(), "first");
    assert_eq!(*followed.landed().await.unwrap(), "first");
    assert!(lock(&flights.flights).is_empty());
}

#[tokio::test]
async fn a_key_that_arrived_between_look_up_and_claim_is_found() {
    let flights = Flights::default();
    let claim = flights.claim(&Handle::current(), &[5], |key| Some(key * 10), never());
    assert_eq!(claim.found, [(5, 50)]);
    assert!(claim.led.is_none() && claim.followed.is_empty());
}

#[tokio::test]
async fn a_leader_that_goes_away_strands_nobody() {
    let flights = Flights::default();
    let (open, load) = gated();
    drop(flights.claim(&Handle::current(), &[1], nothing, load));
    let follower = flights.claim(&Handle::current(), &[1], nothing, never());
    open.send("landed".into()).unwrap();
    let (_, flight) = follower.followed.into_iter().next().unwrap();
    assert_eq!(*flight.landed().await.unwrap(), "landed");
}

#[tokio::test]
async fn a_load_that_panics_wakes_everyone_and_leaves_its_keys_free() {
    let flights = Flights::default();
    let (open, load) = gated();
    let leader = flights.claim(&Handle::current(), &[1, 2], nothing, load);
    let follower = flights.claim(&Handle::current(), &[2], nothing, never());
    drop(open);
    assert!(leader.led.unwrap().1.landed().await.is_err());
    let (_, flight) = follower.followed.into_iter().next().unwrap();
    assert!(flight.landed().await.is_err());
    let (open, load) = gated();
    let again = flights.claim(&Handle::current(), &[1, 2], nothing, load);
    open.send("again".into()).unwrap();
    assert_eq!(*again.led.unwrap().1.landed().await.unwrap(), "again");
}

#[tokio::test]
async fn dropping_the_owner_ends_its_loads() {
    let flights = Flights::default();
    let (open, load) = gated();
    let claim = flights.claim(&Handle::current(), &[1], nothing, load);
    drop(flights);
    assert!(claim.led.unwrap().1.landed().await.is_err());
    assert!(open.send("too late".into()).is_err());
}

/// Many threads, few keys: a load's result is visible to `recheck` before its keys leave the
/// board, so no key is ever loaded twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_key_is_loaded_twice_under_contention() {
    const KEYS: u32 = 50;
    let flights = Arc::new(Flights::default());
    let loaded: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
    let callers: Vec<_> = (0..64_u32)
        .map(|caller| {
            let (flights, loaded) = (Arc::clone(&flights), Arc::clone(&loaded));
            tokio::spawn(async move {
                for round in 0..KEYS {
                    let keys = [(caller + round) % KEYS, (caller + round + 1) % KEYS];
                    let visible = Arc::clone(&loaded);
                    let load = |led: Vec<u32>| async move {
                        tokio::task::yield_now().await;
                        for key in led {
                            visible[key as usize].fetch_add(1, Ordering::SeqCst);
                        }
                        String::new()
                    };
                    let arrived = |key: &u32| loaded[*key as usize].load(Ordering::SeqCst);
                    let recheck = |key: &u32| (arrived(key) > 0).then_some(());
                    let claim = flights.claim(&Handle::current(), &keys, recheck, load);
                    for flight in claim.led.into_iter().map(|(_, flight)| flight) {
                        flight.landed().await.unwrap();
                    }
                    for (_, flight) in claim.followed {
                        flight.landed().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(loaded.iter().all(|loads| loads.load(Ordering::SeqCst) == 1));
}
