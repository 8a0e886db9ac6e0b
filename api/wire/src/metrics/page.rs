//! The page that Prometheus scrapes: families with their head lines, in the text format version 0.0.4.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};

use super::allowed::Allowed;
use super::definition::{Definition, Kind, Stability, deprecation, is_announced, is_hidden};
use super::histogram::Histogram;

/// A metrics page that is being written.
#[derive(Debug)]
pub struct Page<'p> {
    text: String,
    /// Families that the operator disabled.
    disabled: &'p BTreeSet<String>,
    /// Whether deprecated families that are hidden by default are written.
    shows_hidden: bool,
    allowed: Option<&'p Allowed>,
    /// Numbers of the current family, if the family has restricted labels. Numbers of series whose labels
    /// become equal by the restriction are added.
    merged: Vec<(String, f64)>,
    written: BTreeMap<(&'static str, &'static str), u64>,
    disabled_count: u64,
    hidden_count: u64,
    names: RefCell<BTreeSet<&'static str>>,
}

impl<'p> Page<'p> {
    /// Returns a page without families.
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

    /// Restricts some labels to their allowed values.
    pub fn with_allowed(self, allowed: &'p Allowed) -> Page<'p> {
        Page { allowed: Some(allowed), ..self }
    }

    /// Also writes deprecated families that are hidden by default, if `shows_hidden`.
    pub fn with_hidden(self, shows_hidden: bool) -> Page<'p> {
        Page { shows_hidden, ..self }
    }

    /// Begins a family. The head lines of the family are written with its first number, or at once if the
    /// family is announced.
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

    /// Begins a family whose head lines are written even if it has no number.
    pub fn announced(&mut self, definition: &Definition, kind: Kind) -> Numbers<'_, 'p> {
        let mut numbers = self.family(definition, kind);
        numbers.begin();
        numbers
    }

    /// Writes the merged numbers of the current family.
    fn end_family(&mut self) {
        for (series, value) in self.merged.drain(..) {
            let _ = writeln!(self.text, "{series} {value}");
        }
    }

    /// Returns how many families were written, by their deprecation release and stability level.
    pub fn counts(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.written.clone()
    }

    /// Returns how many families the operator disabled, and how many of the other families are hidden because
    /// they are deprecated.
    pub fn left_out(&self) -> (u64, u64) {
        (self.disabled_count, self.hidden_count)
    }

    /// Returns the text of the page.
    pub fn into_text(mut self) -> String {
        self.end_family();
        self.text
    }
}

/// Writer for the numbers of one family.
#[derive(Debug)]
pub struct Numbers<'n, 'p> {
    page: &'n mut Page<'p>,
    name: &'static str,
    kind: Kind,
    head: Option<(Stability, &'static str)>,
    is_left_out: bool,
    /// Allowed values of labels; `None` if the family has no restricted label.
    allowed: Option<&'p Allowed>,
}

impl Numbers<'_, '_> {
    /// Returns whether the family is written. If the result is `false`, the caller need not compute the
    /// numbers of the family.
    pub fn is_written(&self) -> bool {
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

    /// Writes a number. `labels` is the text between the braces.
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

    /// Restricts the labels to allowed values, and adds `value` to the series with the resulting labels.
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

    /// Writes a histogram. `unit` is the number of counting units of the histogram in one unit of the output.
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
    fn deprecated_metric_families_are_hidden_depending_on_age_and_stability() {
        for (name, stability, want) in [
            ("etcd_bookmark_counts", Stability::Alpha, true), // deprecated in this release
            ("apiserver_request_slo_duration_seconds", Stability::Alpha, true),
            ("apiserver_storage_objects", Stability::Stable, false), // shown for three releases
            ("apiserver_storage_objects", Stability::Beta, true),
            ("apiserver_storage_db_total_size_in_bytes", Stability::Stable, true),
            ("apiserver_request_total", Stability::Alpha, false),
        ] {
            assert_eq!(is_hidden(name, stability), want, "{name} {stability:?}");
        }
    }

    #[test]
    fn hidden_metric_families_are_written_only_on_demand() {
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
