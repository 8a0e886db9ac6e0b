//! Ownership after updates. Stories with requests are told in `tests/it/scenario`; here is what needs no server.

use super::*;
use crate::json::parse;
use crate::naming::KUBERNETES;
use crate::schema::registry::Registry;
use crate::strategy::Endpoint;

fn object(text: &str) -> Object {
    parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
}

/// Who owns what: `name operation subresource fields`, one line each.
fn owners(object: &Object) -> Vec<String> {
    let managed = Managed::stored(object).into_value().unwrap_or_default();
    let entries = managed.as_array().unwrap_or_default().iter();
    entries
        .map(|entry| {
            let text = |name: &str| entry.str_at(&[name]).to_owned();
            format!("{} {} {} {}", text("manager"), text("operation"), text("time"), text("fieldsV1"))
        })
        .collect()
}

#[test]
fn a_writer_owns_what_it_changes_and_others_lose_it() {
    let registry = Registry::new(&KUBERNETES);
    let resource = registry.resource("", "v1", "configmaps").unwrap();
    let versions = Versions::of(&registry, resource);
    let reset = Reset::of(resource, Endpoint::Main);
    let at = |manager: &'static str, now: &'static str| Writer { manager, subresource: "", now };
    let mut first =
        object(r#"{"kind":"ConfigMap","metadata":{"name":"x","labels":{"l":"1"}},"data":{"a":"1","b":"2"}}"#);
    created(&versions, &at("one", "t1"), &reset, &mut first);
    assert_eq!(
        owners(&first),
        [
            r#"one Update t1 {"f:data":{".":{},"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}"#
        ]
    );

    let mut second =
        object(r#"{"kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1","b":"3","c":"4"}}"#);
    updated(&versions, &at("two", "t2"), &reset, &first, &mut second);
    assert_eq!(
        owners(&second),
        [r#"one Update t1 {"f:data":{".":{},"f:a":{}}}"#, r#"two Update t2 {"f:data":{"f:b":{},"f:c":{}}}"#]
    );

    // Removing alone changes sets, but no time, and a manager without fields goes.
    let mut third = object(r#"{"kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}"#);
    updated(&versions, &at("one", "t3"), &reset, &second, &mut third);
    assert_eq!(owners(&third), [r#"one Update t1 {"f:data":{".":{},"f:a":{}}}"#]);

    // A manager of a version that is gone is dropped by the next change.
    let mut odd = third.clone();
    let entries = odd.get_mut("metadata").and_then(|value| value.as_object_mut()).unwrap();
    let list = entries.get_mut("managedFields").and_then(Value::as_array_mut).unwrap();
    let mut gone = list[0].as_object().unwrap().clone();
    gone.insert("manager", "gone".into());
    gone.insert("apiVersion", "v0".into());
    list.push(gone.into());
    let mut fourth = object(r#"{"kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"2"}}"#);
    updated(&versions, &at("one", "t4"), &reset, &odd, &mut fourth);
    assert_eq!(owners(&fourth), [r#"one Update t4 {"f:data":{".":{},"f:a":{}}}"#]);
}

#[test]
fn nothing_is_tracked_of_an_object_without_managed_fields() {
    let registry = Registry::new(&KUBERNETES);
    let resource = registry.resource("", "v1", "configmaps").unwrap();
    let versions = Versions::of(&registry, resource);
    let reset = Reset::of(resource, Endpoint::Main);
    let writer = Writer { manager: "m", subresource: "", now: "t" };
    let live = object(r#"{"metadata":{"name":"x"}}"#);
    let mut new = object(r#"{"metadata":{"name":"x"},"data":{"a":"1"}}"#);
    updated(&versions, &writer, &reset, &live, &mut new);
    assert!(owners(&new).is_empty());
}
