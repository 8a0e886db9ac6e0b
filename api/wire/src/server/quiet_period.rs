//! Detects when a draining server may close idle HTTP/1.1 connections: when requests have stopped arriving.
//!
//! HTTP/1.1 cannot announce which requests the server will still answer. A client with an open connection
//! may send its next request at any time, and a request that is sent while the server closes the connection
//! is lost. Active clients send a request soon, get a response, and learn from the response that the
//! connection ends; under load, "soon" is as long as their requests take. Therefore the server does not close
//! at a fixed time, but when no request has arrived on any connection for a while. This module does not
//! depend on connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Tracks the requests that arrive while a server drains.
pub(super) struct QuietPeriod {
    start: Instant,
    /// Time of the last request, in milliseconds from the start.
    last: AtomicU64,
}

impl QuietPeriod {
    pub(super) fn new() -> QuietPeriod {
        QuietPeriod { start: Instant::now(), last: AtomicU64::new(0) }
    }

    /// Notes that a request has arrived.
    pub(super) fn request_came(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Relaxed);
    }

    /// Waits until no request has arrived for `quiet` from now on, but no longer than `max`.
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
    async fn the_quiet_period_ends_when_requests_stop_or_after_a_maximum_time() {
        let ms = Duration::from_millis;
        for (requests, want) in [(0, ms(250)), (5, ms(5 * 100 + 250)), (1000, ms(5000))] {
            let quiet_period = Arc::new(QuietPeriod::new());
            let client = quiet_period.clone();
            tokio::spawn(async move {
                for _ in 0..requests {
                    tokio::time::sleep(ms(100)).await;
                    client.request_came();
                }
            });
            let began = Instant::now();
            quiet_period.wait(ms(250), ms(5000)).await;
            let took = began.elapsed();
            assert!(took >= want && took < want + ms(10), "{requests}: {took:?}");
        }
    }
}
