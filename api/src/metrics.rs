//! What the server counts and what its store is like, and `/metrics`, where it says so
//! (docs/api/operations.md#metrics): Prometheus text, version 0.0.4.
//!
//! One list of counters, one of the store's numbers, and the series of requests (`requests.rs`). Counting is one relaxed
//! addition, and the store is asked when somebody wants to know.

pub mod requests;

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{Engine, Stats};
use http::StatusCode;

use self::requests::Requests;
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
    /// Requests for resources.
    pub requests: Requests,
    /// Watch events made from a stored change. Many watchers of one form share what is made once.
    pub watch_events_rendered: Counter,
    /// Watch events of changes handed to a connection, bookmarks and initial events not counted.
    pub watch_events_sent: Counter,
    /// Log lines that could not be written, because standard error did not take them in time or at all.
    pub log_lines_dropped: Counter,
}

/// What a number does, in Prometheus's words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Counter,
    Gauge,
}

/// One number: its name, what it does, what it says, and how much.
type Number = (&'static str, Kind, &'static str, u64);

fn counter(name: &'static str, help: &'static str, value: u64) -> Number {
    (name, Kind::Counter, help, value)
}

fn gauge(name: &'static str, help: &'static str, value: u64) -> Number {
    (name, Kind::Gauge, help, value)
}

impl Metrics {
    fn numbers(&self) -> [Number; 3] {
        let Metrics { watch_events_rendered: rendered, watch_events_sent: sent, log_lines_dropped, .. } =
            self;
        let how_rendered = "Changes made into a watch event, once for all watchers of the same form.";
        let how_sent = "Changes sent to watchers, counted once for each of them.";
        let how_dropped = "Log lines that standard error did not take.";
        [
            counter("apiserver_watch_events_rendered_total", how_rendered, rendered.value()),
            counter("apiserver_watch_events_sent_total", how_sent, sent.value()),
            counter("apiserver_log_lines_dropped_total", how_dropped, log_lines_dropped.value()),
        ]
    }

    /// The answer to `/metrics`; `None` to every other path.
    pub fn respond(&self, path: &str, engine: &Engine) -> Option<Response> {
        if path != "/metrics" {
            return None;
        }
        let store = numbers_of_store(&engine.stats(), engine.health().is_err());
        let mut text = text(self.numbers().into_iter().chain(store));
        self.requests.write(&mut text);
        Some(respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
    }
}

/// What somebody who keeps the only copy wants to draw or to be woken by.
fn numbers_of_store(stats: &Stats, refuses: bool) -> [Number; 16] {
    let next_start = "Revision of the checkpoint that the next start begins with; 0: none.";
    let rewritten = stats.rewritten_bytes;
    [
        gauge("apiserver_store_refuses_writes", "1 while writes are refused, else 0.", refuses.into()),
        gauge("apiserver_store_revision", "Newest revision.", stats.revision.get()),
        gauge("apiserver_store_synced_revision", "Newest revision known to be on disk.", stats.synced.get()),
        gauge("apiserver_store_oldest_revision", "Oldest revision that can be read.", stats.oldest.get()),
        gauge("apiserver_store_checkpoint_revision", next_start, stats.checkpoint.get()),
        gauge("apiserver_store_keys", "Keys that exist.", stats.keys),
        gauge("apiserver_store_versions", "States of keys that can be read.", stats.versions),
        gauge("apiserver_store_segments", "Segment files.", stats.segments),
        gauge("apiserver_store_record_bytes", "Bytes of all records in the log.", stats.record_bytes),
        gauge("apiserver_store_live_bytes", "Bytes of the records that can be read.", stats.live_bytes),
        gauge("apiserver_store_unreadable_pages", "Pages the disk could not read.", stats.unreadable_pages),
        gauge("apiserver_store_lost_revisions", "Revisions lost to damage at start.", stats.lost_revisions),
        counter("apiserver_store_commits_total", "Writes committed.", stats.commits),
        counter("apiserver_store_batches_total", "Batches that they were synced in.", stats.batches),
        counter("apiserver_store_expired_total", "Keys deleted as their time was over.", stats.expired),
        counter("apiserver_store_rewritten_bytes_total", "Bytes copied to give space back.", rewritten),
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
    fn every_number_has_lines_of_its_own() {
        let metrics = Metrics::default();
        metrics.watch_events_sent.add(3);
        assert_eq!(metrics.watch_events_sent.value(), 3);
        let numbers = [gauge("apiserver_things", "Things.", 7), metrics.numbers()[1]];
        assert_eq!(
            text(numbers.into_iter()),
            "# HELP apiserver_things Things.\n# TYPE apiserver_things gauge\napiserver_things 7\n\
             # HELP apiserver_watch_events_sent_total Changes sent to watchers, counted once for each of them.\n\
             # TYPE apiserver_watch_events_sent_total counter\napiserver_watch_events_sent_total 3\n"
        );
    }

    #[test]
    fn names_are_told_once_and_say_what_counts() {
        let store = numbers_of_store(&Stats::default(), true);
        let mut names = std::collections::BTreeSet::new();
        for (name, kind, ..) in Metrics::default().numbers().into_iter().chain(store) {
            assert!(name.starts_with("apiserver_") && names.insert(name), "{name}");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        }
        assert_eq!(store[0].3, 1);
    }
}
