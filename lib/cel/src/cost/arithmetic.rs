//! Arithmetic on bounds of sizes and costs. All of it saturates at `u64::MAX`.

use crate::cost::{CallEstimate, CostEstimate, SizeEstimate};

/// 2^64: the first double above the range of `u64`.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

impl SizeEstimate {
    /// Sum of two sizes.
    pub fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// Product of two sizes.
    pub fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// The bounds that hold for either.
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// The cost of `each` for every unit of the size.
    pub fn times_cost(self, each: CostEstimate) -> CostEstimate {
        CostEstimate { min: self.min.saturating_mul(each.min), max: self.max.saturating_mul(each.max) }
    }

    /// The cost of `factor` for every unit of the size, rounded up.
    pub fn times_factor(self, factor: f64) -> CostEstimate {
        CostEstimate { min: times_factor(self.min, factor), max: times_factor(self.max, factor) }
    }
}

impl CostEstimate {
    /// A cost that is known exactly.
    pub const fn exactly(cost: u64) -> Self {
        Self { min: cost, max: cost }
    }

    /// Sum of two costs.
    pub fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// Product of two costs.
    pub fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// The cost times `factor`, rounded up.
    pub fn times_factor(self, factor: f64) -> Self {
        Self { min: times_factor(self.min, factor), max: times_factor(self.max, factor) }
    }

    /// The bounds that hold for either.
    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

impl CallEstimate {
    /// A call whose result has no size that matters.
    pub fn cost(cost: CostEstimate) -> Self {
        Self { cost, result_size: None }
    }

    /// The same with the size of the result.
    pub fn with_size(self, size: SizeEstimate) -> Self {
        Self { result_size: Some(size), ..self }
    }
}

/// `units × factor`, rounded up. Works on doubles, as the reference does, so large results are inexact in the same way.
pub fn times_factor(units: u64, factor: f64) -> u64 {
    let cost = (units as f64 * factor).ceil();
    if cost >= TWO_TO_64 { u64::MAX } else { cost as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_round_up_and_saturate() {
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
    fn bounds_saturate() {
        let unknown = SizeEstimate::UNKNOWN;
        assert_eq!(unknown.plus(SizeEstimate::exactly(1)), SizeEstimate { min: 1, max: u64::MAX });
        assert_eq!(unknown.times(unknown), unknown);
        assert_eq!(SizeEstimate::exactly(3).union(SizeEstimate::exactly(1)), SizeEstimate { min: 1, max: 3 });
    }
}
