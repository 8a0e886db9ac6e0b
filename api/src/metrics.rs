//! What the server counts and what its store is like, and `/metrics`, where it says so (semantics §16.2): Prometheus
//! text, version 0.0.4.
//!
//! One list of counters, and one of the store's numbers; what is in neither does not exist. Counting is one relaxed
//! addition, and the store is asked when somebody wants to know.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::Engine;
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

/// What a number does, in Prometheus's words.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// One number: its name, what it does, what it says, and how much.
type Number = (&'static str, Kind, &'static str, u64);

impl Metrics {
    fn numbers(&self) -> [Number; 2] {
        [
            (
                "apiserver_watch_events_rendered_total",
                Kind::Counter,
                "Changes made into a watch event, once for all watchers of the same form.",
                self.watch_events_rendered.value(),
            ),
            (
                "apiserver_watch_events_sent_total",
                Kind::Counter,
                "Changes sent to watchers, counted once for each of them.",
                self.watch_events_sent.value(),
            ),
        ]
    }

    /// The answer to `/metrics`; `None` to every other path.
    pub fn respond(&self, path: &str, engine: &Engine) -> Option<Response> {
        if path != "/metrics" {
            return None;
        }
        let text = text(self.numbers().into_iter().chain(numbers_of_store(engine)));
        Some(respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
    }
}

/// What somebody who keeps the only copy wants to draw or to be woken by.
fn numbers_of_store(engine: &Engine) -> [Number; 16] {
    let stats = engine.stats();
    let refuses = u64::from(engine.health().is_err());
    let count = |name, help, value| (name, Kind::Counter, help, value);
    let gauge = |name, help, value| (name, Kind::Gauge, help, value);
    [
        gauge("apiserver_store_refuses_writes", "1 while writes are refused, else 0.", refuses),
        gauge("apiserver_store_revision", "Newest revision.", stats.revision),
        gauge("apiserver_store_synced_revision", "Newest revision known to be on disk.", stats.synced),
        gauge("apiserver_store_oldest_revision", "Oldest revision that can be read.", stats.oldest),
        gauge(
            "apiserver_store_checkpoint_revision",
            "Revision that the next start begins with.",
            stats.checkpoint,
        ),
        gauge("apiserver_store_keys", "Keys that exist.", stats.keys),
        gauge("apiserver_store_versions", "States of keys that can be read.", stats.versions),
        gauge("apiserver_store_segments", "Segment files.", stats.segments),
        gauge("apiserver_store_record_bytes", "Bytes of all records in the log.", stats.record_bytes),
        gauge("apiserver_store_live_bytes", "Bytes of the records that can be read.", stats.live_bytes),
        gauge(
            "apiserver_store_unreadable_pages",
            "Pages that the disk could not read.",
            stats.unreadable_pages,
        ),
        gauge(
            "apiserver_store_lost_revisions",
            "Revisions found damaged at the start.",
            stats.lost_revisions,
        ),
        count("apiserver_store_commits_total", "Writes committed.", stats.commits),
        count("apiserver_store_batches_total", "Batches that they were synced in.", stats.batches),
        count("apiserver_store_expired_total", "Keys deleted as their time was over.", stats.expired),
        count(
            "apiserver_store_rewritten_bytes_total",
            "Bytes copied to give space back.",
            stats.rewritten_bytes,
        ),
    ]
}

fn text(numbers: impl Iterator<Item = Number>) -> String {
    let mut text = String::new();
    for (name, kind, help, value) in numbers {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
            .expect("writing to memory cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_lines_of_its_own_and_counters_say_so_in_their_names() {
        let metrics = Metrics::default();
        metrics.watch_events_sent.add(3);
        let numbers = [("apiserver_things", Kind::Gauge, "Things.", 7), metrics.numbers()[1]];
        assert_eq!(
            text(numbers.into_iter()),
            "# HELP apiserver_things Things.\n# TYPE apiserver_things gauge\napiserver_things 7\n\
             # HELP apiserver_watch_events_sent_total Changes sent to watchers, counted once for each of them.\n\
             # TYPE apiserver_watch_events_sent_total counter\napiserver_watch_events_sent_total 3\n"
        );
    }
}
