//! Checks that are used by rules of several topics.

use hashbrown::{HashMap, HashSet};

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use values::field::FieldError;
use values::json::{self, Value};

/// Maximum length of a list whose repetitions are found without a hash set.
const FEW: usize = 16;

/// Checks that a reference has a name.
pub(super) fn named(validator: &mut Validator, path: &FieldPath, reference: StructView) {
    if reference.text("name").is_empty() {
        validator.required(path.child("name"), "");
    }
}

/// Set of the previous strings. A few strings are compared one by one; more strings are hashed.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and lives on the stack")]
pub(super) enum SeenStrings<'s> {
    Few(smallvec::SmallVec<[&'s str; FEW]>),
    Many(HashSet<&'s str>),
}

impl<'s> SeenStrings<'s> {
    pub(super) fn new() -> Self {
        SeenStrings::Few(smallvec::SmallVec::new())
    }

    /// Adds a string and returns whether it is new.
    pub(super) fn insert(&mut self, text: &'s str) -> bool {
        if let SeenStrings::Few(list) = self
            && list.len() == FEW
        {
            *self = SeenStrings::Many(list.iter().copied().collect());
        }
        match self {
            SeenStrings::Few(list) => {
                let is_new = !list.contains(&text);
                if is_new {
                    list.push(text);
                }
                is_new
            }
            SeenStrings::Many(set) => set.insert(text),
        }
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        match self {
            SeenStrings::Few(list) => list.contains(&text),
            SeenStrings::Many(set) => set.contains(text),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            SeenStrings::Few(list) => list.is_empty(),
            SeenStrings::Many(set) => set.is_empty(),
        }
    }

    /// Returns all strings, sorted.
    pub(super) fn sorted(&self) -> Vec<&'s str> {
        let mut all: Vec<&str> = match self {
            SeenStrings::Few(list) => list.to_vec(),
            SeenStrings::Many(set) => set.iter().copied().collect(),
        };
        all.sort_unstable();
        all
    }
}

/// Calls `judge` for each condition of a status, with its path, its content, and whether a previous condition
/// has the same type.
pub(super) fn each_condition<'v>(
    validator: &mut Validator,
    list: &FieldPath,
    status: StructView<'v>,
    mut judge: impl FnMut(&mut Validator, &FieldPath, StructView<'v>, bool),
) {
    let mut seen = SeenStrings::new();
    for (at, condition) in status.structs("conditions").enumerate() {
        if validator.has_enough() {
            return;
        }
        let is_again = !seen.insert(condition.text("type"));
        judge(validator, &list.index(at), condition, is_again);
    }
}

/// Returns the members of a map for look-ups by name.
pub(super) fn by_name(map: StructView<'_>) -> HashMap<&str, &Value> {
    map.members().collect()
}

/// Creates an `Invalid value` error whose text contains no value.
pub(super) fn invalid_without_value(path: &FieldPath, detail: impl Into<String>) -> FieldError {
    FieldError { value: None, ..FieldError::invalid(path, &Value::Null, detail) }
}

/// Maximum lengths of the domain and the path of a signer's name.
const SIGNER_DOMAIN_MAX: usize = 253;
const SIGNER_PATH_MAX: usize = 317;

/// Checks the name of a signer: `example.com/what-it-signs`.
pub(super) fn signer(validator: &mut Validator, path: &FieldPath, name: &str) {
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return validator.invalid(path, name, detail);
    };
    if domain.len() > SIGNER_DOMAIN_MAX {
        validator.errors.push(FieldError::too_long(path, SIGNER_DOMAIN_MAX));
    }
    let label =
        |text: &str, fault: String| format!("validating label {}: {fault}", values::field::go_quote(text));
    for text in domain.split('.') {
        for fault in names::label(text) {
            validator.invalid(path, domain, label(text, fault));
        }
    }
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        validator.invalid(path, domain, detail);
    }
    for text in rest.split('.') {
        for fault in names::subdomain(text) {
            validator.invalid(path, rest, label(text, fault));
        }
    }
    if name.len() > SIGNER_DOMAIN_MAX + SIGNER_PATH_MAX + 1 {
        validator.errors.push(FieldError::too_long(path, SIGNER_DOMAIN_MAX + SIGNER_PATH_MAX + 1));
    }
}

/// Returns the JSON value in the annotation with this key. The reference server decodes the value to the type
/// `kind`. If the annotation is invalid, an error is reported at `path`.
pub(super) fn annotated(
    validator: &mut Validator,
    path: &FieldPath,
    annotations: StructView,
    key: &str,
    kind: &str,
) -> Option<Value> {
    let text = annotations.text(key);
    if text.is_empty() {
        return None;
    }
    let detail = if let Some(detail) = json::syntax_error(text.as_bytes()) {
        detail
    } else {
        let value = json::parse(text.as_bytes()).ok()?;
        let fits = match &value {
            Value::Null => true,
            Value::Array(_) => kind.starts_with("[]"),
            Value::Object(_) => !kind.starts_with("[]"),
            _ => false,
        };
        if fits {
            return Some(value);
        }
        go::json::unfit(value.go_kind(), kind)
    };
    validator.invalid(path, key, detail);
    None
}
