//! Metrics of the events of one watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::writes::accesses;
use types::schema::registry::Resource;
use wire::metrics::Metrics;
use wire::metrics::family::micros;
use wire::metrics::histogram::Histogram;

/// Metrics of the events of one watch.
#[derive(Clone)]
pub(super) struct WatchCounts {
    pub events: Option<Arc<AtomicU64>>,
    pub sizes: Option<Arc<Histogram>>,
    pub initial: Option<Arc<AtomicU64>>,
    pub changes: Option<Arc<AtomicU64>>,
    pub bookmarks: Option<Arc<AtomicU64>>,
    /// Histogram of the time to send the initial list, and the start time; `None` after the list was sent.
    pub lists: Option<(Arc<Histogram>, Instant)>,
}

/// Adds one to a counter.
pub(super) fn count(counter: Option<&Arc<AtomicU64>>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl WatchCounts {
    /// Returns the metrics of a watch.
    pub fn new(metrics: &Metrics, resource: &Resource, version: &str, scope: &str) -> WatchCounts {
        let (group, plural) = (&*resource.group, &*resource.table.plural);
        let (labels, stored) = ([group, plural, version], [group, plural]);
        let lists = metrics.watch_lists.series(&[group, plural, scope, version]);
        WatchCounts {
            events: metrics.watch_events.series(&labels),
            sizes: metrics.watch_event_sizes.series(&labels),
            initial: metrics.initial_events.series(&stored),
            changes: (!accesses::is_cached(resource)).then(|| metrics.store_events.series(&stored)).flatten(),
            bookmarks: metrics.bookmarks.series(&stored),
            lists: lists.map(|lists| (lists, Instant::now())),
        }
    }

    /// Records the time that it took to send the initial list.
    pub fn record_initial_list(&mut self) {
        if let Some((lists, began)) = self.lists.take() {
            lists.record(micros(began.elapsed()));
        }
    }

    /// Records an event with this number of bytes.
    pub fn event(&self, bytes: usize) {
        count(self.events.as_ref());
        if let Some(sizes) = &self.sizes {
            sizes.record(bytes as u64);
        }
    }
}
