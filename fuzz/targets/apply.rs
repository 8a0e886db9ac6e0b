//! Field sets and server-side apply: no panic, and the invariants of ownership.

use std::sync::LazyLock;

use objects::apply::{ApplyError, Managed, Reset, Versions, Writer, apply as apply_configuration};
use objects::strategy::Endpoint;
use types::schema::conform::conform;
use types::schema::decode::decode;
use types::schema::encode::encode;
use types::schema::registry::{Registry, Resource};
use values::field::FieldSet;
use values::json::{Object, Value, parse};
use values::naming::CLUSTER;

use super::{check_refusal, schema, text};
use crate::document;
use crate::input::Input;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::new(&CLUSTER));

/// Kinds with lists of every type, maps, and fields without a schema.
const KINDS: &[(&str, &str)] = &[
    ("", "pods"),
    ("apps", "deployments"),
    ("", "services"),
    ("", "configmaps"),
    ("apps", "controllerrevisions"),
    ("", "nodes"),
];

/// Parses two texts of field sets with a zero byte between them.
pub fn field_set(data: &[u8]) {
    let mut input = Input::new(data);
    let (Ok(a), Ok(b)) = (std::str::from_utf8(input.section()), std::str::from_utf8(input.rest())) else {
        return;
    };
    let (Ok(a), Ok(b)) = (FieldSet::parse(a), FieldSet::parse(b)) else { return };
    for set in [&a, &b] {
        let written = set.text();
        assert_eq!(FieldSet::parse(&written).as_ref(), Ok(set), "{written}");
        assert!(parse(written.as_bytes()).is_ok(), "{written}");
    }
    // Union and intersection must not lose or invent a path.
    let (union, both) = (a.clone().union(b.clone()), a.clone().intersection(&b));
    assert_eq!(union.len() + both.len(), a.len() + b.len());
    assert_eq!(union, b.clone().union(a.clone()));
    assert_eq!(a.clone().difference(&b).union(both.clone()), a);
    assert_eq!(a.intersects(&b), !both.is_empty());
    assert!(a.clone().recursive_difference(&b).difference(&a.clone().difference(&b)).is_empty());
    assert_eq!(a.clone().recursive_difference(&b).union(a.clone().within(&b)), a);
    assert!(a.leaves().difference(&a).is_empty());
}

/// Builds a kind and two configurations from choices. A different manager applies each configuration, the
/// second one with force.
pub fn apply(data: &[u8]) {
    let mut input = Input::new(data);
    let (group, plural) = input.pick(KINDS);
    let resource = REGISTRY.resource(group, "v1", plural).expect("a built-in resource");
    let mut make = || match parse(&document::object(&resource.table.message, &mut input)) {
        Ok(Value::Object(config)) => config,
        _ => Object::new(),
    };
    let (first, second) = (make(), make());
    let Ok(nothing) = conform(&resource.table.message, Value::Object(Object::new())) else { return };
    let Some(one) = lay(resource, &nothing.object, "one", &first, false) else { return };
    let Some(both) = lay(resource, &one, "two", &second, true) else { return };
    schema::check_canonical(&resource.table.message, both.clone());
    // After an apply of another manager, the first manager owns only paths within the paths that it owned
    // before.
    let (before, after) = (owned(&one, "one"), owned(&both, "one"));
    assert_eq!(after.clone().within(&before), after);
    // Disjoint configurations can be applied in either order, with the same ownership afterwards.
    if let Some(other) = lay(resource, &nothing.object, "two", &second, false)
        && !owned(&one, "one").intersects(&owned(&other, "two"))
        && let (Some(one_first), Some(two_first)) =
            (lay(resource, &one, "two", &second, false), lay(resource, &other, "one", &first, false))
    {
        for manager in ["one", "two"] {
            assert_eq!(owned(&one_first, manager), owned(&two_first, manager), "{manager}");
        }
    }
    // A second apply of the same configuration without force has no effect, as long as its fields are
    // stored. A value that the schema reads as absent (`null`, an empty key) is owned but not stored.
    let Ok(stored) = conform(&resource.table.message, Value::Object(second.clone())) else { return };
    let Some(alone) = lay(resource, &nothing.object, "two", &stored.object, true) else { return };
    if owned(&both, "two").difference(&owned(&alone, "two")).is_empty()
        && let Some(again) = lay(resource, &both, "two", &second, false)
    {
        assert_eq!(object_text(&again), object_text(&both));
    }
}

/// Returns the object after an apply; `None` if the configuration or the result does not fit the schema.
fn lay(resource: &Resource, live: &Object, manager: &str, config: &Object, force: bool) -> Option<Object> {
    let versions = Versions::for_resource(&REGISTRY, resource);
    let reset = Reset::for_endpoint(resource, Endpoint::Main);
    let writer = Writer { manager, subresource: "", now: "2024-01-01T00:00:00Z" };
    match apply_configuration(&versions, &writer, &reset, live, config, force) {
        Ok(applied) => {
            applied.conformed(&resource.table.message, live).ok().map(|object| stored(resource, &object))
        }
        Err(ApplyError::Conflicts(conflicts)) => {
            assert!(!force, "an apply with force has no conflicts");
            check_refusal(&conflicts.to_status(), &[409]);
            None
        }
        Err(ApplyError::Configuration(errors) | ApplyError::Mistyped(errors) | ApplyError::Live(errors)) => {
            assert!(!errors.is_empty());
            None
        }
    }
}

/// Returns the object as a later request reads it: an empty list in a field that is always written is stored
/// as `null`.
fn stored(resource: &Resource, object: &Object) -> Object {
    let mut text = Vec::new();
    encode(&resource.table.message, object, &mut text);
    decode(&resource.table.message, &text).expect("a stored object is an object").object
}

fn owned(object: &Object, manager: &str) -> FieldSet<'static> {
    let managed = Managed::stored(object);
    let entry = managed.entries().iter().find(|entry| entry.manager.name == manager);
    entry.map(|entry| entry.set().into_owned().into_owned()).unwrap_or_default()
}

fn object_text(object: &Object) -> String {
    String::from_utf8_lossy(&text(&object.clone().into())).into_owned()
}
