//! The members `apiVersion` and `kind` of a document whose type is not known yet.

use go::json::{no_version_kind, odd_version_kind, sets_field};

use crate::json::{Object, Value};

/// Returns the kind and the version that a document states. The names of the two members match in any case.
/// If a member occurs several times, the last string counts. The text of an absent member is empty.
pub fn type_of(document: &Value) -> (&str, &str) {
    let members = || document.as_object().into_iter().flat_map(Object::iter);
    let last = |field: &str| {
        let mut texts =
            members().filter(|(name, _)| sets_field(name, field)).filter_map(|(_, value)| value.as_str());
        texts.next_back().unwrap_or_default()
    };
    (last("kind"), last("apiVersion"))
}

/// Returns the reason why the type of a document cannot be determined; `None` if the document states a type
/// or is `null`.
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
