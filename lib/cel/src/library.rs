//! Functions, and how libraries declare them.
//!
//! A library is a list of [`Function`]s. Each function has overloads with a signature, the first
//! compatibility version in which new expressions may use it, an implementation, and cost rules. Declarations
//! are built once per environment, so they are plain values and not statics.

mod constants;
pub mod standard;

use std::sync::Arc;

use crate::ast::{CheckedAst, NodeId};
use crate::types::Type;

pub use crate::overload::{Call, Implementation, Overload, Version};

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

/// A check of a call in addition to the type check, for example a check of constant arguments. If the check
/// fails, the function returns the node with the problem, and the message.
pub type CallCheck = fn(&CheckedAst, call: NodeId) -> Option<(NodeId, String)>;

/// A function with its overloads, in the order in which the checker tries them.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name in expressions; operators have names such as `_+_`.
    pub name: &'static str,
    /// Signatures of the function.
    pub overloads: Vec<Arc<Overload>>,
    /// Check of the calls of the function, with the first version that has the check.
    pub check: Option<(Version, CallCheck)>,
}

/// A set of declarations that belong together.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// Functions of the library. Several libraries may add overloads to one function.
    pub functions: Vec<Function>,
    /// Types that expressions may name as values, such as `net.IP`, with the first version for new
    /// expressions.
    pub types: Vec<(Type, Version)>,
}

/// Returns the extension libraries that every environment of the reference has, without the standard library.
/// [`json_patch`] is not included, because only mutations have it.
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

impl Function {
    /// Creates a function with its overloads.
    pub fn new(name: &'static str, overloads: impl IntoIterator<Item = Overload>) -> Self {
        Self { name, overloads: overloads.into_iter().map(Arc::new).collect(), check: None }
    }

    /// Sets the check of the calls of the function, and the first version that has the check.
    pub fn checked_by(self, major: u32, minor: u32, check: CallCheck) -> Self {
        Self { check: Some((Version::new(major, minor), check)), ..self }
    }
}
