//! Tests of ownership after updates that need no server. Scenarios with requests are in `tests/it/scenario`.

use super::*;
use crate::apply::fixture::{Fixture, writer};
use testkit::Random;
use types::schema::decode::decode;
use types::schema::table::Message;
use values::testing::object;

/// Returns the entries of an object as lines of `name operation subresource fields`.
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

/// Returns an entry of the managed fields of a request, with the manager `sent`.
fn sent(fields: &str) -> String {
    format!(
        r#"{{"manager":"sent","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
    )
}

/// Returns a config map with these additional members of its metadata.
fn config_map(metadata: &str) -> Object {
    let fixture = Fixture::new("", "configmaps");
    let text = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"x"{metadata}}},"data":{{"a":"1"}}}}"#
    );
    decode(fixture.message(), text.as_bytes()).unwrap().object
}

#[test]
fn malformed_field_sets_of_a_request_are_ignored() {
    let fixture = Fixture::new("", "configmaps");
    let (versions, reset) = (fixture.versions(), fixture.reset());
    let mut live = config_map("");
    created(&versions, &writer("one", "t1"), &reset, &mut live);
    let before = owners(&live);
    for fields in ["[]", "\"x\"", "5", "true", r#"{"x":{}}"#, r#"{"f:a":[]}"#] {
        let mut new = config_map(&format!(r#","managedFields":[{}]"#, sent(fields)));
        updated(&versions, &writer("one", "t2"), &reset, &live, &mut new);
        assert_eq!(owners(&new), before, "{fields}");
    }
    let mut new = config_map(r#","managedFields":[{}]"#);
    updated(&versions, &writer("one", "t2"), &reset, &live, &mut new);
    assert_eq!(owners(&new), [] as [String; 0], "a reset");
}

#[test]
fn the_name_of_a_new_object_has_no_owner() {
    let fixture = Fixture::new("", "configmaps");
    let (versions, reset) = (fixture.versions(), fixture.reset());
    for (fields, want) in [
        (
            r#"{"f:metadata":{"f:name":{}},"f:data":{"f:b":{}}}"#,
            vec![r#"sent Update  {"f:data":{"f:b":{}}}"#],
        ),
        (r#"{"f:metadata":{".":{},"f:name":{},"f:uid":{}},"f:kind":{}}"#, vec![]),
    ] {
        let mut new = config_map(&format!(r#","managedFields":[{}]"#, sent(fields)));
        created(&versions, &writer("one", "t1"), &reset, &mut new);
        let mut all = want.clone();
        all.push(r#"one Update t1 {"f:data":{".":{},"f:a":{}}}"#);
        assert_eq!(owners(&new), all, "{fields}");
    }
    let mut new = config_map(&format!(r#","managedFields":[{}]"#, sent(r#"{"f:metadata":{"f:name":{}}}"#)));
    created(&versions, &writer("sent", "t1"), &reset, &mut new);
    assert_eq!(owners(&new), [r#"sent Update t1 {"f:data":{".":{},"f:a":{}}}"#]);
}

#[test]
fn the_creator_owns_an_empty_list_that_is_always_written() {
    for (group, plural, text, want) in [
        ("rbac.authorization.k8s.io", "roles", r#"{"rules":[]}"#, r#"one Update t1 {"f:rules":{}}"#),
        ("", "limitranges", r#"{"spec":{"limits":[]}}"#, r#"one Update t1 {"f:spec":{"f:limits":{}}}"#),
        (
            "discovery.k8s.io",
            "endpointslices",
            r#"{"addressType":"IPv4","endpoints":[],"ports":[]}"#,
            r#"one Update t1 {"f:addressType":{},"f:endpoints":{},"f:ports":{}}"#,
        ),
        (
            "",
            "services",
            r#"{"spec":{"type":"ClusterIP","ports":[]}}"#,
            r#"one Update t1 {"f:spec":{"f:type":{}}}"#,
        ),
    ] {
        let fixture = Fixture::new(group, plural);
        let mut new = decode(fixture.message(), text.as_bytes()).unwrap().object;
        created(&fixture.versions(), &writer("one", "t1"), &fixture.reset(), &mut new);
        assert_eq!(owners(&new), [want], "{text}");
    }
}

#[test]
fn a_writer_owns_what_it_changes_and_others_lose_it() {
    let fixture = Fixture::new("", "configmaps");
    let (versions, reset) = (fixture.versions(), fixture.reset());
    let mut first =
        object(r#"{"kind":"ConfigMap","metadata":{"name":"x","labels":{"l":"1"}},"data":{"a":"1","b":"2"}}"#);
    created(&versions, &writer("one", "t1"), &reset, &mut first);
    assert_eq!(
        owners(&first),
        [
            r#"one Update t1 {"f:data":{".":{},"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}"#
        ]
    );

    let mut second =
        object(r#"{"kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1","b":"3","c":"4"}}"#);
    updated(&versions, &writer("two", "t2"), &reset, &first, &mut second);
    assert_eq!(
        owners(&second),
        [r#"one Update t1 {"f:data":{".":{},"f:a":{}}}"#, r#"two Update t2 {"f:data":{"f:b":{},"f:c":{}}}"#]
    );

    // The managers of removed fields lose these fields, but keep the time of their last write. A manager
    // without fields is dropped.
    let mut third = object(r#"{"kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}"#);
    updated(&versions, &writer("one", "t3"), &reset, &second, &mut third);
    assert_eq!(owners(&third), [r#"one Update t1 {"f:data":{".":{},"f:a":{}}}"#]);

    // The next change drops a manager whose version is no longer served.
    let mut odd = third.clone();
    let entries = odd.get_mut("metadata").and_then(|value| value.as_object_mut()).unwrap();
    let list = entries.get_mut("managedFields").and_then(Value::as_array_mut).unwrap();
    let mut gone = list[0].as_object().unwrap().clone();
    gone.insert("manager", "gone".into());
    gone.insert("apiVersion", "v0".into());
    list.push(gone.into());
    let mut fourth = object(r#"{"kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"2"}}"#);
    updated(&versions, &writer("one", "t4"), &reset, &odd, &mut fourth);
    assert_eq!(owners(&fourth), [r#"one Update t4 {"f:data":{".":{},"f:a":{}}}"#]);
}

#[test]
fn an_update_of_an_object_without_managed_fields_does_not_track_owners() {
    let fixture = Fixture::new("", "configmaps");
    let (versions, reset) = (fixture.versions(), fixture.reset());
    let live = object(r#"{"metadata":{"name":"x"}}"#);
    let mut new = object(r#"{"metadata":{"name":"x"},"data":{"a":"1"}}"#);
    updated(&versions, &writer("m", "t"), &reset, &live, &mut new);
    assert!(owners(&new).is_empty());
}

/// A pod with random labels and containers whose values change.
#[derive(Clone, Default)]
struct Drawn {
    labels: [u8; 3],
    containers: [u8; 3],
    finalizers: [u8; 2],
}

impl Drawn {
    fn object(&self, message: &Message) -> Object {
        let given = |list: &[u8], write: &dyn Fn(usize, u8) -> String| -> String {
            let given = list.iter().enumerate().filter(|(_, value)| **value > 0);
            given.map(|(at, value)| write(at, *value)).collect::<Vec<_>>().join(",")
        };
        let labels = given(&self.labels, &|at, value| format!(r#""l<{at}":"{value}""#));
        let containers = given(&self.containers, &|at, value| {
            let port = 80 + u32::from(value / 2);
            format!(
                r#"{{"name":"c{at}","image":"i{value}","command":["{value}"],"ports":[{{"containerPort":{port},"protocol":"TCP"}}]}}"#
            )
        });
        let finalizers = given(&self.finalizers, &|at, _| format!(r#""f/{at}""#));
        let text = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"x","labels":{{{labels}}},"finalizers":[{finalizers}]}},"spec":{{"containers":[{containers}]}}}}"#
        );
        decode(message, text.as_bytes()).unwrap().object
    }
}

#[test]
fn ownership_computed_on_texts_equals_ownership_computed_on_field_sets() {
    let fixture = Fixture::new("", "pods");
    let (versions, reset) = (fixture.versions(), fixture.reset());
    let mut random = Random(42);
    let mut renewed = 0;
    for _ in 0..300 {
        let mut drawn = Drawn { labels: [1, 1, 0], containers: [1, 1, 0], finalizers: [1, 0] };
        let mut live = drawn.object(fixture.message());
        created(&versions, &writer("m0", "t0"), &reset, &mut live);
        for at in 1..12 {
            for _ in 0..random.index(3) {
                let value = random.index(4) as u8;
                match random.index(5) {
                    0 | 1 => drawn.labels[random.index(3)] = value,
                    2 | 3 => drawn.containers[random.index(3)] = value,
                    _ => drawn.finalizers[random.index(2)] = value,
                }
            }
            let (manager, now) = (format!("m{}", random.index(3)), format!("t{at}"));
            let writer = writer(&manager, &now);
            let mut new = drawn.object(fixture.message());
            let seen = follow(&versions, &writer, &reset, Managed::stored(&live), &live, &new);
            let mut sets = Managed::stored(&live);
            for entry in sets.entries_mut() {
                entry.set_fields(entry.set().into_owned());
            }
            let plainly = follow(&versions, &writer, &reset, sets, &live, &new);
            assert_eq!(seen, plainly);
            {
                let stored = Managed::stored(&live);
                let manager = writer.manager(ManagerOperation::Update, "v1");
                let changes = TrackedChanges::new(versions, &reset, &live, &new);
                renewed += usize::from(owns_all_of_it(&stored, &manager, &changes));
            }
            put_managed_fields(&mut new, seen);
            live = new;
        }
    }
    assert!(renewed > 100, "{renewed}");
}
