//! A pool of connections that are kept after a call for the next call to the same server.
//!
//! ```text
//! take ─► kept connection ─┐
//!         new connection ──┴─► call ─► the response is read to its end ─► keep
//! ```
//!
//! An HTTP/1 connection leaves the pool while a call uses it; an HTTP/2 connection stays in the pool and
//! carries all calls at the same time. A call that is cancelled before the end of its response closes its
//! HTTP/1 connection. The pool belongs to an endpoint with its credentials: a caller with other credentials,
//! or with a replaced certificate, shares no connection with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use http::Uri;
use parking_lot::Mutex;

use super::connection::Live;

/// Maximum number of connections that an endpoint keeps. Further concurrent calls open connections of their
/// own.
const KEPT_MAX: usize = 16;

/// Maximum number of connections that the process keeps, well below the usual limit of open files.
const KEPT_IN_ALL_MAX: usize = 512;

/// Time for which an unused connection is kept, as in the reference server's HTTP client.
const KEPT_FOR: Duration = Duration::from_secs(90);

/// Maximum number of kept connections that a call tries. Each kept connection may have ended in the meantime.
pub(super) const TRIED_MAX: usize = KEPT_MAX;

/// Number of connections that the process keeps. The number is global because it bounds the open files of
/// the process.
static KEPT_IN_ALL: AtomicUsize = AtomicUsize::new(0);

/// The kept connections of an endpoint.
#[derive(Default)]
pub(super) struct Pool(Mutex<State>);

#[derive(Default)]
struct State {
    connections: Vec<PooledConnection>,
    /// Whether a task closes unused connections.
    is_watched: bool,
}

struct PooledConnection {
    target: ConnectionTarget,
    live: Live,
    used: Instant,
    _counted: Counted,
}

/// Target of a connection: the host and port that it leads to, and the authority of the URL, which determines
/// the name in the certificate.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct ConnectionTarget {
    host: String,
    port: u16,
    authority: String,
}

/// A unit of [`KEPT_IN_ALL_MAX`], for one kept connection.
struct Counted;

impl Counted {
    fn take() -> Option<Counted> {
        let taken = KEPT_IN_ALL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < KEPT_IN_ALL_MAX).then_some(count + 1)
        });
        taken.is_ok().then_some(Counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        KEPT_IN_ALL.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// Returns a kept connection, if any. A connection that can be shared stays in the pool.
    pub(super) fn take(&self, target: &ConnectionTarget) -> Option<Live> {
        let mut state = self.0.lock();
        state.prune();
        // The server is least likely to have closed the connection that was used last.
        let is_free = |pooled: &PooledConnection| {
            pooled.target == *target && !(pooled.live.is_shared() && pooled.live.is_full())
        };
        let at = state.connections.iter().rposition(is_free)?;
        match state.connections[at].live.shared() {
            Some(shared) => {
                state.connections[at].used = Instant::now();
                Some(shared)
            }
            None => Some(state.connections.remove(at).live),
        }
    }

    /// Keeps a connection whose last response was read to its end.
    pub(super) fn keep(self: &Arc<Self>, target: ConnectionTarget, live: Live) {
        if !live.is_shared() {
            self.insert(target, live);
        }
    }

    /// Lets other calls use a new connection at once, if it can be shared.
    pub(super) fn share(self: &Arc<Self>, target: ConnectionTarget, live: &Live) {
        if let Some(shared) = live.shared() {
            self.insert(target, shared);
        }
    }

    fn insert(self: &Arc<Self>, target: ConnectionTarget, live: Live) {
        let mut state = self.0.lock();
        state.prune();
        // A single shareable connection that is not full is enough; the other connections end with the calls
        // on them.
        let is_there = |pooled: &PooledConnection| {
            pooled.target == target && pooled.live.is_shared() && !pooled.live.is_full()
        };
        if live.is_closed() || state.connections.len() >= KEPT_MAX || state.connections.iter().any(is_there) {
            return;
        }
        let Some(counted) = Counted::take() else { return };
        state.connections.push(PooledConnection { target, live, used: Instant::now(), _counted: counted });
        if !std::mem::replace(&mut state.is_watched, true) {
            tokio::spawn(watch(Arc::downgrade(self)).boxed());
        }
    }
}

impl State {
    /// Drops connections that have been unused for longer than [`KEPT_FOR`], and connections that the peer
    /// has closed. Calls on a shared connection continue.
    fn prune(&mut self) {
        self.connections.retain(|pooled| !pooled.live.is_closed() && pooled.used.elapsed() < KEPT_FOR);
    }
}

impl ConnectionTarget {
    pub(super) fn new(host: &str, port: u16, url: &Uri) -> ConnectionTarget {
        let authority = url.authority().map_or("", |authority| authority.as_str());
        ConnectionTarget { host: host.to_owned(), port, authority: authority.to_owned() }
    }
}

/// Closes unused connections, until no connection is kept or the pool is dropped.
async fn watch(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(KEPT_FOR).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut state = pool.0.lock();
        state.prune();
        if state.connections.is_empty() {
            state.is_watched = false;
            return;
        }
    }
}

/// Shows the number of kept connections, but not their contents.
impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("kept", &self.0.lock().connections.len()).finish()
    }
}

#[cfg(test)]
#[path = "pool_test.rs"]
mod tests;
