//! Costs: estimates before an expression runs, and actual costs of calls.
//!
//! Costs are in abstract units. An estimate is an interval. All arithmetic on estimates saturates, and an
//! unknown size is the interval from 0 to `u64::MAX`.

use crate::constant::Constant;
use crate::types::Type;
use crate::value::Value;

pub use self::estimate::estimate;

pub(crate) mod arithmetic;
mod estimate;
pub(crate) mod rules;
mod standard;

/// Bounds of a size: the length of a string or the number of elements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SizeEstimate {
    /// Lower bound of the size.
    pub min: u64,
    /// Upper bound of the size, inclusive.
    pub max: u64,
}

/// Bounds of a cost, in abstract units.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CostEstimate {
    /// Lower bound of the cost.
    pub min: u64,
    /// Upper bound of the cost, inclusive.
    pub max: u64,
}

/// The estimate of one call: its own cost, without the cost of its arguments, and the size of its result.
#[derive(Clone, Copy, Debug)]
pub struct CallEstimate {
    /// Cost of the call itself.
    pub cost: CostEstimate,
    /// Size of the result, if the rule can estimate the size.
    pub result_size: Option<SizeEstimate>,
}

/// The arguments of a call, in the form for an estimation rule. The receiver of a member call is argument 0.
pub trait CallSite {
    /// Returns the number of arguments, including the receiver.
    fn len(&self) -> usize;

    /// Returns whether the call has neither receiver nor arguments.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bounds of the size of an argument. A scalar has size 1.
    fn size(&self, arg: usize) -> SizeEstimate;

    /// Returns the checked type of an argument.
    fn type_of(&self, arg: usize) -> &Type;

    /// Returns the value of an argument that is a literal.
    fn constant(&self, arg: usize) -> Option<&Constant>;

    /// Returns the size of the elements of a list argument, if the host gives a bound.
    fn element_size(&self, arg: usize) -> SizeEstimate;
}

/// A rule that estimates a call. If the rule returns `None`, the call has the standard cost 1.
pub type EstimateRule = fn(&dyn CallSite) -> Option<CallEstimate>;

/// A rule for the actual cost of a finished call, from its arguments (the receiver first) and its result.
pub type ActualRule = for<'v> fn(args: &[Value<'v>], result: &Value<'v>) -> u64;

/// Size hints of a host for its variables. A path is, for example, `self.spec.items`; `@items`, `@keys` and
/// `@values` stand for the content of lists and maps.
pub trait SizeHints {
    /// Returns the bounds of the size at `path`; `None` if the size is unknown.
    fn size(&self, path: &[&str]) -> Option<SizeEstimate>;
}

impl SizeEstimate {
    /// The estimate for an unknown size.
    pub const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    /// Creates the estimate for a known size.
    pub const fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }
}
