//! Arithmetic on bounds of sizes and costs. All operations saturate at `u64::MAX`.

use crate::cost::{CallEstimate, CostEstimate, SizeEstimate};

/// 2^64: the first double above the range of `u64`.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

impl SizeEstimate {
    /// Returns the sum of two sizes.
    pub fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// Returns the product of two sizes.
    pub fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Returns the smallest bounds that include `self` and `other`.
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// Returns the cost of `each`, multiplied by the size.
    pub fn times_cost(self, each: CostEstimate) -> CostEstimate {
        CostEstimate { min: self.min.saturating_mul(each.min), max: self.max.saturating_mul(each.max) }
    }

    /// Returns the size multiplied by `factor`, as a cost, rounded up.
    pub fn times_factor(self, factor: f64) -> CostEstimate {
        CostEstimate { min: times_factor(self.min, factor), max: times_factor(self.max, factor) }
    }
}

impl CostEstimate {
    /// Creates the estimate for a known cost.
    pub const fn exactly(cost: u64) -> Self {
        Self { min: cost, max: cost }
    }

    /// Returns the sum of two costs.
    pub fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// Returns the product of two costs.
    pub fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Returns the cost multiplied by `factor`, rounded up.
    pub fn times_factor(self, factor: f64) -> Self {
        Self { min: times_factor(self.min, factor), max: times_factor(self.max, factor) }
    }

    /// Returns the smallest bounds that include `self` and `other`.
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

impl CallEstimate {
    /// Creates the estimate of a call whose result has no relevant size.
    pub fn cost(cost: CostEstimate) -> Self {
        Self { cost, result_size: None }
    }

    /// Returns the estimate with the size of the result.
    pub fn with_size(self, size: SizeEstimate) -> Self {
        Self { result_size: Some(size), ..self }
    }
}

/// Returns `units × factor`, rounded up. The calculation uses doubles, like the reference, so large results
/// are inexact in the same way.
pub fn times_factor(units: u64, factor: f64) -> u64 {
    let cost = (units as f64 * factor).ceil();
    if cost >= TWO_TO_64 { u64::MAX } else { cost as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_factors_round_up_and_saturate() {
        for (units, factor, want) in [
            (0, 0.1, 0),
            (1, 0.1, 1),
            (10, 0.1, 1),
            (11, 0.1, 2),
            (u64::MAX, 0.1, 1_844_674_407_370_955_264),
            (u64::MAX, 1.0, u64::MAX),
            (u64::MAX, 2.0, u64::MAX),
        ] {
            assert_eq!(times_factor(units, factor), want, "{units} × {factor}");
        }
    }

    #[test]
    fn size_estimates_saturate() {
        let unknown = SizeEstimate::UNKNOWN;
        assert_eq!(unknown.plus(SizeEstimate::exactly(1)), SizeEstimate { min: 1, max: u64::MAX });
        assert_eq!(unknown.times(unknown), unknown);
        assert_eq!(SizeEstimate::exactly(3).union(SizeEstimate::exactly(1)), SizeEstimate { min: 1, max: 3 });
    }
}
