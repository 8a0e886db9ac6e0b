//! The field set of an applied configuration (docs/api/apply.md#field-sets).
//!
//! A manager that applies owns the leaves of its configuration: scalars, atomic values, elements of sets and
//! keyed lists, members whose names no schema declares, and members set to `null`. The structs, maps and
//! lists around the leaves are not owned.

use super::typed::{OwnershipType, item_element};
use types::schema::table::{ListType, Message};
use values::cancellation;
use values::field::{Element, FieldSet, Node};
use values::json::{Object, Value};

/// Returns the field set of `object`, a configuration of type `message`.
pub fn field_set<'t>(message: &Message, object: &'t Object) -> FieldSet<'t> {
    members(OwnershipType::of_message(message), object)
}

fn members<'t>(of: OwnershipType<'_>, object: &'t Object) -> FieldSet<'t> {
    let nodes = object.iter().filter_map(|(name, value)| {
        let element = Element::field(name);
        let is_declared = of.declares(&element);
        let (leaf, children) = collect(of.step(&element)?, value);
        let is_nothing = value.is_null() || value.as_object().is_some_and(Object::is_empty);
        Some(Node { element, member: leaf || is_nothing || !is_declared, children })
    });
    FieldSet::from_nodes(nodes.collect())
}

/// Returns whether `value` is a leaf, and the field set below `value`.
fn collect<'t>(of: OwnershipType<'_>, value: &'t Value) -> (bool, FieldSet<'t>) {
    cancellation::step();
    match (of.for_value(value), value) {
        (OwnershipType::Scalar(_), _)
        | (OwnershipType::Struct { atomic: true, .. } | OwnershipType::Map { atomic: true, .. }, _)
        | (OwnershipType::List { list: ListType::Atomic, .. }, _) => (true, FieldSet::new()),
        (granular @ (OwnershipType::Struct { .. } | OwnershipType::Map { .. }), Value::Object(object)) => {
            (false, members(of_members(of, granular), object))
        }
        (OwnershipType::List { item, list }, Value::Array(items)) => {
            let of = OwnershipType::of_kind(item);
            let mut nodes: Vec<Node<'t>> = Vec::with_capacity(items.len());
            for value in items {
                let Ok(element) = item_element(item, list, value) else { continue };
                nodes.push(Node { element, member: true, children: collect(of, value).1 });
            }
            // A repeated element is owned as a whole, without paths below it.
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            nodes.dedup_by(|later, kept| {
                let same = later.element == kept.element;
                if same {
                    kept.children = FieldSet::new();
                }
                same
            });
            (false, FieldSet::from_nodes(nodes))
        }
        _ => (false, FieldSet::new()),
    }
}

/// Returns the type by which the members of a value are collected. Descendants of a value without a schema
/// have no schema either.
fn of_members<'s>(of: OwnershipType<'s>, granular: OwnershipType<'s>) -> OwnershipType<'s> {
    if matches!(of, OwnershipType::Deduced) { OwnershipType::Deduced } else { granular }
}

/// Adds the declared fields on the paths to the members of `set`: `.a.b.c` adds `.a` if the schema declares
/// `a`, but does not add `.a.b` if `b` is the key of a map.
pub fn with_named_fields<'t>(of: OwnershipType<'_>, mut set: FieldSet<'t>) -> FieldSet<'t> {
    name_fields(of, &mut set);
    set
}

fn name_fields(of: OwnershipType<'_>, set: &mut FieldSet<'_>) {
    for (element, member, below) in set.steps_mut() {
        if !below.is_empty() {
            *member |= of.declares(element);
            if let Some(of) = of.step(element) {
                name_fields(of, below);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::check::check;
    use crate::apply::fixture::things;
    use types::schema::builtin;
    use values::json::parse;
    use values::naming::KUBERNETES;
    use values::testing;

    #[test]
    fn an_applied_configuration_owns_its_leaves() {
        for (message, config, want) in [
            ("api.core.v1.ConfigMap", r#"{"data":{"b":"1","a":"2"}}"#, r#"{"f:data":{"f:a":{},"f:b":{}}}"#),
            ("api.core.v1.ConfigMap", r#"{"data":{}}"#, r#"{"f:data":{}}"#),
            (
                "api.core.v1.ConfigMap",
                r#"{"data":null,"immutable":null}"#,
                r#"{"f:data":{},"f:immutable":{}}"#,
            ),
            (
                "api.core.v1.ConfigMap",
                r#"{"metadata":{"finalizers":["b","a"]}}"#,
                r#"{"f:metadata":{"f:finalizers":{"v:\"a\"":{},"v:\"b\"":{}}}}"#,
            ),
            // An empty associative list adds no fields to the set. An atomic list is a leaf even if it is
            // empty.
            ("api.core.v1.ConfigMap", r#"{"metadata":{"finalizers":[]}}"#, "{}"),
            ("api.core.v1.PodSpec", r#"{"tolerations":[]}"#, r#"{"f:tolerations":{}}"#),
            ("api.core.v1.PodSpec", r#"{"nodeSelector":{"a":"b"}}"#, r#"{"f:nodeSelector":{}}"#),
            (
                "api.core.v1.PodSpec",
                r#"{"containers":[{"name":"web","ports":[{"containerPort":80}],"command":["a"],"resources":{}}]}"#,
                r#"{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:command":{},"f:name":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},"f:resources":{}}}}"#,
            ),
            (
                "api.apps.v1.DeploymentSpec",
                r#"{"selector":{"matchLabels":{"a":"b"}}}"#,
                r#"{"f:selector":{}}"#,
            ),
            // JSON whose structure the schema does not describe is a leaf.
            ("api.apps.v1.ControllerRevision", r#"{"data":{"spec":{"a":[1],"b":{}}}}"#, r#"{"f:data":{}}"#),
        ] {
            let message = builtin::message(&KUBERNETES, message).unwrap();
            let config = parse(config.as_bytes()).unwrap();
            assert_eq!(field_set(message, config.as_object().unwrap()).text(), want);
        }
    }

    #[test]
    fn an_applied_configuration_owns_members_without_a_schema_one_by_one() {
        let resource = things(
            r#"{"free":{"type":"object"},
                "any":{"type":"object","additionalProperties":true},
                "mixed":{"x-kubernetes-int-or-string":true},
                "open":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
                    "inner":{"type":"object","properties":{"a":{"type":"string"}}}}}}"#,
        );
        for (config, want) in [
            // Without a schema, maps are granular and lists are atomic.
            (r#"{"free":{"a":{"b":[1],"c":{}}}}"#, r#"{"f:free":{"f:a":{".":{},"f:b":{},"f:c":{}}}}"#),
            (r#"{"any":{"a":{"b":1}}}"#, r#"{"f:any":{"f:a":{".":{},"f:b":{}}}}"#),
            (r#"{"mixed":{"a":1}}"#, r#"{"f:mixed":{"f:a":{}}}"#),
            (r#"{"mixed":[1]}"#, r#"{"f:mixed":{}}"#),
            (r#"{"open":{"other":1}}"#, r#"{"f:open":{"f:other":{}}}"#),
            // Fields that pruning drops are owned too.
            (r#"{"open":{"inner":{"b":1}}}"#, r#"{"f:open":{"f:inner":{"f:b":{}}}}"#),
        ] {
            let config = testing::object(&format!(r#"{{"spec":{config}}}"#));
            let message = &resource.table.message;
            assert_eq!(check(message, &config), [], "{want}");
            assert_eq!(field_set(message, &config).text(), format!(r#"{{"f:spec":{want}}}"#));
        }
    }

    #[test]
    fn with_named_fields_adds_the_declared_fields_above_a_member() {
        let message = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
        let set = FieldSet::parse(
            r#"{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:image":{}}}}}"#,
        )
        .unwrap();
        assert_eq!(
            with_named_fields(OwnershipType::of_message(message), set).text(),
            r#"{"f:metadata":{".":{},"f:labels":{".":{},"f:a":{}}},"f:spec":{".":{},"f:containers":{".":{},"k:{\"name\":\"a\"}":{"f:image":{}}}}}"#
        );
    }
}
