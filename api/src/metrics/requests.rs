//! What is counted of requests for resources: how many, how long, how large (docs/api/operations.md#metrics).
//!
//! ```text
//! labels ─► Requests::begin ─► Measured ─ goes with the answer ─► counted when it is sent or its client is gone
//! ```
//!
//! A request finds the series of its labels in one map under a read lock, and the rest is a few relaxed additions. The
//! labels come from the types that are served, so there are as many series as verbs of types, whatever clients ask for.

use std::fmt::Write;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use hashbrown::{Equivalent, HashMap};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};

use crate::server::body::Observer;

/// Most series: those of some thousand custom types. Requests beyond are not counted.
const SERIES_MAX: usize = 100_000;

/// An upper bound, as a number of the histogram's unit and as it is written.
type Bound = (u64, &'static str);

/// Bounds of durations, in microseconds.
const DURATIONS_US: &[Bound] = &[
    (5_000, "0.005"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (200_000, "0.2"),
    (400_000, "0.4"),
    (600_000, "0.6"),
    (800_000, "0.8"),
    (1_000_000, "1"),
    (1_250_000, "1.25"),
    (1_500_000, "1.5"),
    (2_000_000, "2"),
    (3_000_000, "3"),
    (4_000_000, "4"),
    (5_000_000, "5"),
    (6_000_000, "6"),
    (8_000_000, "8"),
    (10_000_000, "10"),
    (15_000_000, "15"),
    (20_000_000, "20"),
    (30_000_000, "30"),
    (45_000_000, "45"),
    (60_000_000, "60"),
];

/// Bounds of sizes, in bytes.
const SIZES_BYTES: &[Bound] = &[
    (1_000, "1000"),
    (10_000, "10000"),
    (100_000, "100000"),
    (1_000_000, "1e+06"),
    (10_000_000, "1e+07"),
    (100_000_000, "1e+08"),
    (1_000_000_000, "1e+09"),
];

/// What a request is counted under.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Labels<'l> {
    /// Upper case: `LIST`.
    pub verb: &'static str,
    /// `cluster`, `namespace` or `resource`.
    pub scope: &'static str,
    /// Whether nothing is stored.
    pub dry_run: bool,
    /// Group of the resource.
    pub group: &'l str,
    /// Version of the resource.
    pub version: &'l str,
    /// Plural of the resource.
    pub resource: &'l str,
    /// Subresource, or empty.
    pub subresource: &'l str,
}

/// [`Labels`] that are kept. The members are those of `Labels` in the same order, so that both have one hash.
#[derive(Debug, Eq, Hash, PartialEq)]
struct Key {
    verb: &'static str,
    scope: &'static str,
    dry_run: bool,
    group: String,
    version: String,
    resource: String,
    subresource: String,
}

impl Equivalent<Key> for Labels<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.verb == key.verb
            && self.scope == key.scope
            && self.dry_run == key.dry_run
            && self.group == key.group
            && self.version == key.version
            && self.resource == key.resource
            && self.subresource == key.subresource
    }
}

impl Labels<'_> {
    fn to_key(self) -> Key {
        Key {
            verb: self.verb,
            scope: self.scope,
            dry_run: self.dry_run,
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            resource: self.resource.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }

    /// Whether answers have sizes worth a series: those of reads.
    fn is_read(&self) -> bool {
        matches!(self.verb, "GET" | "LIST" | "WATCH")
    }
}

/// Numbers sorted into ranges.
#[derive(Debug)]
struct Histogram {
    bounds: &'static [Bound],
    /// One for each bound, and one for what is above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [Bound]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    fn record(&self, value: u64) {
        let index = self.bounds.partition_point(|(bound, _)| *bound < value);
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The lines of one series. `unit` is the number of the histogram's unit in one of the metric's.
    fn write(&self, text: &mut String, name: &str, labels: &str, unit: f64) {
        let mut total = 0;
        let bounds = self.bounds.iter().map(|(_, shown)| *shown).chain(["+Inf"]);
        for (count, bound) in self.counts.iter().zip(bounds) {
            total += count.load(Ordering::Relaxed);
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
        }
        let sum = self.sum.load(Ordering::Relaxed) as f64 / unit;
        let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {total}");
    }
}

/// What is counted of the requests with the same labels.
#[derive(Debug)]
struct Series {
    /// Requests by the code of their answer. Few codes, so a search is cheap.
    totals: Mutex<Vec<(StatusCode, u64)>>,
    durations: Histogram,
    /// Only of reads.
    sizes: Option<Histogram>,
}

/// The series of all requests.
#[derive(Debug, Default)]
pub struct Requests {
    series: RwLock<HashMap<Key, Arc<Series>>>,
    reading: Arc<AtomicI64>,
    mutating: Arc<AtomicI64>,
}

/// A request under way that is not long-running; it ends when this is dropped.
pub struct Inflight(Arc<AtomicI64>);

impl Drop for Inflight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Requests {
    /// Counts a request as under way.
    pub fn enter(&self, is_mutating: bool) -> Inflight {
        let kind = if is_mutating { &self.mutating } else { &self.reading };
        kind.fetch_add(1, Ordering::Relaxed);
        Inflight(kind.clone())
    }

    /// The measurement of a request with an answer of `code` that was received at `received`; none where there are too
    /// many series.
    pub fn measure(&self, labels: Labels<'_>, code: StatusCode, received: Instant) -> Option<Measured> {
        let series = self.series.read().get(&labels).cloned();
        let series = match series {
            Some(series) => series,
            None => self.add(labels)?,
        };
        Some(Measured { series, code, received, bytes: 0 })
    }

    fn add(&self, labels: Labels<'_>) -> Option<Arc<Series>> {
        let mut all = self.series.write();
        if all.len() >= SERIES_MAX {
            return None;
        }
        let series = all.entry(labels.to_key()).or_insert_with(|| {
            Arc::new(Series {
                totals: Mutex::default(),
                durations: Histogram::new(DURATIONS_US),
                sizes: labels.is_read().then(|| Histogram::new(SIZES_BYTES)),
            })
        });
        Some(series.clone())
    }

    /// The lines of all series.
    pub fn write(&self, text: &mut String) {
        let all = self.series.read();
        let mut all: Vec<(&Key, &Arc<Series>)> = all.iter().collect();
        all.sort_unstable_by_key(|(key, _)| {
            (&key.group, &key.version, &key.resource, &key.subresource, key.verb, key.scope, key.dry_run)
        });
        head(text, "apiserver_request_total", "counter", "Requests by verb, resource, scope and code.");
        for (key, series) in &all {
            let labels = key.text(true);
            for (code, count) in series.totals.lock().iter() {
                let code = code.as_u16();
                let _ = writeln!(text, "apiserver_request_total{{code=\"{code}\",{labels}}} {count}");
            }
        }
        let name = "apiserver_request_duration_seconds";
        head(text, name, "histogram", "Time from the head of a request to the end of its answer.");
        for (key, series) in &all {
            series.durations.write(text, name, &key.text(true), 1e6);
        }
        let name = "apiserver_response_sizes";
        head(text, name, "histogram", "Bytes of the answers to reads.");
        for (key, sizes) in all.iter().filter_map(|(key, series)| Some((key, series.sizes.as_ref()?))) {
            sizes.write(text, name, &key.text(false), 1.0);
        }
        let name = "apiserver_current_inflight_requests";
        head(text, name, "gauge", "Requests under way that are not long-running.");
        for (kind, count) in [("mutating", &self.mutating), ("readOnly", &self.reading)] {
            let _ = writeln!(text, "{name}{{request_kind=\"{kind}\"}} {}", count.load(Ordering::Relaxed));
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
}

impl Key {
    /// The labels as text. None of them can contain a character that would need an escape: they are names of types.
    fn text(&self, with_dry_run: bool) -> String {
        let Key { verb, scope, dry_run, group, version, resource, subresource } = self;
        let dry_run = if *dry_run { "All" } else { "" };
        let dry_run = if with_dry_run { format!("dry_run=\"{dry_run}\",") } else { String::new() };
        format!(
            "component=\"apiserver\",{dry_run}group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",\
             subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        )
    }
}

/// A request that is counted when this is dropped.
pub struct Measured {
    series: Arc<Series>,
    code: StatusCode,
    received: Instant,
    bytes: u64,
}

impl Observer for Measured {
    fn chunk(&mut self, chunk: &Bytes) {
        self.bytes += chunk.len() as u64;
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let Series { totals, durations, sizes } = &*self.series;
        let mut totals = totals.lock();
        match totals.iter_mut().find(|(code, _)| *code == self.code) {
            Some((_, count)) => *count += 1,
            None => totals.push((self.code, 1)),
        }
        drop(totals);
        durations.record(u64::try_from(self.received.elapsed().as_micros()).unwrap_or(u64::MAX));
        if let Some(sizes) = sizes {
            sizes.record(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: Labels<'static> = Labels {
        verb: "LIST",
        scope: "namespace",
        dry_run: false,
        group: "apps",
        version: "v1",
        resource: "deployments",
        subresource: "",
    };

    #[test]
    fn requests_are_counted_by_their_labels_and_codes() {
        let requests = Requests::default();
        for code in [StatusCode::OK, StatusCode::OK, StatusCode::GONE] {
            let mut measured = requests.measure(LABELS, code, Instant::now()).unwrap();
            measured.chunk(&Bytes::from_static(&[0; 1_001]));
        }
        let dry = Labels { verb: "POST", scope: "resource", dry_run: true, ..LABELS };
        drop(requests.measure(dry, StatusCode::CREATED, Instant::now()));
        let inflight = requests.enter(true);
        let mut text = String::new();
        requests.write(&mut text);
        drop(inflight);
        let list = "group=\"apps\",resource=\"deployments\",scope=\"namespace\",subresource=\"\",verb=\"LIST\",version=\"v1\"";
        let post = "group=\"apps\",resource=\"deployments\",scope=\"resource\",subresource=\"\",verb=\"POST\",version=\"v1\"";
        for line in [
            "# HELP apiserver_request_total [STABLE] Requests by verb, resource, scope and code.".to_owned(),
            "# TYPE apiserver_response_sizes histogram".to_owned(),
            format!("apiserver_request_total{{code=\"200\",component=\"apiserver\",dry_run=\"\",{list}}} 2"),
            format!("apiserver_request_total{{code=\"410\",component=\"apiserver\",dry_run=\"\",{list}}} 1"),
            format!(
                "apiserver_request_total{{code=\"201\",component=\"apiserver\",dry_run=\"All\",{post}}} 1"
            ),
            format!(
                "apiserver_request_duration_seconds_count{{component=\"apiserver\",dry_run=\"\",{list}}} 3"
            ),
            format!("apiserver_response_sizes_bucket{{component=\"apiserver\",{list},le=\"1000\"}} 0"),
            format!("apiserver_response_sizes_bucket{{component=\"apiserver\",{list},le=\"10000\"}} 3"),
            format!("apiserver_response_sizes_bucket{{component=\"apiserver\",{list},le=\"+Inf\"}} 3"),
            format!("apiserver_response_sizes_sum{{component=\"apiserver\",{list}}} 3003"),
            "apiserver_current_inflight_requests{request_kind=\"mutating\"} 1".to_owned(),
            "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0".to_owned(),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("apiserver_response_sizes_count{component=\"apiserver\",{post}}"));
    }

    #[test]
    fn a_bound_belongs_to_the_range_that_it_ends() {
        let histogram = Histogram::new(SIZES_BYTES);
        for (value, index) in [(0, 0), (1_000, 0), (1_001, 1), (1_000_000_000, 6), (u64::MAX / 2, 7)] {
            let before = histogram.counts[index].load(Ordering::Relaxed);
            histogram.record(value);
            assert_eq!(histogram.counts[index].load(Ordering::Relaxed), before + 1, "{value}");
        }
    }
}
