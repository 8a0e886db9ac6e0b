//! Definitions of metric families.

use values::release;

/// Families whose head lines are written before the family has a number, because monitoring systems query
/// these families from the start.
const ANNOUNCED: [&str; 5] = [
    "apiserver_longrunning_requests",
    "apiserver_request_timestamp_comparison_time",
    "apiserver_response_sizes",
    "apiserver_watch_events_sizes",
    "apiserver_watch_events_total",
];

/// Families that are going to be removed, and the release in which they were deprecated.
const DEPRECATED: [(&str, &str); 6] = [
    ("apiserver_flowcontrol_request_concurrency_in_use", "1.31.0"),
    ("apiserver_flowcontrol_request_concurrency_limit", "1.30.0"),
    ("apiserver_request_slo_duration_seconds", "1.27.0"),
    ("apiserver_storage_db_total_size_in_bytes", "1.28.0"),
    ("apiserver_storage_objects", "1.34.0"),
    ("etcd_bookmark_counts", "1.36.0"),
];

/// Stability level of a metric's name and labels.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stability {
    /// The metric may change with every release.
    Alpha,
    /// The metric may get more labels.
    Beta,
    /// The metric does not change.
    Stable,
    /// A family that only this server has; its help text does not begin with a stability level.
    Own,
}

/// Returns whether the head lines of a family are written before its first number.
pub fn is_announced(name: &str) -> bool {
    ANNOUNCED.contains(&name)
}

impl Stability {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Stability::Alpha => "ALPHA",
            Stability::Beta => "BETA",
            Stability::Stable => "STABLE",
            Stability::Own => "",
        }
    }

    /// Returns the number of releases for which a deprecated family is still written.
    fn releases_deprecated(self) -> u32 {
        match self {
            Stability::Alpha | Stability::Own => 0,
            Stability::Beta => 1,
            Stability::Stable => 3,
        }
    }

    /// Returns the name under which families of this level are counted.
    pub(super) fn counted_as(self) -> &'static str {
        if self == Stability::Own { "INTERNAL" } else { self.as_str() }
    }
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Counts of values by range.
    Histogram,
}

/// Returns the release in which a family was deprecated; empty if it is not deprecated.
pub(super) fn deprecation(name: &str) -> &'static str {
    DEPRECATED.iter().find(|(deprecated, _)| *deprecated == name).map_or("", |(_, release)| *release)
}

/// Returns whether a family has been deprecated for so long that it is hidden.
pub(super) fn is_hidden(name: &str, stability: Stability) -> bool {
    let minor = deprecation(name).split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let release = release::MINOR.parse::<u32>().unwrap_or_default();
    minor.is_some_and(|minor| minor + stability.releases_deprecated() <= release)
}

/// The fixed properties of a family.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Name of the metric.
    pub name: &'static str,
    /// Stability level of the name and the labels.
    pub stability: Stability,
    /// Help text of the metric.
    pub help: &'static str,
    /// Names of the labels, sorted.
    pub labels: &'static [&'static str],
}
