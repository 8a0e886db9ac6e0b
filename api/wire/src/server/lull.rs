//! When a draining server may close HTTP/1.1 connections without a request: once requests have ceased to come.
//!
//! HTTP/1.1 cannot say which requests it will still answer. A client that has a connection sends its next request when it
//! likes, and one that crosses the closing on the wire is lost. Clients with something to do send soon, are answered, and hear
//! with the answer that the connection ends; under load "soon" is as long as their requests take. So the end is not a moment
//! but a lull: no request has come over any connection for a while. Knows no connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// The requests that come while a server drains.
pub(super) struct Lull {
    start: Instant,
    /// Milliseconds from the start to the last one.
    last: AtomicU64,
}

impl Lull {
    pub(super) fn new() -> Lull {
        Lull { start: Instant::now(), last: AtomicU64::new(0) }
    }

    /// A request has come.
    pub(super) fn request_came(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Relaxed);
    }

    /// Waits until no request has come for `quiet` from now on, and no longer than `max`.
    pub(super) async fn wait(&self, quiet: Duration, max: Duration) {
        let began = Instant::now();
        let end = began + max;
        loop {
            let last = self.start + Duration::from_millis(self.last.load(Relaxed));
            let until = (last.max(began) + quiet).min(end);
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn the_wait_ends_when_requests_cease_or_do_not_cease_for_long() {
        let ms = Duration::from_millis;
        for (requests, want) in [(0, ms(250)), (5, ms(5 * 100 + 250)), (1000, ms(5000))] {
            let lull = Arc::new(Lull::new());
            let client = lull.clone();
            tokio::spawn(async move {
                for _ in 0..requests {
                    tokio::time::sleep(ms(100)).await;
                    client.request_came();
                }
            });
            let began = Instant::now();
            lull.wait(ms(250), ms(5000)).await;
            let took = began.elapsed();
            assert!(took >= want && took < want + ms(10), "{requests}: {took:?}");
        }
    }
}
