//! The page that Prometheus reads: families with their head lines, in the text format of version 0.0.4.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};

use super::allowed::Allowed;
use super::family::{Definition, Histogram};
use values::release;

/// Families whose head is there before their first number: monitoring asks for them at the start.
const ANNOUNCED: [&str; 5] = [
    "apiserver_longrunning_requests",
    "apiserver_request_timestamp_comparison_time",
    "apiserver_response_sizes",
    "apiserver_watch_events_sizes",
    "apiserver_watch_events_total",
];

/// Families that are going to be removed, and the release since which that is known.
const DEPRECATED: [(&str, &str); 6] = [
    ("apiserver_flowcontrol_request_concurrency_in_use", "1.31.0"),
    ("apiserver_flowcontrol_request_concurrency_limit", "1.30.0"),
    ("apiserver_request_slo_duration_seconds", "1.27.0"),
    ("apiserver_storage_db_total_size_in_bytes", "1.28.0"),
    ("apiserver_storage_objects", "1.34.0"),
    ("etcd_bookmark_counts", "1.36.0"),
];

/// How far a name and its labels can be relied on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stability {
    /// May change with every release.
    Alpha,
    /// May get more labels.
    Beta,
    /// Stays.
    Stable,
    /// A family of this server alone; its help does not begin with a stability.
    Own,
}

/// Whether a family is there before its first number.
pub fn is_announced(name: &str) -> bool {
    ANNOUNCED.contains(&name)
}

impl Stability {
    fn as_str(self) -> &'static str {
        match self {
            Stability::Alpha => "ALPHA",
            Stability::Beta => "BETA",
            Stability::Stable => "STABLE",
            Stability::Own => "",
        }
    }

    /// How many releases a deprecated family is shown.
    fn releases_deprecated(self) -> u32 {
        match self {
            Stability::Alpha | Stability::Own => 0,
            Stability::Beta => 1,
            Stability::Stable => 3,
        }
    }

    /// As families are counted by it.
    fn counted_as(self) -> &'static str {
        if self == Stability::Own { "INTERNAL" } else { self.as_str() }
    }
}

/// What the numbers of a family do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Only grow.
    Counter,
    /// Rise and fall.
    Gauge,
    /// Are sorted into ranges.
    Histogram,
}

/// A page that is being written.
#[derive(Debug)]
pub struct Page<'p> {
    text: String,
    /// Families that the operator does not want.
    disabled: &'p BTreeSet<String>,
    /// Whether families are shown that are hidden as they are deprecated.
    shows_hidden: bool,
    allowed: Option<&'p Allowed>,
    /// Numbers of the family that is being written, where those whose labels lost their difference are one.
    merged: Vec<(String, f64)>,
    written: BTreeMap<(&'static str, &'static str), u64>,
    disabled_count: u64,
    hidden_count: u64,
    names: RefCell<BTreeSet<&'static str>>,
}

impl<'p> Page<'p> {
    /// An empty page.
    pub fn new(disabled: &'p BTreeSet<String>) -> Page<'p> {
        Page {
            text: String::new(),
            disabled,
            shows_hidden: false,
            allowed: None,
            merged: Vec::new(),
            written: BTreeMap::new(),
            disabled_count: 0,
            hidden_count: 0,
            names: RefCell::default(),
        }
    }

    /// The same where some labels have their allowed values alone.
    pub fn with_allowed(self, allowed: &'p Allowed) -> Page<'p> {
        Page { allowed: Some(allowed), ..self }
    }

    /// The same with the families that are hidden otherwise.
    pub fn with_hidden(self, shows_hidden: bool) -> Page<'p> {
        Page { shows_hidden, ..self }
    }

    /// Begins a family. Its head lines are written with its first number.
    pub fn family(&mut self, definition: &Definition, kind: Kind) -> Numbers<'_, 'p> {
        let Definition { name, stability, help, .. } = *definition;
        debug_assert!(self.names.borrow_mut().insert(name), "{name} is written twice");
        let is_disabled = self.disabled.contains(name);
        let is_hidden = !self.shows_hidden && is_hidden(name, stability);
        if is_disabled {
            self.disabled_count += 1;
        } else if is_hidden {
            self.hidden_count += 1;
        } else {
            *self.written.entry((deprecation(name), stability.counted_as())).or_default() += 1;
        }
        let is_left_out = is_disabled || is_hidden;
        let allowed = self.allowed.filter(|allowed| allowed.is_about(name));
        self.end_family();
        let mut numbers =
            Numbers { page: self, name, kind, head: Some((stability, help)), is_left_out, allowed };
        if is_announced(name) {
            numbers.begin();
        }
        numbers
    }

    /// The same, with the head lines there even if there is no number.
    pub fn announced(&mut self, definition: &Definition, kind: Kind) -> Numbers<'_, 'p> {
        let mut numbers = self.family(definition, kind);
        numbers.begin();
        numbers
    }

    /// Writes the numbers that were put together.
    fn end_family(&mut self) {
        for (series, value) in self.merged.drain(..) {
            let _ = writeln!(self.text, "{series} {value}");
        }
    }

    /// How many families were written, by the release of their deprecation and their stability.
    pub fn counts(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.written.clone()
    }

    /// How many families the operator disabled, and how many of the others are hidden as they are deprecated.
    pub fn left_out(&self) -> (u64, u64) {
        (self.disabled_count, self.hidden_count)
    }

    /// What was written.
    pub fn into_text(mut self) -> String {
        self.end_family();
        self.text
    }
}

/// The numbers of one family.
#[derive(Debug)]
pub struct Numbers<'n, 'p> {
    page: &'n mut Page<'p>,
    name: &'static str,
    kind: Kind,
    head: Option<(Stability, &'static str)>,
    is_left_out: bool,
    /// The values that labels of the family may have, if some have only these.
    allowed: Option<&'p Allowed>,
}

/// The release in which a family was deprecated, or nothing.
fn deprecation(name: &str) -> &'static str {
    DEPRECATED.iter().find(|(deprecated, _)| *deprecated == name).map_or("", |(_, release)| *release)
}

/// Whether a family is deprecated for so long that it is not shown.
fn is_hidden(name: &str, stability: Stability) -> bool {
    let minor = deprecation(name).split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let release = release::MINOR.parse::<u32>().unwrap_or_default();
    minor.is_some_and(|minor| minor + stability.releases_deprecated() <= release)
}

impl Numbers<'_, '_> {
    /// Whether the family is written at all; otherwise its numbers need not be found.
    pub fn is_shown(&self) -> bool {
        !self.is_left_out
    }

    fn begin(&mut self) {
        let Some((stability, help)) = self.head.take().filter(|_| !self.is_left_out) else { return };
        let name = self.name;
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let stability = match stability.as_str() {
            "" => String::new(),
            text => format!("[{text}] "),
        };
        let stability = match deprecation(name) {
            "" => stability,
            release => format!("{stability}(Deprecated since {release}) "),
        };
        let _ = writeln!(self.page.text, "# HELP {name} {stability}{help}\n# TYPE {name} {kind}");
    }

    /// Writes a number. `labels` are as between braces.
    pub fn number(&mut self, labels: &str, value: impl Display) {
        self.begin();
        if self.is_left_out {
            return;
        }
        if self.allowed.is_some() {
            return self.merge("", labels, value.to_string().parse().unwrap_or_default());
        }
        let name = self.name;
        let _ = match labels {
            "" => writeln!(self.page.text, "{name} {value}"),
            labels => writeln!(self.page.text, "{name}{{{labels}}} {value}"),
        };
    }

    /// Adds to the number whose labels are the same once they have their allowed values.
    fn merge(&mut self, suffix: &str, labels: &str, value: f64) {
        let Some(allowed) = self.allowed else { return };
        let labels = allowed.labels(self.name, labels);
        let name = self.name;
        let series =
            if labels.is_empty() { format!("{name}{suffix}") } else { format!("{name}{suffix}{{{labels}}}") };
        match self.page.merged.iter_mut().find(|(known, _)| *known == series) {
            Some((_, sum)) => *sum += value,
            None => self.page.merged.push((series, value)),
        }
    }

    fn merge_histogram(&mut self, labels: &str, histogram: &Histogram, unit: f64) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        for (bound, total) in histogram.totals() {
            self.merge("_bucket", &format!("{labels}{comma}le=\"{bound}\""), total as f64);
            count = total;
        }
        self.merge("_sum", labels, histogram.sum() as f64 / unit);
        self.merge("_count", labels, count as f64);
    }

    /// Writes a histogram. `unit`: how many of its unit are one of the metric's.
    pub fn histogram(&mut self, labels: &str, histogram: &Histogram, unit: f64) {
        self.begin();
        if self.is_left_out {
            return;
        }
        if self.allowed.is_some() {
            return self.merge_histogram(labels, histogram, unit);
        }
        let (name, text) = (self.name, &mut self.page.text);
        let comma = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        for (bound, total) in histogram.totals() {
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
            count = total;
        }
        let sum = histogram.sum() as f64 / unit;
        let _ = match labels {
            "" => writeln!(text, "{name}_sum {sum}\n{name}_count {count}"),
            labels => writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deprecated_families_are_hidden_by_their_age_and_stability() {
        for (name, stability, want) in [
            ("etcd_bookmark_counts", Stability::Alpha, true), // deprecated in this release
            ("apiserver_request_slo_duration_seconds", Stability::Alpha, true),
            ("apiserver_storage_objects", Stability::Stable, false), // for three releases it is shown
            ("apiserver_storage_objects", Stability::Beta, true),
            ("apiserver_storage_db_total_size_in_bytes", Stability::Stable, true),
            ("apiserver_request_total", Stability::Alpha, false),
        ] {
            assert_eq!(is_hidden(name, stability), want, "{name} {stability:?}");
        }
    }

    #[test]
    fn hidden_families_are_counted_and_shown_on_demand() {
        let disabled = BTreeSet::from(["apiserver_flowcontrol_request_concurrency_limit".to_owned()]);
        for (shows_hidden, want) in [(false, ""), (true, "(Deprecated since 1.28.0) Bytes.")] {
            let mut page = Page::new(&disabled).with_hidden(shows_hidden);
            let define = |name, help| Definition { name, stability: Stability::Alpha, help, labels: &[] };
            let size = define("apiserver_storage_db_total_size_in_bytes", "Bytes.");
            page.family(&size, Kind::Gauge).number("", 1);
            let limit = define("apiserver_flowcontrol_request_concurrency_limit", "Seats.");
            page.family(&limit, Kind::Gauge).number("", 1);
            assert_eq!(page.left_out(), (1, u64::from(!shows_hidden)));
            assert_eq!(page.counts().len(), usize::from(shows_hidden));
            let text = page.into_text();
            assert!(text.contains(want) && text.is_empty() == want.is_empty(), "{text}");
        }
    }
}
