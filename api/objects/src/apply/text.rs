//! Queries on a field set in its text form, without parsing the text to a set.
//!
//! Most updates change a few fields that their writer already owns. Therefore a typical query only needs the
//! membership of a few paths in the stored sets. The text is canonical, as [`FieldSet::text`] writes it. The
//! scan reads the text once and skips irrelevant parts from bracket to bracket. `None` means that the text or
//! the query is unusual and the caller must parse the set.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::typed::{OwnershipType, Primitive};
use types::schema::table::{ListType, Message};
use values::field::{Element, FieldSet, NESTING_MAX, Node};
use values::json::scan::{Scan, Text};

/// Maximum number of steps of one level that are searched linearly.
const STEPS_MAX: usize = 16;

/// Returns the number of members that `set` and the set in `text` have in common.
pub(super) fn common(text: &str, set: &FieldSet<'_>) -> Option<usize> {
    if set.is_empty() {
        return Some(0);
    }
    let mut found = 0;
    members(&mut Scan::new(text.as_bytes()), set.nodes(), 0, &mut found)?;
    Some(found)
}

/// The text by which a step is compared, and the node of the step.
type ComparedNode<'n, 't> = (Cow<'n, [u8]>, &'n Node<'t>);

/// Counts the members in and below `nodes` that occur in the text. Returns whether the path up to this level
/// is itself a member.
fn members(scan: &mut Scan<'_>, nodes: &[Node<'_>], depth: usize, found: &mut usize) -> Option<bool> {
    if nodes.len() > STEPS_MAX || depth > NESTING_MAX || !scan.take(b'{') {
        return None;
    }
    if scan.take(b'}') {
        return Some(true);
    }
    let mut remaining: SmallVec<[ComparedNode<'_, '_>; 4]> =
        nodes.iter().map(|node| (step_text(&node.element), node)).collect();
    let mut is_member = false;
    loop {
        let step = scan.name()?;
        if step.raw == b"." {
            is_member = true;
            scan.word("{}").then_some(())?;
        } else if let Some(at) = remaining.iter().position(|(text, _)| names(step, text)) {
            let (_, node) = remaining.remove(at);
            let is_there = members(scan, node.children.nodes(), depth + 1, found)?;
            *found += usize::from(is_there && node.member);
        } else {
            step_kind(step)?;
            scan.value()?;
        }
        if depth == 0 && remaining.is_empty() {
            return Some(is_member); // the rest of the text is irrelevant
        }
        if !scan.more(b'}')? {
            break;
        }
    }
    scan.take(b'}').then_some(is_member)
}

/// Returns the text by which a step is compared: the name of a field, or the text form of any other step.
fn step_text<'n>(element: &'n Element<'_>) -> Cow<'n, [u8]> {
    match element {
        Element::Field(name) => Cow::Borrowed(name.as_bytes()),
        other => {
            let node = Node { element: other.clone(), member: true, children: FieldSet::new() };
            let text = FieldSet::from_nodes(vec![node]).text();
            let step = text.strip_prefix("{\"").and_then(|text| text.strip_suffix("\":{}}"));
            Cow::Owned(step.unwrap_or_default().as_bytes().to_vec())
        }
    }
}

/// Returns whether a step in the text equals this [`step_text`].
fn names(step: Text<'_>, text: &[u8]) -> bool {
    match step.raw.strip_prefix(b"f:") {
        Some(name) if step.is_escaped => {
            Text { raw: name, ..step }.unescaped().is_some_and(|name| *name == *text)
        }
        Some(name) => name == text,
        None => step.raw == text,
    }
}

/// Returns the letter of the kind of a step; `None` for kinds that do not occur in canonical text.
fn step_kind(step: Text<'_>) -> Option<u8> {
    match step.raw {
        [kind @ (b'f' | b'k' | b'v' | b'i'), b':', ..] => Some(*kind),
        _ => None,
    }
}

/// Returns whether [`reconcile`](super::reconcile::reconcile) would leave the set unchanged. The set stays unchanged if
/// the set owns no part of a value that is atomic in the schema of `message`.
pub(super) fn is_current(text: &str, message: &Message) -> Option<bool> {
    parts_are_granular(&mut Scan::new(text.as_bytes()), OwnershipType::of_message(message), 0)
}

/// Returns whether no step below a value of type `of` is a part of an atomic value.
fn parts_are_granular(scan: &mut Scan<'_>, of: OwnershipType<'_>, depth: usize) -> Option<bool> {
    if depth > NESTING_MAX || !scan.take(b'{') {
        return None;
    }
    if scan.take(b'}') {
        return Some(true);
    }
    loop {
        let step = scan.name()?;
        if step.raw == b"." {
            scan.word("{}").then_some(())?;
        } else {
            // The object itself is never atomic, because no manager can own it.
            if depth > 0 && is_atomic(of) {
                return Some(false);
            }
            let kind = step_kind(step)?;
            // A leaf always matches the schema.
            if !scan.word("{}") {
                match step_type(of, kind, step)? {
                    Some(below) if !parts_are_granular(scan, below, depth + 1)? => return Some(false),
                    Some(_) => {}
                    None => drop(scan.value()?),
                }
            }
        }
        if !scan.more(b'}')? {
            break;
        }
    }
    scan.take(b'}').then_some(true)
}

fn is_atomic(of: OwnershipType<'_>) -> bool {
    match of {
        OwnershipType::Struct { atomic, .. } | OwnershipType::Map { atomic, .. } => atomic,
        OwnershipType::List { list, .. } => matches!(list, ListType::Atomic),
        OwnershipType::Scalar(primitive) => primitive == Primitive::Whole,
        OwnershipType::Deduced => false,
    }
}

/// Returns the type of the value after a step; the inner `None` if the schema does not declare the step.
fn step_type<'s>(of: OwnershipType<'s>, kind: u8, step: Text<'_>) -> Option<Option<OwnershipType<'s>>> {
    let element = match (kind, of) {
        (b'f', OwnershipType::Struct { message, .. }) => {
            let name = Text { raw: &step.raw[2..], ..step }.unescaped()?;
            return Some(message.position(&name).map(|at| OwnershipType::of_field(&message.fields[at])));
        }
        // The name, keys or value do not affect the type.
        (b'f', _) => Element::Field(Cow::Borrowed("")),
        (b'i', _) => Element::Index(0),
        _ => Element::Key(Vec::new()),
    };
    Some(of.step(&element))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::reconcile::reconcile;
    use testkit::Random;
    use types::schema::builtin;
    use values::field::KeyScalar;
    use values::naming::KUBERNETES;

    /// A type with a field that accepts any JSON.
    const SCHEMA: &str = "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

    /// Returns a random field set.
    fn set(random: &mut Random, depth: usize) -> FieldSet<'static> {
        const NAMES: [&str; 7] = ["a", "b", "a<b", "\"", "é", "", "."];
        let nodes = (0..random.index(4)).map(|_| {
            let name = random.pick(&NAMES);
            let text = || KeyScalar::Text(Cow::Borrowed(name));
            let element = match random.index(7) {
                0 => Element::Value(text()),
                1 => Element::Key(vec![("name".into(), text())]),
                2 => Element::Key(vec![("a".into(), KeyScalar::Int(1)), ("b".into(), text())]),
                3 => Element::Index(random.index(3) as i64),
                _ => Element::field(name),
            };
            let children = if depth > 0 { set(random, depth - 1) } else { FieldSet::new() };
            Node { element, member: random.index(2) == 0, children }
        });
        let nodes = nodes.collect();
        FieldSet::from_nodes(nodes)
    }

    #[test]
    fn common_counts_the_members_of_the_intersection() {
        let mut random = Random(7);
        let mut met = 0;
        for _ in 0..20_000 {
            let a = set(&mut random, 3);
            let b = a.clone().difference(&set(&mut random, 3)).union(set(&mut random, 2));
            let want = a.clone().intersection(&b).len();
            assert_eq!(common(&a.text(), &b), Some(want), "{} {}", a.text(), b.text());
            assert_eq!(common(&a.text(), &a), Some(a.len()), "{}", a.text());
            met += usize::from(want > 1);
        }
        assert!(met > 1000, "{met}");
    }

    #[test]
    fn is_current_is_true_if_reconcile_would_not_change_the_set() {
        let deployment = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
        let revision = builtin::message(&KUBERNETES, "api.apps.v1.ControllerRevision").unwrap();
        let schema = builtin::message(&KUBERNETES, SCHEMA).unwrap();
        for (message, set, want) in [
            (deployment, r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#, true),
            (deployment, r#"{"f:spec":{"f:selector":{}}}"#, true),
            (deployment, r#"{"f:spec":{"f:selector":{"f:matchLabels":{"f:x":{}}}}}"#, false),
            (deployment, r#"{"f:spec":{"f:selector":{".":{},"f:matchLabels":{}}}}"#, false),
            (deployment, r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{}}}}}"#, true),
            (
                deployment,
                r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:command":{"i:0":{}},"f:image":{}}}}}}}"#,
                false,
            ),
            (
                deployment,
                r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:command":{},"f:image":{}}}}}}}"#,
                true,
            ),
            (deployment, r#"{"f:old":{"f:selector":{"f:x":{}}}}"#, true),
            (deployment, "{}", true),
            (revision, r#"{"f:data":{"f:a":{"f:b":{}}}}"#, false),
            (revision, r#"{"f:data":{}}"#, true),
            (schema, r#"{"f:default":{"f:a":{"f:b":{}}}}"#, true),
            (deployment, r#"{"f:metadata":{"f:finalizers":{}}}"#, true),
            (deployment, r#"{"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}"#, true),
        ] {
            assert_eq!(is_current(set, message), Some(want), "{set}");
            let parsed = FieldSet::parse(set).unwrap();
            assert_eq!(reconcile(message, parsed.clone()) == parsed, want, "{set}");
        }
    }

    #[test]
    fn common_and_is_current_return_none_for_unusual_texts() {
        let message = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
        let set = FieldSet::of_fields(&["metadata.labels", "spec", "z"]);
        for text in ["", "[]", "{", r#"{"x:new":{}}"#, r#"{"f:a"}"#, r#"{"f:spec":1}"#, r#"{"f:spec" :{}}"#] {
            assert_eq!(common(text, &set), None, "{text}");
            assert_eq!(is_current(text, message), None, "{text}");
        }
        let deep = format!("{}{}", r#"{"f:z":"#.repeat(1000), "}".repeat(1000));
        assert_eq!(common(&deep, &set), Some(0));
        assert_eq!(is_current(&deep, message), Some(true), "unknown fields are skipped");
        let deep = deep.replace("f:z", "f:default");
        let schema = builtin::message(&KUBERNETES, SCHEMA).unwrap();
        assert_eq!(is_current(&deep, schema), None);
        let names: Vec<String> = (0..100).map(|at| format!("n{at}")).collect();
        let many = FieldSet::of_fields(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(common(&many.text(), &many), None);
    }
}
