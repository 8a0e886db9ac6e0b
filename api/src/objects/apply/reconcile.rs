//! Adapts field sets to a changed schema (docs/api/apply.md#schema-changes).
//!
//! If a struct, map or list was granular when a set was written and is atomic now, the owner of a part owns the whole.
//! If a list was atomic and is granular now, the applier of the whole owns all its elements. A struct or map owned as a
//! whole is indistinguishable from one applied empty, and fields of updaters from those they emptied; these stay
//! unchanged.

use super::collect::field_set;
use super::managed::Operation;
use super::typed::{Primitive, Type};
use crate::types::schema::table::{ListType, Message};
use crate::values::cancellation;
use crate::values::field::{Element, FieldSet, Node};
use crate::values::json::Object;

/// `set` adapted to the current schema of `message`, for the object `live`.
pub fn reconcile<'t>(
    message: &Message,
    operation: Operation,
    set: FieldSet<'t>,
    live: &'t Object,
) -> FieldSet<'t> {
    let of = Type::of_message(message);
    if !set.nodes().iter().any(|node| is_outdated(of.step(&node.element), operation, node)) {
        return set;
    }
    let all = field_set(message, live);
    below(of, operation, &set, Some(&all))
}

/// Whether `node` or a descendant is owned in a way that the schema no longer allows.
fn is_outdated(of: Option<Type<'_>>, operation: Operation, node: &Node<'_>) -> bool {
    let Some(of) = of else { return false };
    let mut children = node.children.nodes().iter();
    shape(of, operation, node) != Shape::AsItIs
        || children.any(|child| is_outdated(of.step(&child.element), operation, child))
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Shape {
    AsItIs,
    /// Parts of an atomic value are owned.
    Collapse,
    /// A granular value is owned as a whole.
    Expand,
}

fn shape(of: Type<'_>, operation: Operation, node: &Node<'_>) -> Shape {
    let has_parts = !node.children.is_empty();
    match of {
        Type::Scalar(Primitive::Whole)
        | Type::Struct { atomic: true, .. }
        | Type::Map { atomic: true, .. }
        | Type::List { list: ListType::Atomic, .. }
            if has_parts =>
        {
            Shape::Collapse
        }
        Type::List { list: ListType::Set | ListType::Map(_), .. }
            if operation == Operation::Apply
                && node.member
                && !has_parts
                && !matches!(node.element, Element::Key(_) | Element::Value(_)) =>
        {
            Shape::Expand
        }
        _ => Shape::AsItIs,
    }
}

fn below<'t>(
    of: Type<'_>,
    operation: Operation,
    set: &FieldSet<'t>,
    live: Option<&FieldSet<'t>>,
) -> FieldSet<'t> {
    cancellation::step();
    let nodes = set.nodes().iter().map(|node| {
        let found = live.and_then(|live| live.get(&node.element)).map(|found| &found.children);
        let Some(of) = of.step(&node.element) else { return node.clone() };
        let children = match shape(of, operation, node) {
            Shape::Collapse => {
                return Node { member: true, children: FieldSet::new(), element: node.element.clone() };
            }
            Shape::Expand => found.cloned().unwrap_or_default(),
            Shape::AsItIs => below(of, operation, &node.children, found),
        };
        Node { element: node.element.clone(), member: node.member, children }
    });
    FieldSet::from_nodes(nodes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::schema::builtin;
    use crate::values::json::parse;
    use crate::values::naming::KUBERNETES;

    #[test]
    fn sets_follow_the_schema() {
        let message = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
        let live = parse(br#"{"metadata":{"labels":{"a":"1","b":"2"}},"spec":{"selector":{"matchLabels":{"x":"y"}},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#).unwrap();
        for (set, want) in [
            // Up to date: unchanged.
            (
                r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#,
                r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#,
            ),
            (r#"{"f:spec":{"f:selector":{}}}"#, r#"{"f:spec":{"f:selector":{}}}"#),
            // Formerly granular, now atomic.
            (r#"{"f:spec":{"f:selector":{"f:matchLabels":{"f:x":{}}}}}"#, r#"{"f:spec":{"f:selector":{}}}"#),
            // Possibly applied empty: unchanged.
            (r#"{"f:metadata":{"f:labels":{}}}"#, r#"{"f:metadata":{"f:labels":{}}}"#),
            // Formerly atomic, now granular.
            (
                r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{}}}}}"#,
                r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{".":{},"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}}}"#,
            ),
            // Unknown to the schema: unchanged.
            (r#"{"f:old":{"f:x":{}}}"#, r#"{"f:old":{"f:x":{}}}"#),
        ] {
            let set = FieldSet::parse(set).unwrap();
            let live = live.as_object().unwrap();
            assert_eq!(reconcile(message, Operation::Apply, set.clone(), live).text(), want);
            let expands = want.len() > set.text().len();
            let updated = reconcile(message, Operation::Update, set.clone(), live).text();
            assert_eq!(updated, if expands { set.text() } else { want.to_owned() });
        }
    }
}
