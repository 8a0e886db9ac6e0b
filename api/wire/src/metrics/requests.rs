//! Metrics of requests for resources: numbers, durations and sizes (docs/api/operations.md#metrics).
//!
//! ```text
//! labels ─► Requests::begin ─► Measured ─ travels with the response ─► counted when the response ends
//! ```
//!
//! A request finds the series of its labels in one map under a read lock, and then does a few relaxed
//! additions. The labels come from the types that are served, so the number of series depends on the verbs of
//! these types and not on the requests of clients.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use hashbrown::{Equivalent, HashMap};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};

use super::buckets::{ANSWERS_BYTES, BODIES_BYTES, INDICATORS_US, REQUESTS_US};
use super::definition::{Definition, Kind, Stability};
use super::family::{Family, Histograms, micros};
use super::histogram::Histogram;
use super::page::Page;
use crate::server::body::Observer;

/// Maximum number of series, enough for some thousand custom types. Requests for further series are not
/// counted.
const SERIES_MAX: usize = 100_000;

/// The labels under which a request is counted.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Labels<'l> {
    /// Verb in upper case, such as `LIST`.
    pub verb: &'static str,
    /// Scope of the request: `cluster`, `namespace` or `resource`.
    pub scope: &'static str,
    /// Dry run option: `All`, `invalid`, or empty if not requested.
    pub dry_run: &'static str,
    /// API group of the resource.
    pub group: &'l str,
    /// API version of the resource.
    pub version: &'l str,
    /// Plural name of the resource.
    pub resource: &'l str,
    /// Subresource, or empty. The path if the request is not for a resource.
    pub subresource: &'l str,
}

/// Owned [`Labels`] as a map key. The fields equal the fields of `Labels` in the same order, so that both
/// types have the same hash.
#[derive(Debug, Default, Eq, Hash, PartialEq)]
struct Key {
    verb: &'static str,
    scope: &'static str,
    dry_run: &'static str,
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

impl<'l> Labels<'l> {
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

    /// Returns the labels of a request whose path is not the path of a resource.
    pub fn of_path(path: &'l str) -> Labels<'l> {
        Labels {
            verb: "GET",
            scope: "",
            dry_run: "",
            group: "",
            version: "",
            resource: "",
            subresource: path,
        }
    }

    /// Returns whether durations are a service level indicator.
    fn is_indicator(&self) -> bool {
        self.dry_run.is_empty() && !matches!(self.verb, "WATCH" | "CONNECT")
    }

    /// Returns whether the request is a read. The sizes of responses are counted only for reads.
    fn is_read(&self) -> bool {
        matches!(self.verb, "GET" | "LIST" | "WATCH")
    }
}

/// Metrics of the requests with the same labels.
#[derive(Debug)]
struct Series {
    /// Number of requests by response code. There are few codes, so a search is cheap.
    totals: Mutex<Vec<(StatusCode, u64)>>,
    durations: Histogram,
    /// Durations for the service level indicator; `None` for streams and dry runs.
    indicators: Option<Histogram>,
    /// Sizes of responses; `None` if the requests are not reads.
    sizes: Option<Histogram>,
    /// Number of open streams.
    open: Arc<AtomicI64>,
}

impl Series {
    fn count(&self, code: StatusCode) {
        let mut totals = self.totals.lock();
        match totals.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => totals.push((code, 1)),
        }
    }
}

/// Metrics of all requests.
#[derive(Debug)]
pub struct Requests {
    series: RwLock<HashMap<Key, Arc<Series>>>,
    reading: Arc<AtomicI64>,
    mutating: Arc<AtomicI64>,
    /// Sizes of request bodies.
    pub bodies: Histograms,
}

impl Default for Requests {
    fn default() -> Self {
        let labels = &["group", "resource", "verb"];
        let bodies = stable("apiserver_request_body_size_bytes", labels, "Bytes of the bodies of writes.");
        let bodies = Definition { stability: Stability::Alpha, ..bodies };
        Requests {
            series: RwLock::default(),
            reading: Arc::default(),
            mutating: Arc::default(),
            bodies: Histograms::of_sizes(bodies, BODIES_BYTES),
        }
    }
}

const fn stable(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Definition {
    Definition { name, stability: Stability::Stable, help, labels }
}

/// A request in progress, which ends when this value is dropped.
pub struct Inflight(Arc<AtomicI64>);

impl Drop for Inflight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Requests {
    /// Counts a request as in progress.
    pub fn enter(&self, is_mutating: bool) -> Inflight {
        let kind = if is_mutating { &self.mutating } else { &self.reading };
        kind.fetch_add(1, Ordering::Relaxed);
        Inflight(kind.clone())
    }

    /// Returns the measurement of a request that was received at `received` and has a response of `code`;
    /// `None` if there are too many series.
    pub fn measure(&self, labels: Labels<'_>, code: StatusCode, received: Instant) -> Option<Measured> {
        let series = self.series(labels)?;
        Some(Measured { series, code, received, bytes: 0 })
    }

    /// Counts a request that is refused before its verb runs: such a request has a code, but no duration.
    pub fn refuse(&self, labels: Labels<'_>, code: StatusCode) {
        if let Some(series) = self.series(labels) {
            series.count(code);
        }
    }

    /// Counts a stream as open until the result is dropped.
    pub fn open(&self, labels: Labels<'_>) -> Option<Inflight> {
        let series = self.series(labels)?;
        series.open.fetch_add(1, Ordering::Relaxed);
        Some(Inflight(series.open.clone()))
    }

    fn series(&self, labels: Labels<'_>) -> Option<Arc<Series>> {
        let series = self.series.read().get(&labels).cloned();
        series.or_else(|| self.add(labels))
    }

    fn add(&self, labels: Labels<'_>) -> Option<Arc<Series>> {
        let mut all = self.series.write();
        if all.len() >= SERIES_MAX {
            return None;
        }
        let series = all.entry(labels.to_key()).or_insert_with(|| {
            Arc::new(Series {
                totals: Mutex::default(),
                durations: Histogram::new(REQUESTS_US),
                indicators: labels.is_indicator().then(|| Histogram::new(INDICATORS_US)),
                sizes: labels.is_read().then(|| Histogram::new(ANSWERS_BYTES)),
                open: Arc::default(),
            })
        });
        Some(series.clone())
    }

    /// Writes all families of requests.
    pub fn write(&self, page: &mut Page<'_>) {
        let all = self.series.read();
        let mut all: Vec<(&Key, &Arc<Series>)> = all.iter().collect();
        all.sort_unstable_by_key(|(key, _)| {
            (&key.group, &key.version, &key.resource, &key.subresource, key.verb, key.scope, key.dry_run)
        });
        let help = "Requests by verb, resource, scope and code.";
        let mut totals = page.family(&stable("apiserver_request_total", &[], help), Kind::Counter);
        for (key, series) in &all {
            let labels = key.text(true);
            for (code, count) in series.totals.lock().iter() {
                totals.number(&format!("code=\"{}\",{labels}", code.as_u16()), count);
            }
        }
        let counted = || all.iter().filter(|(_, series)| !series.durations.is_empty());
        let help = "Time from the head of a request to the end of its answer.";
        let mut durations =
            page.family(&stable("apiserver_request_duration_seconds", &[], help), Kind::Histogram);
        for (key, series) in counted() {
            durations.histogram(&key.text(true), &series.durations, 1e6);
        }
        for (name, help) in [
            ("apiserver_request_sli_duration_seconds", "The same without streams and dry runs."),
            ("apiserver_request_slo_duration_seconds", "The same under an older name."),
        ] {
            let definition = Definition { stability: Stability::Alpha, ..stable(name, &[], help) };
            let mut indicators = page.family(&definition, Kind::Histogram);
            let is_written = indicators.is_written();
            for (key, series) in counted().filter(|_| is_written) {
                if let Some(histogram) = &series.indicators {
                    indicators.histogram(&key.text(false), histogram, 1e6);
                }
            }
        }
        let help = "Bytes of the answers to reads.";
        let mut sizes = page.family(&stable("apiserver_response_sizes", &[], help), Kind::Histogram);
        let mut read = counted().filter_map(|(key, series)| Some((key, series.sizes.as_ref()?))).peekable();
        if read.peek().is_none() {
            // The bounds are written even if nothing was counted yet.
            sizes.histogram(&Key::default().text(false), &Histogram::new(ANSWERS_BYTES), 1.0);
        }
        for (key, histogram) in read {
            sizes.histogram(&key.text(false), histogram, 1.0);
        }
        let help = "Streams that are open.";
        let mut open = page.family(&stable("apiserver_longrunning_requests", &[], help), Kind::Gauge);
        for (key, series) in &all {
            let count = series.open.load(Ordering::Relaxed);
            if count != 0 || matches!(key.verb, "WATCH" | "CONNECT") {
                open.number(&key.text(false), count);
            }
        }
        let help = "Requests under way that are not long-running.";
        let definition = stable("apiserver_current_inflight_requests", &[], help);
        let mut inflight = page.family(&definition, Kind::Gauge);
        for (kind, count) in [("mutating", &self.mutating), ("readOnly", &self.reading)] {
            inflight.number(&format!("request_kind=\"{kind}\""), count.load(Ordering::Relaxed));
        }
        self.bodies.write(page);
    }

    /// Resets the counts, but not the gauges of requests in progress.
    pub fn reset(&self) {
        self.series.write().retain(|_, series| series.open.load(Ordering::Relaxed) != 0);
        self.bodies.reset();
    }
}

impl Key {
    /// Returns the labels as text. No value can contain a character that needs an escape: the values are
    /// names of types.
    fn text(&self, with_dry_run: bool) -> String {
        let Key { verb, scope, dry_run, group, version, resource, subresource } = self;
        let dry_run = if with_dry_run { format!("dry_run=\"{dry_run}\",") } else { String::new() };
        let component = if subresource.starts_with('/') { "" } else { "apiserver" };
        format!(
            "component=\"{component}\",{dry_run}group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",\
             subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        )
    }
}

/// A request that is counted when this value is dropped.
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
        let Series { durations, indicators, sizes, .. } = &*self.series;
        self.series.count(self.code);
        let took = micros(self.received.elapsed());
        durations.record(took);
        if let Some(indicators) = indicators {
            indicators.record(took);
        }
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
        dry_run: "",
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
        let dry = Labels { verb: "POST", scope: "resource", dry_run: "All", ..LABELS };
        drop(requests.measure(dry, StatusCode::CREATED, Instant::now()));
        drop(requests.measure(Labels::of_path("/livez"), StatusCode::OK, Instant::now()));
        requests.refuse(Labels { verb: "DELETE", ..LABELS }, StatusCode::TOO_MANY_REQUESTS);
        let inflight = requests.enter(true);
        let nothing = Default::default();
        let mut page = Page::new(&nothing);
        requests.write(&mut page);
        let text = page.into_text();
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
            "apiserver_request_total{code=\"200\",component=\"\",dry_run=\"\",group=\"\",resource=\"\",scope=\"\",\
             subresource=\"/livez\",verb=\"GET\",version=\"\"} 1"
                .to_owned(),
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
        let refused = list.replace("LIST", "DELETE");
        assert!(text.contains(&format!("code=\"429\",component=\"apiserver\",dry_run=\"\",{refused}}} 1")));
        assert!(!text.contains(&format!("component=\"apiserver\",{refused}}}")), "{text}");
    }

    #[test]
    fn streams_count_as_open_requests_until_they_end() {
        let requests = Requests::default();
        let watch = Labels { verb: "WATCH", ..LABELS };
        let open = requests.open(watch);
        let shown = || {
            let nothing = Default::default();
            let mut page = Page::new(&nothing);
            requests.write(&mut page);
            let text = page.into_text();
            let line = text.lines().find(|line| line.starts_with("apiserver_longrunning_requests{"));
            line.unwrap().rsplit_once(' ').unwrap().1.to_owned()
        };
        assert_eq!(shown(), "1");
        requests.reset();
        assert_eq!(shown(), "1");
        drop(open);
        assert_eq!(shown(), "0");
    }
}
