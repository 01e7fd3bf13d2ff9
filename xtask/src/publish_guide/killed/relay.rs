//! A relay between a publisher and its service that counts what the publisher sends and kills it at a chosen amount.
//! It changes nothing it passes on, the `Host` field neither, so that signatures stay valid.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Nobody is to be killed.
const NEVER: u64 = u64::MAX;

/// The relay; its threads end with the process.
pub(super) struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    upstream: SocketAddr,
    sent: AtomicU64,
    limit: AtomicU64,
    victim: AtomicU32,
}

impl Relay {
    pub(super) fn start(endpoint: &str) -> Result<Self> {
        let upstream = endpoint
            .trim_start_matches("http://")
            .parse()
            .with_context(|| format!("no address: {endpoint}"))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            upstream,
            sent: AtomicU64::new(0),
            limit: AtomicU64::new(NEVER),
            victim: AtomicU32::new(0),
        });
        let relaying = Arc::clone(&state);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&relaying);
                std::thread::spawn(move || state.relay(&connection));
            }
        });
        Ok(Self { address, state })
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills the process `id` once it has sent `bytes` more than so far.
    pub(super) fn kill_after(&self, bytes: u64, id: u32) {
        self.state.victim.store(id, Ordering::SeqCst);
        self.state.limit.store(bytes, Ordering::SeqCst);
        // It may have sent that much already.
        self.state.look();
    }

    /// Bytes that were sent since this was last asked; nobody is killed any more.
    pub(super) fn taken(&self) -> u64 {
        self.state.limit.store(NEVER, Ordering::SeqCst);
        self.state.sent.swap(0, Ordering::SeqCst)
    }
}

impl State {
    fn look(&self) {
        let limit = self.limit.load(Ordering::SeqCst);
        if self.sent.load(Ordering::SeqCst) < limit {
            return;
        }
        let victim = i32::try_from(self.victim.load(Ordering::SeqCst)).unwrap_or(0);
        if let Some(victim) = Pid::from_raw(victim) {
            // It may have ended by itself.
            let _ = kill_process(victim, Signal::KILL);
        }
    }

    /// Both directions of one connection, until both have ended.
    fn relay(&self, client: &TcpStream) {
        let Ok(service) = TcpStream::connect(self.upstream) else {
            return;
        };
        std::thread::scope(|scope| {
            scope.spawn(|| copy(&service, client, |_| {}));
            copy(client, &service, |bytes| {
                self.sent.fetch_add(bytes, Ordering::SeqCst);
                self.look();
            });
        });
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, mut seen: impl FnMut(u64)) {
    let mut buffer = [0; 16 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => {
                seen(read as u64);
                if buffer
                    .get(..read)
                    .is_none_or(|bytes| to.write_all(bytes).is_err())
                {
                    break;
                }
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
