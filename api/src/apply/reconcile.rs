//! Field sets after a change of the schema (semantics §7.4 step 13).
//!
//! A set was written when a struct, map or list was granular, and now it is atomic: whoever owned a part owns the
//! whole. Or it was atomic and is granular now: whoever owned the whole owns all there is in it.

use super::collect::field_set;
use super::typed::Type;
use crate::field::{Element, FieldSet, Node};
use crate::json::Object;
use crate::schema::table::{ListType, Message};

/// `set` as the schema of `message` has it now, for an object that looks like `live`.
pub fn reconcile<'t>(message: &'static Message, set: FieldSet<'t>, live: &'t Object) -> FieldSet<'t> {
    let of = Type::of_message(message);
    if !set.nodes().iter().any(|node| is_outdated(of.step(&node.element), node)) {
        return set;
    }
    let all = field_set(message, live);
    below(of, &set, Some(&all))
}

/// Whether something at `node` or below it is owned in a way that the schema no longer has.
fn is_outdated(of: Option<Type>, node: &Node<'_>) -> bool {
    let Some(of) = of else { return false };
    shape(of, node) != Shape::AsItIs
        || node.children.nodes().iter().any(|child| is_outdated(of.step(&child.element), child))
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Shape {
    AsItIs,
    /// Parts are owned of what can only be owned as one.
    Collapse,
    /// Owned as one, while its parts can be owned.
    Expand,
}

fn shape(of: Type, node: &Node<'_>) -> Shape {
    let has_parts = !node.children.is_empty();
    match of {
        Type::Struct { atomic: true, .. }
        | Type::Map { atomic: true, .. }
        | Type::List { list: ListType::Atomic, .. }
            if has_parts =>
        {
            Shape::Collapse
        }
        // An empty struct or map is a leaf, and looks the same; expanding it brings nothing.
        Type::Struct { atomic: false, .. }
        | Type::Map { atomic: false, .. }
        | Type::List { list: ListType::Set | ListType::Map(_), .. }
            if node.member && !has_parts && !matches!(node.element, Element::Key(_) | Element::Value(_)) =>
        {
            Shape::Expand
        }
        _ => Shape::AsItIs,
    }
}

fn below<'t>(of: Type, set: &FieldSet<'t>, live: Option<&FieldSet<'t>>) -> FieldSet<'t> {
    let nodes = set.nodes().iter().map(|node| {
        let found = live.and_then(|live| live.get(&node.element)).map(|found| &found.children);
        let Some(of) = of.step(&node.element) else { return node.clone() };
        let children = match shape(of, node) {
            Shape::Collapse => {
                return Node { member: true, children: FieldSet::new(), element: node.element.clone() };
            }
            Shape::Expand => found.cloned().unwrap_or_default(),
            Shape::AsItIs => below(of, &node.children, found),
        };
        Node { element: node.element.clone(), member: node.member, children }
    });
    FieldSet::from_nodes(nodes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;
    use crate::naming::KUBERNETES;
    use crate::schema::builtin;

    #[test]
    fn sets_follow_the_schema() {
        let message = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
        let live = parse(br#"{"metadata":{"labels":{"a":"1","b":"2"}},"spec":{"selector":{"matchLabels":{"x":"y"}},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#).unwrap();
        for (set, want) in [
            // As it should be: untouched.
            (
                r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#,
                r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#,
            ),
            (r#"{"f:spec":{"f:selector":{}}}"#, r#"{"f:spec":{"f:selector":{}}}"#),
            // Granular once, atomic now.
            (r#"{"f:spec":{"f:selector":{"f:matchLabels":{"f:x":{}}}}}"#, r#"{"f:spec":{"f:selector":{}}}"#),
            // Atomic once, granular now.
            (
                r#"{"f:metadata":{"f:labels":{}}}"#,
                r#"{"f:metadata":{"f:labels":{".":{},"f:a":{},"f:b":{}}}}"#,
            ),
            (
                r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{}}}}}"#,
                r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{".":{},"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}}}"#,
            ),
            // What the schema does not know stays as it was.
            (r#"{"f:old":{"f:x":{}}}"#, r#"{"f:old":{"f:x":{}}}"#),
        ] {
            let set = FieldSet::parse(set).unwrap();
            assert_eq!(reconcile(message, set, live.as_object().unwrap()).text(), want);
        }
    }
}
