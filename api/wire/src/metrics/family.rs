//! Metric families: numbers and histograms by label values, counted where events happen and written when a
//! client scrapes them (docs/api/operations.md#metrics).
//!
//! Counting finds the series in one map under a read lock, and then does relaxed additions. A caller that
//! counts very often keeps a reference to its series.

use std::fmt::{self, Display, Write};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;

use super::definition::{self, Definition, Kind};
use super::histogram::{Histogram, HistogramBound};
use super::page::Page;

/// Maximum number of series of a family; values for further series are not counted.
const SERIES_MAX: usize = 10_000;

/// Label values of a series.
#[derive(Debug, Eq, PartialEq)]
struct Values(Box<[Box<str>]>);

/// Borrowed label values of a series.
struct LabelValues<'w>(&'w [&'w str]);

impl Hash for Values {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|value| value.hash(state));
    }
}

impl Hash for LabelValues<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|value| value.hash(state));
    }
}

impl Equivalent<Values> for LabelValues<'_> {
    fn equivalent(&self, key: &Values) -> bool {
        self.0.iter().copied().eq(key.0.iter().map(|value| &**value))
    }
}

/// All series of a family, by their label values.
#[derive(Debug)]
struct Series<T> {
    definition: Definition,
    all: RwLock<HashMap<Values, Arc<T>>>,
}

impl<T> Series<T> {
    fn new(definition: Definition) -> Self {
        Series { definition, all: RwLock::default() }
    }

    /// Returns the series with these label values; `None` if the family has too many series.
    fn get_or_create(&self, values: &[&str], make: impl FnOnce() -> T) -> Option<Arc<T>> {
        debug_assert_eq!(values.len(), self.definition.labels.len(), "{}", self.definition.name);
        if let Some(series) = self.all.read().get(&LabelValues(values)) {
            return Some(series.clone());
        }
        let mut all = self.all.write();
        if all.len() >= SERIES_MAX {
            return None;
        }
        let key = Values(values.iter().map(|value| Box::from(*value)).collect());
        Some(all.entry(key).or_insert_with(|| Arc::new(make())).clone())
    }

    /// Calls `reset` for each series. The series stay in the map, because callers may keep references to
    /// them.
    fn reset(&self, reset: impl Fn(&T)) {
        self.all.read().values().for_each(|series| reset(series));
    }

    /// Removes the series for whose label values `is_kept` returns `false`. Later counts in a removed series
    /// are lost.
    fn retain(&self, is_kept: impl Fn(&[Box<str>]) -> bool) {
        self.all.write().retain(|values, _| is_kept(&values.0));
    }

    /// Calls `write` with the text of the labels and the value of each series for which `counts` returns
    /// `true`. A series without labels is always included. The series are sorted by the text of their labels.
    fn each(&self, counts: impl Fn(&T) -> bool, mut write: impl FnMut(&str, &T)) {
        let all = self.all.read();
        let mut lines: Vec<(String, &Arc<T>)> = all
            .iter()
            .filter(|(values, series)| values.0.is_empty() || counts(series))
            .map(|(values, series)| {
                let values = values.0.iter().map(|value| &**value);
                (labels_text(self.definition.labels.iter().copied().zip(values)), series)
            })
            .collect();
        lines.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        lines.iter().for_each(|(labels, series)| write(labels, series));
    }
}

/// The operations that every family has.
pub trait Family: fmt::Debug + Sync {
    /// Writes the head lines and the numbers of the family.
    fn write(&self, page: &mut Page<'_>);

    /// Resets the counts. Gauges of operations in progress stay.
    fn reset(&self);
}

/// Returns the text of labels between the braces.
pub fn labels_text<'l>(labels: impl Iterator<Item = (&'l str, &'l str)>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"{}\"", Escaped(value));
    }
    text
}

/// A label value that is written with its quotes, backslashes and line breaks escaped.
struct Escaped<'e>(&'e str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.contains(['"', '\\', '\n']) {
            return f.write_str(self.0);
        }
        self.0.chars().try_for_each(|c| match c {
            '"' => f.write_str("\\\""),
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

/// A single counter, for callers that count very often.
#[derive(Debug)]
pub struct Counter {
    definition: Definition,
    count: AtomicU64,
}

impl Counter {
    /// Creates a counter at zero.
    pub fn new(definition: Definition) -> Counter {
        Counter { definition, count: AtomicU64::new(0) }
    }

    /// Adds `more` to the counter.
    pub fn add(&self, more: u64) {
        self.count.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the count since the start of the process.
    pub fn value(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Family for Counter {
    fn write(&self, page: &mut Page<'_>) {
        page.family(&self.definition, Kind::Counter).number("", self.value());
    }

    /// Does nothing: counters of this server's own metrics keep growing.
    fn reset(&self) {}
}

/// Counters that share a name and differ by label values.
#[derive(Debug)]
pub struct Counters(Series<AtomicU64>);

impl Counters {
    /// Creates a family without series.
    pub fn new(definition: Definition) -> Counters {
        Counters(Series::new(definition))
    }

    /// Adds one to the series with these label values.
    pub fn count(&self, values: &[&str]) {
        self.add(values, 1);
    }

    /// Adds `more` to the series with these label values.
    pub fn add(&self, values: &[&str], more: u64) {
        if let Some(series) = self.series(values) {
            series.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Returns a series, for callers that count often.
    pub fn series(&self, values: &[&str]) -> Option<Arc<AtomicU64>> {
        self.0.get_or_create(values, AtomicU64::default)
    }

    /// Writes the numbers as gauges under the name of another family.
    pub fn write_as(&self, definition: &Definition, page: &mut Page<'_>) {
        let mut head = page.family(definition, Kind::Gauge);
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.0.each(|count| value(count) != 0, |labels, count| head.number(labels, value(count)));
    }
}

impl Family for Counters {
    fn write(&self, page: &mut Page<'_>) {
        let definition = &self.0.definition;
        let mut head = page.family(definition, Kind::Counter);
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.0.each(|count| value(count) != 0, |labels, count| head.number(labels, value(count)));
        if definition.labels.is_empty() && self.0.all.read().is_empty() {
            head.number("", 0);
        }
    }

    fn reset(&self) {
        self.0.reset(|count| count.store(0, Ordering::Relaxed));
    }
}

/// Gauges that share a name and differ by label values.
#[derive(Debug)]
pub struct Gauges(Series<AtomicI64>);

/// A unit that was added to a gauge. Dropping this value subtracts the unit.
#[derive(Debug)]
pub struct GaugeUnit(Arc<AtomicI64>);

impl Drop for GaugeUnit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gauges {
    /// Creates a family without series.
    pub fn new(definition: Definition) -> Gauges {
        Gauges(Series::new(definition))
    }

    /// Adds one to the gauge with these label values. Dropping the result subtracts one.
    pub fn hold(&self, values: &[&str]) -> Option<GaugeUnit> {
        let series = self.series(values)?;
        series.fetch_add(1, Ordering::Relaxed);
        Some(GaugeUnit(series))
    }

    /// Returns a series, for callers that count often.
    pub fn series(&self, values: &[&str]) -> Option<Arc<AtomicI64>> {
        self.0.get_or_create(values, AtomicI64::default)
    }

    /// Sets the gauge with these label values.
    pub fn set(&self, values: &[&str], value: i64) {
        if let Some(series) = self.series(values) {
            series.store(value, Ordering::Relaxed);
        }
    }

    /// Adds to the gauge with these label values.
    pub fn add(&self, values: &[&str], more: i64) {
        if let Some(series) = self.series(values) {
            series.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Removes the series for whose label values `is_kept` returns `false`, so that objects that no longer
    /// exist disappear from the output.
    pub fn retain(&self, is_kept: impl Fn(&[Box<str>]) -> bool) {
        self.0.retain(is_kept);
    }

    /// Writes the numbers under the name of another family.
    pub fn write_as(&self, definition: &Definition, page: &mut Page<'_>) {
        let mut head = page.family(definition, Kind::Gauge);
        self.0.each(|_| true, |labels, value| head.number(labels, value.load(Ordering::Relaxed)));
    }
}

impl Family for Gauges {
    fn write(&self, page: &mut Page<'_>) {
        self.write_as(&self.0.definition, page);
    }

    fn reset(&self) {}
}

/// Histograms that share a name and bounds and differ by label values.
#[derive(Debug)]
pub struct Histograms {
    series: Series<Histogram>,
    bounds: &'static [HistogramBound],
    /// Number of counting units in one unit of the output.
    unit: f64,
}

impl Histograms {
    /// Creates histograms of durations, counted in microseconds and written in seconds.
    pub fn of_durations(definition: Definition, bounds: &'static [HistogramBound]) -> Histograms {
        Histograms { series: Series::new(definition), bounds, unit: 1e6 }
    }

    /// Creates histograms of sizes or numbers.
    pub fn of_sizes(definition: Definition, bounds: &'static [HistogramBound]) -> Histograms {
        Histograms { series: Series::new(definition), bounds, unit: 1.0 }
    }

    /// Creates histograms of ratios, counted in thousandths.
    pub fn of_shares(definition: Definition, bounds: &'static [HistogramBound]) -> Histograms {
        Histograms { series: Series::new(definition), bounds, unit: 1e3 }
    }

    /// Counts a value in the series with these label values.
    pub fn record(&self, values: &[&str], value: u64) {
        if let Some(series) = self.series(values) {
            series.record(value);
        }
    }

    /// Counts a duration in the series with these label values.
    pub fn time(&self, values: &[&str], time: Duration) {
        self.record(values, micros(time));
    }

    /// Returns a series, for callers that count often.
    pub fn series(&self, values: &[&str]) -> Option<Arc<Histogram>> {
        self.series.get_or_create(values, || Histogram::new(self.bounds))
    }
}

impl Family for Histograms {
    fn write(&self, page: &mut Page<'_>) {
        let definition = &self.series.definition;
        let mut head = page.family(definition, Kind::Histogram);
        let counts = |histogram: &Histogram| histogram.totals().last().is_some_and(|(_, total)| total != 0);
        let mut written = 0;
        self.series.each(counts, |labels, histogram| {
            head.histogram(labels, histogram, self.unit);
            written += 1;
        });
        // The bounds are written even if nothing was counted yet.
        if written == 0 && (definition.labels.is_empty() || definition::is_announced(definition.name)) {
            let labels = labels_text(definition.labels.iter().map(|name| (*name, "")));
            head.histogram(&labels, &Histogram::new(self.bounds), self.unit);
        }
    }

    fn reset(&self) {
        self.series.reset(Histogram::reset);
    }
}

/// Returns a duration in microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::definition::Stability;

    const BOUNDS: &[HistogramBound] = &[(1_000, "1000"), (10_000, "10000")];
    const THINGS: Definition =
        Definition { name: "things", stability: Stability::Alpha, help: "Things.", labels: &["a", "b"] };

    fn written(write: impl FnOnce(&mut Page<'_>)) -> String {
        let hidden = Default::default();
        let mut page = Page::new(&hidden);
        write(&mut page);
        page.into_text()
    }

    #[test]
    fn series_are_written_in_the_order_of_their_labels() {
        let counters = Counters::new(THINGS);
        for values in [["y", "1"], ["x", "2\"\\\n"], ["y", "1"]] {
            counters.count(&values);
        }
        let text = "# HELP things [ALPHA] Things.\n# TYPE things counter\n\
            things{a=\"x\",b=\"2\\\"\\\\\\n\"} 1\nthings{a=\"y\",b=\"1\"} 2\n";
        assert_eq!(written(|page| counters.write(page)), text);
        counters.reset();
        assert_eq!(written(|page| counters.write(page)), "");
    }

    #[test]
    fn a_metric_without_labels_is_written_from_the_start() {
        let counters = Counters::new(Definition { labels: &[], ..THINGS });
        let text = "# HELP things [ALPHA] Things.\n# TYPE things counter\nthings 0\n";
        assert_eq!(written(|page| counters.write(page)), text);
        let histograms = Histograms::of_sizes(Definition { labels: &[], ..THINGS }, BOUNDS);
        assert!(written(|page| histograms.write(page)).ends_with("things_sum 0\nthings_count 0\n"));
    }

    #[test]
    fn a_gauge_decreases_when_its_guard_is_dropped() {
        let gauges = Gauges::new(THINGS);
        let held = [gauges.hold(&["x", ""]), gauges.hold(&["x", ""])];
        assert!(written(|page| gauges.write(page)).ends_with("things{a=\"x\",b=\"\"} 2\n"));
        drop(held);
        assert!(written(|page| gauges.write(page)).ends_with("things{a=\"x\",b=\"\"} 0\n"));
    }

    #[test]
    fn durations_are_written_in_seconds() {
        let histograms = Histograms::of_durations(THINGS, &[(5_000, "0.005")]);
        histograms.time(&["x", "y"], Duration::from_millis(5));
        histograms.time(&["x", "y"], Duration::from_millis(7));
        let text = written(|page| histograms.write(page));
        let labels = "a=\"x\",b=\"y\"";
        for line in [
            format!("things_bucket{{{labels},le=\"0.005\"}} 1"),
            format!("things_bucket{{{labels},le=\"+Inf\"}} 2"),
            format!("things_sum{{{labels}}} 0.012"),
            format!("things_count{{{labels}}} 2"),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn the_number_of_series_of_a_family_is_limited() {
        let counters = Counters::new(THINGS);
        for n in 0..SERIES_MAX + 5 {
            counters.count(&[&n.to_string(), ""]);
        }
        assert_eq!(counters.0.all.read().len(), SERIES_MAX);
    }
}
