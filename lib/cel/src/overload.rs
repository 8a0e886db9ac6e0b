//! Overloads: the signatures of functions, with their implementations and cost rules.
//!
//! A checked expression refers to overloads, so this file depends on neither syntax trees nor the libraries
//! that declare overloads.

use crate::cost::{ActualRule, EstimateRule};
use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::types::Type;
use crate::value::Value;

/// A compatibility version, such as 1.35.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// Major version, 1 at present.
    pub major: u32,
    /// Minor version, for example 35.
    pub minor: u32,
}

impl Version {
    /// The lowest version, for declarations that exist from the start.
    pub const FIRST: Self = Self::new(1, 0);

    /// Creates the version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

/// A call at run time. The receiver of a member call is the first argument.
#[derive(Debug)]
pub struct Call<'c, 'v> {
    /// Arguments of the call; the receiver comes first, if there is one.
    pub args: &'c [Value<'v>],
    /// Counter of the work of the evaluation. An implementation counts each element that it visits, and text
    /// by its length.
    pub steps: &'c Steps<'c>,
}

/// The implementation of an overload. The planner chose the overload by the checked types, but arguments of
/// type `dyn` may have any type: an implementation must return [`EvalError::no_such_overload`] for values
/// outside its signature.
pub type Implementation = for<'c, 'v> fn(&Call<'c, 'v>) -> Result<Value<'v>, EvalError>;

/// A signature of a function.
#[derive(Clone, Debug)]
pub struct Overload {
    /// Identifier in the reference, such as `string_size`.
    pub id: &'static str,
    /// Whether the function is called as `receiver.function(…)`.
    pub member: bool,
    /// Types of the arguments, the receiver first.
    pub params: Box<[Type]>,
    /// Type of the result, which may contain type parameters.
    pub result: Type,
    /// First compatibility version in which new expressions may use the overload.
    pub since: Version,
    /// Implementation; `None` for operators, `&&`, `? :` and other functions that the evaluator computes
    /// itself.
    pub implementation: Option<Implementation>,
    /// Rule of the cost estimate. If there is no rule, the estimator uses its table of standard functions.
    /// For functions that are not in the table, the cost is 1.
    pub estimate: Option<EstimateRule>,
    /// Rule of the actual cost. If there is no rule, the evaluator uses its table of standard functions. For
    /// functions that are not in the table, the cost is 1.
    pub actual: Option<ActualRule>,
    /// Whether `actual` applies only if the checker chose this overload. If `true`, calls whose overload is
    /// left open by `dyn` cost 1; if `false`, the rule applies to these calls as well.
    pub actual_if_chosen: bool,
    /// Whether `actual` depends on the result. A cost that depends only on the arguments is charged before
    /// the call is computed.
    pub actual_by_result: bool,
}

impl Overload {
    /// Declares a global function `name(params)`.
    pub fn function(id: &'static str, params: impl Into<Box<[Type]>>, result: Type) -> Self {
        Self {
            id,
            member: false,
            params: params.into(),
            result,
            since: Version::FIRST,
            implementation: None,
            estimate: None,
            actual: None,
            actual_if_chosen: false,
            actual_by_result: false,
        }
    }

    /// Declares a member function `params[0].name(params[1..])`.
    pub fn member(id: &'static str, params: impl Into<Box<[Type]>>, result: Type) -> Self {
        Self { member: true, ..Self::function(id, params, result) }
    }

    /// Sets the first version for new expressions.
    pub fn since(self, major: u32, minor: u32) -> Self {
        Self { since: Version::new(major, minor), ..self }
    }

    /// Sets the implementation of the overload.
    pub fn computed_by(self, implementation: Implementation) -> Self {
        Self { implementation: Some(implementation), ..self }
    }

    /// Sets the rules of the estimated and the actual cost.
    pub fn costing(self, estimate: EstimateRule, actual: ActualRule) -> Self {
        Self { estimate: Some(estimate), actual: Some(actual), ..self }
    }

    /// Declares that the rule of the actual cost reads the result.
    pub fn by_result(self) -> Self {
        Self { actual_by_result: true, ..self }
    }

    /// Restricts the rule of the actual cost to calls whose overload the checker chose.
    pub fn if_chosen(self) -> Self {
        Self { actual_if_chosen: true, ..self }
    }
}
