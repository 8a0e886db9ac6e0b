//! Functions and how libraries declare them.
//!
//! A library is a list of [`Function`]s; each has overloads with a signature, the first compatibility version that new
//! expressions may use it in, an implementation, and the rules of its cost. Declarations are built once per
//! environment, so they are plain values and not statics.

mod constants;
pub mod standard;

use std::sync::Arc;

use crate::ast::{CheckedAst, NodeId};
use crate::cost::{ActualRule, EstimateRule};
use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::types::Type;
use crate::value::Value;

pub mod authorizer;
pub(crate) mod bounds;
pub mod cidr;
pub mod formats;
pub mod ip;
pub mod json_patch;
pub mod lists;
mod opaque;
pub mod quantity;
pub mod regex;
pub mod semver;
pub mod sets;
pub mod strings;
pub mod url;

/// A compatibility version, such as 1.35.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

impl Version {
    /// The version before all others: declared from the start.
    pub const FIRST: Self = Self::new(1, 0);

    /// `major.minor`
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

/// A call at run time. The receiver of a member call is the first argument.
#[derive(Debug)]
pub struct Call<'c, 'v> {
    /// The receiver, if there is one, and the arguments.
    pub args: &'c [Value<'v>],
    /// Counts the work of the evaluation. An implementation counts each element that it visits, and text by its length.
    pub steps: &'c Steps<'c>,
}

/// Computes a call. The planner chose the overload by the checked types, but arguments of `dyn` type may be anything:
/// an implementation answers [`EvalError::no_such_overload`] to values outside its signature.
pub type Implementation = for<'c, 'v> fn(&Call<'c, 'v>) -> Result<Value<'v>, EvalError>;

/// Checks a type-checked call beyond its types, such as constant arguments: what is wrong, and the node that has it.
pub type CallCheck = fn(&CheckedAst, call: NodeId) -> Option<(NodeId, String)>;

/// One signature of a function.
#[derive(Clone, Debug)]
pub struct Overload {
    /// The reference's identifier, such as `string_size`.
    pub id: &'static str,
    /// Called as `receiver.function(…)`.
    pub member: bool,
    /// Types of the arguments, the receiver first.
    pub params: Box<[Type]>,
    /// Type of the result.
    pub result: Type,
    /// The first compatibility version in which new expressions may use it.
    pub since: Version,
    /// How to compute it; `None` for what the evaluator computes itself (operators, `&&`, `? :`).
    pub implementation: Option<Implementation>,
    /// How to estimate its cost; `None`: by the estimator's table of standard functions, else 1.
    pub estimate: Option<EstimateRule>,
    /// What a call costs; `None`: by the evaluator's table of standard functions, else 1.
    pub actual: Option<ActualRule>,
    /// Whether `actual` needs the checker to have chosen this overload. Calls whose overload `dyn` leaves open then
    /// cost 1; without this, they cost what the rule says.
    pub actual_if_chosen: bool,
    /// Whether `actual` depends on the result. A cost that depends on the arguments alone is charged before the call is computed.
    pub actual_by_result: bool,
}

/// A function and its overloads, in the order in which the checker tries them.
#[derive(Clone, Debug)]
pub struct Function {
    /// The name it is called by; operators have names such as `_+_`.
    pub name: &'static str,
    /// Its signatures.
    pub overloads: Vec<Arc<Overload>>,
    /// A check of its calls, with the first version that has it.
    pub check: Option<(Version, CallCheck)>,
}

/// A set of declarations that belong together.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// Functions. Several libraries may add overloads to one function.
    pub functions: Vec<Function>,
    /// Types that expressions may name as values, such as `net.IP`, with the first version for new expressions.
    pub types: Vec<(Type, Version)>,
}

/// The extension libraries that every environment of the reference has, the standard library not among them.
/// [`json_patch`] is not here: only mutations have it.
pub fn extensions() -> Vec<Library> {
    vec![
        strings::library(),
        lists::library(),
        regex::library(),
        url::library(),
        quantity::library(),
        ip::library(),
        cidr::library(),
        formats::library(),
        semver::library(),
        sets::library(),
        authorizer::library(),
    ]
}

impl Overload {
    /// A global function `name(params)`.
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

    /// A member function `params[0].name(params[1..])`.
    pub fn member(id: &'static str, params: impl Into<Box<[Type]>>, result: Type) -> Self {
        Self { member: true, ..Self::function(id, params, result) }
    }

    /// Sets the first version for new expressions.
    pub fn since(self, major: u32, minor: u32) -> Self {
        Self { since: Version::new(major, minor), ..self }
    }

    /// Sets how a call is computed.
    pub fn computed_by(self, implementation: Implementation) -> Self {
        Self { implementation: Some(implementation), ..self }
    }

    /// Sets the rules of its cost.
    pub fn costing(self, estimate: EstimateRule, actual: ActualRule) -> Self {
        Self { estimate: Some(estimate), actual: Some(actual), ..self }
    }

    /// Says that the rule of the actual cost looks at the result.
    pub fn by_result(self) -> Self {
        Self { actual_by_result: true, ..self }
    }

    /// Limits the rule of the actual cost to calls whose overload the checker chose.
    pub fn if_chosen(self) -> Self {
        Self { actual_if_chosen: true, ..self }
    }
}

impl Function {
    /// A function with its overloads.
    pub fn new(name: &'static str, overloads: impl IntoIterator<Item = Overload>) -> Self {
        Self { name, overloads: overloads.into_iter().map(Arc::new).collect(), check: None }
    }

    /// Sets a check of its calls and the first version that has it.
    pub fn checked_by(self, major: u32, minor: u32, check: CallCheck) -> Self {
        Self { check: Some((Version::new(major, minor), check)), ..self }
    }
}
