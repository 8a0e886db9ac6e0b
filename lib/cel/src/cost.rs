//! Costs: what an expression may cost before it runs, and what a call did cost.
//!
//! Costs count abstract units. An estimate is an interval; all its arithmetic saturates, and an unknown size is the
//! interval from 0 to `u64::MAX`.

use crate::ast::Constant;
use crate::types::Type;
use crate::value::Value;

pub use self::estimate::estimate;

pub(crate) mod arithmetic;
mod estimate;
pub(crate) mod rules;
mod standard;

/// Bounds of a size: the length of a string, the number of elements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SizeEstimate {
    /// Lower bound.
    pub min: u64,
    /// Upper bound, inclusive.
    pub max: u64,
}

/// Bounds of a cost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CostEstimate {
    /// Lower bound.
    pub min: u64,
    /// Upper bound, inclusive.
    pub max: u64,
}

/// The estimate of one call: its own cost, without that of its arguments, and the size of its result.
#[derive(Clone, Copy, Debug)]
pub struct CallEstimate {
    /// Cost of the call itself.
    pub cost: CostEstimate,
    /// Size of the result, when the function tells.
    pub result_size: Option<SizeEstimate>,
}

/// What an estimation rule may ask about a call's arguments; the receiver of a member call is argument 0.
pub trait CallSite {
    /// Number of arguments, the receiver included.
    fn len(&self) -> usize;

    /// Whether the call has neither receiver nor arguments.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of an argument: 1 for scalars, unknown when nothing tells.
    fn size(&self, arg: usize) -> SizeEstimate;

    /// Checked type of an argument.
    fn type_of(&self, arg: usize) -> &Type;

    /// Value of an argument that is a literal.
    fn constant(&self, arg: usize) -> Option<&Constant>;

    /// Size of the elements of a list argument, where the host promises one.
    fn element_size(&self, arg: usize) -> SizeEstimate;
}

/// Estimates a call; `None` leaves it to the standard cost of a call, 1.
pub type EstimateRule = fn(&dyn CallSite) -> Option<CallEstimate>;

/// The cost of a finished call, from its arguments (the receiver first) and its result.
pub type ActualRule = for<'v> fn(args: &[Value<'v>], result: &Value<'v>) -> u64;

/// Size hints of a host for its variables: paths are `self.spec.items`, with `@items`, `@keys` and `@values` for what
/// is in lists and maps.
pub trait SizeHints {
    /// Bounds of the size at `path`; `None` when unknown.
    fn size(&self, path: &[&str]) -> Option<SizeEstimate>;
}

impl SizeEstimate {
    /// A size that nothing is known about.
    pub const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    /// A size that is known exactly.
    pub const fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }
}
