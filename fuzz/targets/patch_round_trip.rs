//! Two-way patches: the target computes the patch that turns one object into another, as a client does. The
//! application of the patch to the first object must give the second object.

use objects::patch::{PatchKind, apply};
use types::schema::builtin;
use types::schema::conform::conform;
use types::schema::table::{Kind, Message, PatchStrategy, Ref, Shape};
use values::json::{Object, Value, parse};
use values::naming::CLUSTER;

use super::{patch, schema, text};
use crate::document;
use crate::input::Input;
use crate::tree::Tree;

/// Builds a type and two objects of the type from choices. The second object is unrelated to the first, or a
/// changed copy of it.
pub fn patch_round_trip(data: &[u8]) {
    let mut input = Input::new(data);
    let stem = input.pick(patch::TYPES);
    let message =
        builtin::message(&CLUSTER, stem).map_or_else(|| schema::some_message(&mut input), Ref::Static);
    let related = input.byte() & 1 == 1;
    let made = |input: &mut Input| parse(&document::object(&message, input)).unwrap_or_default();
    let first = made(&mut input);
    let mut second = made(&mut input);
    if related {
        second = patch::merged(first.clone(), &second);
    }
    let (Some(first), Some(second)) = (patchable(&message, first), patchable(&message, second)) else {
        return;
    };
    for (kind, known) in [(PatchKind::Strategic, Known::Struct(&message)), (PatchKind::Merge, Known::Nothing)]
    {
        let change = text(&difference(known, &first, &second).into());
        let shown = || {
            let [first, second] = [&first, &second].map(|object| text(&object.clone().into()));
            let texts = [&first, &change, &second].map(|text| String::from_utf8_lossy(text));
            format!("{kind:?}\n{}\n{}\n{}", texts[0], texts[1], texts[2])
        };
        let patched = apply(kind, Some(&message), first.clone().into(), &change, true)
            .unwrap_or_else(|status| panic!("{}: {}", status.message, shown()));
        assert!(patched.strict.is_empty(), "{:?}: {}", patched.strict, shown());
        let result = conform(&message, patched.value).unwrap_or_else(|error| panic!("{error}: {}", shown()));
        assert_eq!(result.strict, [""; 0], "{}", shown());
        assert_eq!(Tree::from(&result.object.into()), Tree::from(&second.clone().into()), "{}", shown());
    }
}

/// Returns the object in canonical form if a patch can express it: `null` in a patch deletes a member, so no
/// value contains `null`, and lists that merge by key or as a set have unique keys. `None` if the object
/// does not fit the type.
fn patchable(message: &Message, value: Value) -> Option<Object> {
    let mut object: Value = conform(message, value).ok()?.object.into();
    simplify(Known::Struct(message), PatchStrategy::default(), &mut object);
    Some(conform(message, object).expect("parts of an object were left out").object)
}

fn simplify(known: Known<'_>, strategy: PatchStrategy, value: &mut Value) {
    match value {
        Value::Object(members) => {
            // A field set that is not an object is stored as its JSON text, which would be quoted once more.
            let is_odd_set = |name: &str, member: &Value| {
                name == "fieldsV1" && member.as_str().is_some_and(|text| !text.starts_with('{'))
            };
            members.retain(|name, member| !member.is_null() && !is_odd_set(name, member));
            for (name, member) in members.iter_mut() {
                let (known, strategy) = known.member(name);
                simplify(known, strategy, member);
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| simplify(known, PatchStrategy::default(), item));
            if strategy.merge {
                let mut seen: Vec<Value> = Vec::new();
                items.retain(|item| {
                    let key = strategy.merge_key.map_or(Some(item), |key| item.get(key));
                    let new = key.filter(|key| !key.is_null() && !seen.contains(key)).cloned();
                    seen.extend(new.clone());
                    new.is_some()
                });
            }
        }
        _ => {}
    }
}

/// Schema information of a value.
#[derive(Clone, Copy)]
enum Known<'s> {
    Struct(&'s Message),
    MapOf(&'s Kind),
    Nothing,
}

impl<'s> Known<'s> {
    fn from_kind(kind: &'s Kind) -> Self {
        match kind {
            Kind::Message(message)
            | Kind::SchemaOrArray(message)
            | Kind::SchemaOrBool(message)
            | Kind::SchemaOrStrings(message) => Known::Struct(message),
            _ => Known::Nothing,
        }
    }

    /// Returns the schema information of a member, or of its elements if the member is a list, and the merge
    /// strategy.
    fn member(self, name: &str) -> (Self, PatchStrategy) {
        match self {
            Known::Struct(message) => match message.field(name) {
                Some(field) => match field.shape() {
                    Shape::Single | Shape::List => (Known::from_kind(field.element()), field.patch),
                    Shape::Map => (Known::MapOf(field.element()), field.patch),
                    Shape::WrappedList | Shape::MapOfLists => (Known::Nothing, field.patch),
                },
                None => (Known::Nothing, PatchStrategy::default()),
            },
            Known::MapOf(kind) => (Known::from_kind(kind), PatchStrategy::default()),
            Known::Nothing => (Known::Nothing, PatchStrategy::default()),
        }
    }
}

/// Returns the patch that turns `first` into `second`: a strategic patch if there is schema information,
/// otherwise a merge patch.
fn difference(known: Known<'_>, first: &Object, second: &Object) -> Object {
    let mut patch = Object::new();
    let present = |object: &Object, name: &str| object.get(name).is_some_and(|value| !value.is_null());
    for (name, _) in first.iter().filter(|(name, _)| present(first, name) && !present(second, name)) {
        patch.insert(name.to_owned(), Value::Null);
    }
    for (name, new) in second.iter().filter(|(name, _)| present(second, name)) {
        let (known, strategy) = known.member(name);
        match (first.get(name), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) if !strategy.replace => {
                let change = element_difference(known, strategy, old, new);
                if !change.is_empty() {
                    patch.insert(name.to_owned(), change.into());
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) if strategy.merge => match strategy.merge_key {
                Some(key) => differ_by_key(known, (name, strategy, key), (old, new), &mut patch),
                None => differ_as_sets(name, (old, new), &mut patch),
            },
            _ => drop(patch.insert(name.to_owned(), new.clone())),
        }
    }
    patch
}

/// Returns the difference of two objects, with `$retainKeys` if the strategy requires it.
fn element_difference(known: Known<'_>, strategy: PatchStrategy, old: &Object, new: &Object) -> Object {
    let mut change = difference(known, old, new);
    if strategy.retain_keys && !change.is_empty() {
        let names = new.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.into());
        change.insert("$retainKeys", Value::Array(names.collect()));
    }
    change
}

fn differ_by_key(
    known: Known<'_>,
    (name, strategy, key): (&str, PatchStrategy, &'static str),
    (old, new): (&[Value], &[Value]),
    patch: &mut Object,
) {
    let named = |item: &Value| Object::from_iter([(key.into(), item.get(key).cloned().unwrap_or_default())]);
    let in_list =
        |list: &[Value], item: &Value| list.iter().find(|other| other.get(key) == item.get(key)).cloned();
    let mut items: Vec<Value> = Vec::new();
    for item in new {
        let Some(before) = in_list(old, item) else {
            items.push(item.clone());
            continue;
        };
        let (Value::Object(before), Value::Object(after)) = (before, item) else { continue };
        let mut change = element_difference(known, strategy, &before, after);
        if !change.is_empty() {
            named(item).iter().for_each(|(name, value)| drop(change.insert(name.to_owned(), value.clone())));
            items.push(change.into());
        }
    }
    for gone in old.iter().filter(|item| in_list(new, item).is_none()) {
        let mut delete = named(gone);
        delete.insert("$patch", "delete".into());
        items.push(delete.into());
    }
    if !items.is_empty() {
        patch.insert(name.to_owned(), Value::Array(items));
    }
    let order = new.iter().map(|item| named(item).into()).collect();
    patch.insert(format!("$setElementOrder/{name}"), Value::Array(order));
}

fn differ_as_sets(name: &str, (old, new): (&[Value], &[Value]), patch: &mut Object) {
    let without = |list: &[Value], others: &[Value]| -> Vec<Value> {
        list.iter().filter(|item| !others.contains(item)).cloned().collect()
    };
    for (member, items) in [
        (format!("$deleteFromPrimitiveList/{name}"), without(old, new)),
        (name.to_owned(), without(new, old)),
        (format!("$setElementOrder/{name}"), new.to_vec()),
    ] {
        // The order is written even if it is empty. The other directives are written only if they
        // are needed.
        if !items.is_empty() || member.starts_with("$setElementOrder") {
            patch.insert(member, Value::Array(items));
        }
    }
}
