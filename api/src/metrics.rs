//! What the server counts, and `/metrics`, where it says so (semantics §16.2): Prometheus text, version 0.0.4.
//!
//! One list of counters; a counter that is not in it does not exist. Counting is one relaxed addition.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

use crate::response::{Response, respond};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How much was counted since the start of the process.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Watch events made from a stored change. Many watchers of one form share what is made once.
    pub watch_events_rendered: Counter,
    /// Watch events of changes handed to a connection, bookmarks and initial events not counted.
    pub watch_events_sent: Counter,
}

impl Metrics {
    fn counters(&self) -> [(&'static str, &'static str, &Counter); 2] {
        [
            (
                "apiserver_watch_events_rendered_total",
                "Changes made into a watch event, once for all watchers of the same form.",
                &self.watch_events_rendered,
            ),
            (
                "apiserver_watch_events_sent_total",
                "Changes sent to watchers, counted once for each of them.",
                &self.watch_events_sent,
            ),
        ]
    }

    /// The answer to `/metrics`; `None` to every other path.
    pub fn respond(&self, path: &str) -> Option<Response> {
        if path != "/metrics" {
            return None;
        }
        let mut text = String::new();
        for (name, help, counter) in self.counters() {
            let value = counter.value();
            write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n")
                .expect("writing to memory cannot fail");
        }
        Some(respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_line_of_its_own_name() {
        let metrics = Metrics::default();
        metrics.watch_events_sent.add(3);
        assert_eq!(metrics.watch_events_sent.value(), 3);
        assert!(metrics.respond("/metrics/").is_none());
        let names = metrics.counters().map(|(name, ..)| name);
        assert!(names.iter().all(|name| name.starts_with("apiserver_") && name.ends_with("_total")));
        assert_eq!(metrics.respond("/metrics").unwrap().status(), StatusCode::OK);
    }
}
