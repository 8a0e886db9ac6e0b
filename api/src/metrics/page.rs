//! The page that Prometheus reads: families with their head lines, in the text format of version 0.0.4.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};

use super::family::{Definition, Histogram};

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

impl Stability {
    fn as_str(self) -> &'static str {
        match self {
            Stability::Alpha => "ALPHA",
            Stability::Beta => "BETA",
            Stability::Stable => "STABLE",
            Stability::Own => "",
        }
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
    written: BTreeMap<Stability, u64>,
    left_out: u64,
    names: RefCell<BTreeSet<&'static str>>,
}

impl<'p> Page<'p> {
    /// An empty page.
    pub fn new(disabled: &'p BTreeSet<String>) -> Page<'p> {
        Page {
            text: String::new(),
            disabled,
            written: BTreeMap::new(),
            left_out: 0,
            names: RefCell::default(),
        }
    }

    /// Begins a family. Its head lines are written with its first number.
    pub fn family(&mut self, definition: &Definition, kind: Kind) -> Numbers<'_, 'p> {
        let Definition { name, stability, help, .. } = *definition;
        debug_assert!(self.names.borrow_mut().insert(name), "{name} is written twice");
        let is_disabled = self.disabled.contains(name);
        if is_disabled {
            self.left_out += 1;
        } else {
            *self.written.entry(stability).or_default() += 1;
        }
        Numbers { page: self, name, kind, head: Some((stability, help)), is_disabled }
    }

    /// The same, with the head lines there even if there is no number.
    pub fn announced(&mut self, definition: &Definition, kind: Kind) -> Numbers<'_, 'p> {
        let mut numbers = self.family(definition, kind);
        numbers.begin();
        numbers
    }

    /// How many families were written of each stability, and how many were left out.
    pub fn counts(&self) -> (Vec<(&'static str, u64)>, u64) {
        let counts = self.written.iter().filter(|(stability, _)| **stability != Stability::Own);
        (counts.map(|(stability, count)| (stability.as_str(), *count)).collect(), self.left_out)
    }

    /// What was written.
    pub fn into_text(self) -> String {
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
        let _ = writeln!(self.page.text, "# HELP {name} {stability}{help}\n# TYPE {name} {kind}");
    }

    /// Writes a number. `labels` are as between braces.
    pub fn number(&mut self, labels: &str, value: impl Display) {
        self.begin();
        if self.is_disabled {
            return;
        }
        let name = self.name;
        let _ = match labels {
            "" => writeln!(self.page.text, "{name} {value}"),
            labels => writeln!(self.page.text, "{name}{{{labels}}} {value}"),
        };
    }

    /// Writes a histogram. `unit`: how many of its unit are one of the metric's.
    pub fn histogram(&mut self, labels: &str, histogram: &Histogram, unit: f64) {
        self.begin();
        if self.is_disabled {
            return;
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
