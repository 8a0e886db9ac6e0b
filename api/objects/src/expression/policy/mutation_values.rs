//! Results of the expressions of mutations, and the types that these expressions construct.

use std::sync::Arc;

use cel::environment::Environment;
use cel::library::json_patch;
use cel::types::{Type, TypeProvider};

use super::environment::{Declarations, OptionalVariables};
use crate::expression::types::Types;

/// Name of the type of configurations. The types of its parts are `Object.spec` and so on.
pub const OBJECT: &str = "Object";

/// Name of the type of JSON patch operations.
const JSON_PATCH: &str = "JSONPatch";

/// Kind of change that the expression of a mutation returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PatchType {
    /// A configuration that is merged into the object by apply.
    ApplyConfiguration,
    /// The operations of a JSON patch.
    JsonPatch,
}

impl PatchType {
    /// Returns the kind of change for the patch type of a mutation.
    pub fn named(patch_type: &str) -> PatchType {
        match patch_type {
            "JSONPatch" => PatchType::JsonPatch,
            _ => PatchType::ApplyConfiguration,
        }
    }

    /// Returns the name of the member of a mutation that contains the expression.
    pub fn member(self) -> &'static str {
        match self {
            PatchType::ApplyConfiguration => "applyConfiguration",
            PatchType::JsonPatch => "jsonPatch",
        }
    }

    /// Returns the required type of the expression.
    pub fn result(self) -> Type {
        match self {
            PatchType::ApplyConfiguration => Type::object(OBJECT),
            PatchType::JsonPatch => Type::list(Type::object(JSON_PATCH)),
        }
    }
}

/// Returns the environment of mutations: the usual environment with the additional types of changes.
pub fn environment(declarations: &Declarations, extent: OptionalVariables) -> Environment {
    declarations
        .environment(extent)
        .with_library(&json_patch::library())
        .with_types(Arc::new(Changes(declarations.types().clone())))
}

/// The types of changes, in addition to other types. Every field of an object is declared with a dynamic
/// type, because the actual fields are only known from an object.
struct Changes(Types);

fn is_object(name: &str) -> bool {
    name.strip_prefix(OBJECT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl TypeProvider for Changes {
    fn has_type(&self, name: &str) -> bool {
        is_object(name) || name == JSON_PATCH || self.0.has_type(name)
    }

    fn field_type(&self, name: &str, field: &str) -> Option<Type> {
        if is_object(name) {
            return Some(Type::Dyn);
        }
        if name != JSON_PATCH {
            return self.0.field_type(name, field);
        }
        Some(match field {
            "op" | "path" | "from" => Type::String,
            "value" => Type::Dyn,
            // The field does not exist, which the reference server expresses by a type without a name.
            _ => Type::opaque(""),
        })
    }
}
