//! The page that Prometheus reads: families with their head lines, in the text format of version 0.0.4.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};

use super::allowed::Allowed;
use super::family::{Definition, Histogram};

/// Families whose head is there before their first number: monitoring asks for them at the start.
const ANNOUNCED: [&str; 5] = [
    "apiserver_longrunning_requests",
    "apiserver_request_timestamp_comparison_time",
    "apiserver_response_sizes",
    "apiserver_watch_events_sizes",
    "apiserver_watch_events_total",
];

/// Families that are going to be removed, and the release since which that is known.
const DEPRECATED: [(&str, &str); 1] = [("apiserver_storage_objects", "1.34.0")];

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
    allowed: Option<&'p Allowed>,
    /// Numbers of the family that is being written, where those whose labels lost their difference are one.
    merged: Vec<(String, f64)>,
    written: BTreeMap<(&'static str, &'static str), u64>,
    left_out: u64,
    names: RefCell<BTreeSet<&'static str>>,
}

impl<'p> Page<'p> {
    /// An empty page.
    pub fn new(disabled: &'p BTreeSet<String>) -> Page<'p> {
        Page {
            text: String::new(),
            disabled,
            allowed: None,
            merged: Vec::new(),
            written: BTreeMap::new(),
            left_out: 0,
            names: RefCell::default(),
        }
    }

    /// The same where some labels have their allowed values alone.
    pub fn with_allowed(self, allowed: &'p Allowed) -> Page<'p> {
        Page { allowed: Some(allowed), ..self }
    }

    /// Begins a family. Its head lines are written with its first number.
    pub fn family(&mut self, definition: &Definition, kind: Kind) -> Numbers<'_, 'p> {
        let Definition { name, stability, help, .. } = *definition;
        debug_assert!(self.names.borrow_mut().insert(name), "{name} is written twice");
        let is_disabled = self.disabled.contains(name);
        if is_disabled {
            self.left_out += 1;
        } else {
            *self.written.entry((deprecation(name), stability.counted_as())).or_default() += 1;
        }
        let allowed = self.allowed.filter(|allowed| allowed.is_about(name));
        self.end_family();
        let mut numbers =
            Numbers { page: self, name, kind, head: Some((stability, help)), is_disabled, allowed };
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

    /// How many families were written by the release of their deprecation and their stability, and how many were left
    /// out.
    pub fn counts(&self) -> (BTreeMap<(&'static str, &'static str), u64>, u64) {
        (self.written.clone(), self.left_out)
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
    is_disabled: bool,
    /// The values that labels of the family may have, if some have only these.
    allowed: Option<&'p Allowed>,
}

/// The release in which a family was deprecated, or nothing.
fn deprecation(name: &str) -> &'static str {
    DEPRECATED.iter().find(|(deprecated, _)| *deprecated == name).map_or("", |(_, release)| *release)
}

impl Numbers<'_, '_> {
    fn begin(&mut self) {
        let Some((stability, help)) = self.head.take().filter(|_| !self.is_disabled) else { return };
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
        if self.is_disabled {
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
        if self.is_disabled {
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
