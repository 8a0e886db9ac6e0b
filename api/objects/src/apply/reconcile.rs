//! Adapts field sets to a changed schema (docs/api/apply.md#schema-changes).
//!
//! If a struct, map or list was granular when a set was written and is atomic now, the owner of a part
//! becomes the owner of the whole value. A set that owns an atomic value as a whole stays unchanged if the
//! value becomes granular: the manager still owns the value, but none of its parts.
//!
//! Source: structured-merge-diff, typed/reconcile_schema.go.

use super::typed::{OwnershipType, Primitive};
use types::schema::table::{ListType, Message};
use values::cancellation;
use values::field::{FieldSet, Node};

/// Adapts `set` to the current schema of `message`.
pub fn reconcile<'t>(message: &Message, set: FieldSet<'t>) -> FieldSet<'t> {
    let of = OwnershipType::of_message(message);
    if !set.nodes().iter().any(|node| is_outdated(of.step(&node.element), node)) {
        return set;
    }
    below(of, &set)
}

/// Returns whether the set owns parts of an atomic value at `node` or below it.
fn is_outdated(of: Option<OwnershipType<'_>>, node: &Node<'_>) -> bool {
    let Some(of) = of else { return false };
    let mut children = node.children.nodes().iter();
    collapses(of, node) || children.any(|child| is_outdated(of.step(&child.element), child))
}

/// Returns whether the value is atomic and the set owns parts of the value.
fn collapses(of: OwnershipType<'_>, node: &Node<'_>) -> bool {
    let is_atomic = matches!(
        of,
        OwnershipType::Scalar(Primitive::Whole)
            | OwnershipType::Struct { atomic: true, .. }
            | OwnershipType::Map { atomic: true, .. }
            | OwnershipType::List { list: ListType::Atomic, .. }
    );
    is_atomic && !node.children.is_empty()
}

fn below<'t>(of: OwnershipType<'_>, set: &FieldSet<'t>) -> FieldSet<'t> {
    cancellation::step();
    let nodes = set.nodes().iter().map(|node| {
        let Some(of) = of.step(&node.element) else { return node.clone() };
        if collapses(of, node) {
            return Node { member: true, children: FieldSet::new(), element: node.element.clone() };
        }
        Node { element: node.element.clone(), member: node.member, children: below(of, &node.children) }
    });
    FieldSet::from_nodes(nodes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::builtin;
    use values::naming::KUBERNETES;

    #[test]
    fn reconcile_adapts_field_sets_to_the_schema() {
        let message = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
        for (set, want) in [
            // The set matches the schema: unchanged.
            (
                r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#,
                r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#,
            ),
            (r#"{"f:spec":{"f:selector":{}}}"#, r#"{"f:spec":{"f:selector":{}}}"#),
            // The value was granular and is atomic now: the manager owns the whole value.
            (r#"{"f:spec":{"f:selector":{"f:matchLabels":{"f:x":{}}}}}"#, r#"{"f:spec":{"f:selector":{}}}"#),
            // The value may have been applied as an empty value: unchanged.
            (r#"{"f:metadata":{"f:labels":{}}}"#, r#"{"f:metadata":{"f:labels":{}}}"#),
            // The value was atomic and is granular now: unchanged.
            (
                r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{}}}}}"#,
                r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{}}}}}"#,
            ),
            // The schema does not declare the field: unchanged.
            (r#"{"f:old":{"f:x":{}}}"#, r#"{"f:old":{"f:x":{}}}"#),
        ] {
            let set = FieldSet::parse(set).unwrap();
            assert_eq!(reconcile(message, set).text(), want);
        }
    }
}
