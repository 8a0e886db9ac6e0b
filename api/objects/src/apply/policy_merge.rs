//! Merges a configuration into an object. The configuration is the result of an expression of an admission
//! policy.
//!
//! The merge follows the rules of apply, but without owners. No fields are removed, and the configuration
//! must not contain atomic values, because a merge would replace atomic values as a whole.

use super::check::{check_computed, join};
use super::merge::merge;
use super::typed::{OwnershipType, Primitive};
use types::schema::table::{ListType, Message};
use values::cancellation;
use values::field::Element;
use values::json::{Object, Value};

/// Reason why a configuration cannot be merged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MergeError {
    /// The configuration does not match its schema.
    #[error("failed to convert patch object to typed object: {0}")]
    Configuration(String),
    /// The configuration contains atomic values at these paths.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
    /// The object has list elements that cannot be distinguished.
    #[error("failed to merge patch: {0}")]
    Live(String),
}

/// Merges `config` into `live`, both of type `message`. The result is not yet decoded by the schema.
///
/// # Errors
/// See [`MergeError`]. After an error, the object is unchanged.
pub fn merge_configuration(message: &Message, live: &Object, config: &Object) -> Result<Object, MergeError> {
    let errors = check_computed(message, config);
    if !errors.is_empty() {
        return Err(MergeError::Configuration(join(&errors)));
    }
    let mut atomic = Vec::new();
    members(OwnershipType::of_message(message), config, String::new(), &mut atomic);
    if !atomic.is_empty() {
        return Err(MergeError::Atomic(atomic));
    }
    merge(message, live, config).map_err(|error| MergeError::Live(error.to_string()))
}

/// Collects the paths of the atomic values in `value`.
fn value(of: OwnershipType<'_>, value: &Value, path: String, atomic: &mut Vec<String>) {
    cancellation::step();
    match (of.for_value(value), value) {
        (
            of @ (OwnershipType::Struct { atomic: is_atomic, .. }
            | OwnershipType::Map { atomic: is_atomic, .. }),
            Value::Object(object),
        ) => {
            if is_atomic {
                atomic.push(path.clone());
            }
            members(of, object, path, atomic);
        }
        (OwnershipType::List { item, list }, Value::Array(items)) => {
            if *list == ListType::Atomic {
                atomic.push(path.clone());
            }
            for (at, item_value) in items.iter().enumerate() {
                self::value(OwnershipType::of_kind(item), item_value, format!("{path}[{at}]"), atomic);
            }
        }
        (OwnershipType::Scalar(Primitive::Whole), Value::Object(_) | Value::Array(_)) => atomic.push(path),
        _ => {}
    }
}

/// Collects the paths of the atomic values in the members of a struct. The values of a map are leaves.
fn members(of: OwnershipType<'_>, object: &Object, path: String, atomic: &mut Vec<String>) {
    if !matches!(of, OwnershipType::Struct { .. }) {
        return;
    }
    for (name, member) in object.iter() {
        if let Some(of) = of.step(&Element::field(name)) {
            value(of, member, format!("{path}.{name}"), atomic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::builtin;
    use values::naming::KUBERNETES;
    use values::testing::object;

    #[test]
    fn a_policy_configuration_may_not_set_atomic_values() {
        let live = object(
            r#"{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"c","image":"a"}]}}}}"#,
        );
        let of_pod = |spec: &str| format!(r#"{{"spec":{{"template":{{"spec":{spec}}}}}}}"#);
        let atomic = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: ";
        for (config, want) in [
            (r#"{"spec":{"replicas":5}}"#.to_owned(), ""),
            (of_pod(r#"{"containers":[{"name":"c","image":"b"}]}"#), ""),
            (
                of_pod(r#"{"containers":[{"name":"c","args":["a"]}],"nodeSelector":{"a":"b"}}"#),
                ".spec.template.spec.containers[0].args, .spec.template.spec.nodeSelector",
            ),
            (
                r#"{"spec":{"replicas":null}}"#.to_owned(),
                ".spec.replicas: expected numeric (int or float), got structpb.NullValue",
            ),
            (r#"{"spec":{"template":null}}"#.to_owned(), ".spec.template: expected map, got &{NULL_VALUE}"),
            (
                r#"{"metadata":{"labels":null}}"#.to_owned(),
                ".metadata.labels: expected map, got &{NULL_VALUE}",
            ),
            (
                of_pod(r#"{"containers":null}"#),
                ".spec.template.spec.containers: expected list, got &{NULL_VALUE}",
            ),
            (r#"{"spec":{"foo":1}}"#.to_owned(), ".spec.foo: field not declared in schema"),
        ] {
            let message = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
            let got = merge_configuration(message, &live, &object(&config));
            let got = got.map_or_else(|error| error.to_string(), |_| String::new());
            let got = got.trim_start_matches(atomic);
            assert_eq!(
                got.trim_start_matches("failed to convert patch object to typed object: "),
                want,
                "{config}"
            );
        }
    }
}
