//! The members `apiVersion` and `kind` of a document whose type is not known yet.

use go::json::{no_version_kind, odd_version_kind, sets_field};

use crate::json::{Object, Value};

/// The kind and the version that a document says it is of, in members with names of any case, of which the last text counts;
/// empty if there is none.
pub fn type_of(document: &Value) -> (&str, &str) {
    let members = || document.as_object().into_iter().flat_map(Object::iter);
    let last = |field: &str| {
        let mut texts =
            members().filter(|(name, _)| sets_field(name, field)).filter_map(|(_, value)| value.as_str());
        texts.next_back().unwrap_or_default()
    };
    (last("kind"), last("apiVersion"))
}

/// Why a body does not even say of which type it is; `None` if it does, or says nothing.
pub fn untyped(value: &Value) -> Option<String> {
    let object = match value {
        Value::Null => return None,
        Value::Object(object) => object,
        other => return Some(no_version_kind(other.go_kind())),
    };
    let mut others = object.iter().filter(|(_, value)| !value.is_null() && value.as_str().is_none());
    let wrong = others.find_map(|(name, value)| {
        let field = ["kind", "apiVersion"].into_iter().find(|field| sets_field(name, field))?;
        Some((field, value.go_kind()))
    });
    if let Some((field, found)) = wrong {
        return Some(odd_version_kind(found, field));
    }
    ::names::group_version(type_of(value).1).err()
}
