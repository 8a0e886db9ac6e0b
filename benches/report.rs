//! Prints benchmark results: rows of aligned cells.

use std::time::Duration;

/// Width of the first cell, the name of the measurement.
const NAME_WIDTH: usize = 40;

/// Prints a row: its name, then its cells.
#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
pub fn row(what: &str, cells: &[&str]) {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>12}")).collect();
    println!("{what:NAME_WIDTH$}{}", cells.trim_end());
}

/// Formats a rate in bytes per second.
pub fn rate(bytes: u64, time: Duration) -> String {
    format!("{:.0} MB/s", bytes as f64 / 1e6 / time.as_secs_f64().max(1e-9))
}

/// Formats a time, with about three digits.
pub fn time(time: Duration) -> String {
    format!("{time:.1?}")
}

/// Formats a number of kibibytes with a unit.
pub fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

/// Formats the ratio of two numbers.
pub fn percent(part: f64, whole: f64) -> String {
    format!("{:.0} %", part / whole * 100.0)
}

/// Returns the median of the values.
pub fn median<T: Copy + Default + PartialOrd>(mut all: Vec<T>) -> T {
    all.sort_by(|a, b| a.partial_cmp(b).expect("numbers have an order"));
    quantile(&all, 0.5)
}

/// Returns the value that `share` of the sorted values do not exceed.
pub fn quantile<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
