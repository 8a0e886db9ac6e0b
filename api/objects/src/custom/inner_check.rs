//! The check of embedded objects.

use values::field::FieldError;
use values::json::Object;

/// Function that appends the errors in the kind, version and metadata of an embedded object at a path.
pub type InnerCheck = fn(&str, &Object, &mut Vec<FieldError>);
