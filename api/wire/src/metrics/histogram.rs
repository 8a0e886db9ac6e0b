//! A histogram of a metric family.

use std::sync::atomic::{AtomicU64, Ordering};

/// An upper bound: its value in the counting unit of the histogram, and its text in the output.
pub type HistogramBound = (u64, &'static str);

/// A histogram: counts of values by range.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [HistogramBound],
    /// A counter for each bound, and one for values above all bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Creates an empty histogram with these bounds.
    pub fn new(bounds: &'static [HistogramBound]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts a value in its range.
    pub fn record(&self, value: u64) {
        let index = self.bounds.partition_point(|(bound, _)| *bound < value);
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Sets all counts and the sum to zero.
    pub(super) fn reset(&self) {
        self.counts.iter().chain([&self.sum]).for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Returns each bound as written, with the number of values up to the bound.
    pub(super) fn totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let bounds = self.bounds.iter().map(|(_, text)| *text).chain(["+Inf"]);
        bounds.zip(&self.counts).scan(0, |total, (bound, count)| {
            *total += count.load(Ordering::Relaxed);
            Some((bound, *total))
        })
    }

    /// Returns whether nothing was counted yet.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }

    /// Returns the sum of all values.
    pub(super) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[HistogramBound] = &[(1_000, "1000"), (10_000, "10000")];

    #[test]
    fn a_histogram_bound_is_included_in_its_own_bucket() {
        let histogram = Histogram::new(BOUNDS);
        for (value, index) in [(0, 0), (1_000, 0), (1_001, 1), (10_000, 1), (10_001, 2), (u64::MAX / 2, 2)] {
            let before = histogram.counts[index].load(Ordering::Relaxed);
            histogram.record(value);
            assert_eq!(histogram.counts[index].load(Ordering::Relaxed), before + 1, "{value}");
        }
        assert_eq!(histogram.totals().collect::<Vec<_>>(), [("1000", 2), ("10000", 4), ("+Inf", 6)]);
    }
}
