//! What the expressions of mutations make, and the types that they make it of.

use std::sync::Arc;

use cel::environment::Environment;
use cel::library::json_patch;
use cel::types::{Type, TypeProvider};

use super::environment::{Declarations, Extent};
use crate::objects::expression::types::Types;

/// The type of configurations; types of their parts are `Object.spec` and so on.
pub(crate) const OBJECT: &str = "Object";

/// The type of the operations of a JSON patch.
const JSON_PATCH: &str = "JSONPatch";

/// What the expression of a mutation makes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// A configuration that is merged into the object.
    ApplyConfiguration,
    /// The operations of a JSON patch.
    JsonPatch,
}

impl Form {
    /// By the name of the patch type.
    pub fn named(patch_type: &str) -> Form {
        match patch_type {
            "JSONPatch" => Form::JsonPatch,
            _ => Form::ApplyConfiguration,
        }
    }

    /// Returns the member of a mutation that has its expression.
    pub fn member(self) -> &'static str {
        match self {
            Form::ApplyConfiguration => "applyConfiguration",
            Form::JsonPatch => "jsonPatch",
        }
    }

    /// Returns the type that the expression must have.
    pub fn result(self) -> Type {
        match self {
            Form::ApplyConfiguration => Type::object(OBJECT),
            Form::JsonPatch => Type::list(Type::object(JSON_PATCH)),
        }
    }
}

/// Returns the environment of mutations: that of other expressions, with the types of changes.
pub fn environment(declarations: &Declarations, extent: Extent) -> Environment {
    declarations
        .environment(extent)
        .with_library(&json_patch::library())
        .with_types(Arc::new(Changes(declarations.types().clone())))
}

/// The types of changes beside other types. All fields of objects are there, of any type: what an object has is known
/// when there is one.
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
            // There is no such field, which the reference tells by a type without a name.
            _ => Type::opaque(""),
        })
    }
}
