//! Tests of merging and removing, by kind of type.

use bytes::Bytes;

use super::*;
use crate::apply::check::check;
use testkit::Random;
use types::schema::builtin;
use types::schema::generate;
use values::json::write;
use values::naming::KUBERNETES;
use values::testing::object;

fn text(object: Object) -> String {
    let mut out = Vec::new();
    write(&object.into(), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_configuration_is_merged_into_an_object() {
    for (message, live, config, want) in [
        (
            "core.v1.ConfigMap",
            r#"{"data":{"a":"1","b":"2"}}"#,
            r#"{"data":{"b":"3","c":"4"}}"#,
            r#"{"data":{"a":"1","b":"3","c":"4"}}"#,
        ),
        ("core.v1.ConfigMap", r#"{"data":{"a":"1"}}"#, r#"{"data":{}}"#, r#"{"data":{"a":"1"}}"#),
        ("core.v1.ConfigMap", r#"{"data":{"a":"1"}}"#, r#"{"data":null}"#, r#"{"data":{"a":"1"}}"#),
        ("core.v1.ConfigMap", r#"{"data":{"a":"1"}}"#, r#"{"data":{"a":null}}"#, r#"{"data":{"a":null}}"#),
        // Atomic values are replaced as a whole.
        (
            "core.v1.PodSpec",
            r#"{"nodeSelector":{"a":"1"}}"#,
            r#"{"nodeSelector":{"b":"2"}}"#,
            r#"{"nodeSelector":{"b":"2"}}"#,
        ),
        (
            "core.v1.PodSpec",
            r#"{"tolerations":[{"key":"a"}]}"#,
            r#"{"tolerations":[]}"#,
            r#"{"tolerations":[]}"#,
        ),
        // Keyed elements are merged, even if a key has its default value.
        (
            "core.v1.Container",
            r#"{"ports":[{"containerPort":80,"protocol":"TCP","name":"http"}]}"#,
            r#"{"ports":[{"containerPort":80,"hostPort":8080},{"containerPort":80,"protocol":"UDP"}]}"#,
            r#"{"ports":[{"containerPort":80,"protocol":"TCP","name":"http","hostPort":8080},{"containerPort":80,"protocol":"UDP"}]}"#,
        ),
    ] {
        let message = builtin::message(&KUBERNETES, &format!("api.{message}")).unwrap();
        let got = merge(message, &object(live), &object(config)).unwrap();
        assert_eq!(text(got), want, "{live} + {config}");
    }
}

#[test]
fn merged_lists_follow_the_order_of_the_configuration() {
    let message = builtin::message(&KUBERNETES, "apimachinery.pkg.apis.meta.v1.ObjectMeta").unwrap();
    let list = |names: &str| {
        let names: Vec<String> = names.chars().map(|name| format!("\"{name}\"")).collect();
        object(&format!("{{\"finalizers\":[{}]}}", names.join(",")))
    };
    for (live, config, want) in [
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("ab", "ab", "ab"),
        ("ab", "ba", "ba"),
        ("abc", "ca", "bca"),
        ("abc", "b", "abc"),
        ("abc", "bd", "abcd"),
        ("ac", "abc", "abc"),
        ("xaybz", "ba", "xybza"),
        ("abcd", "dxa", "bcdxa"),
        ("ab", "xy", "abxy"),
        // An element that occurs more than once in the object occurs once in the result, at its position in
        // the configuration.
        ("aab", "a", "ab"),
        ("aab", "c", "aabc"),
    ] {
        let merged = merge(message, &list(live), &list(config)).unwrap();
        let items = merged.get("finalizers").and_then(Value::as_array).unwrap_or_default();
        let got: String = items.iter().filter_map(Value::as_str).collect();
        assert_eq!(got, want, "{live} + {config}");
        if !live.contains("aa") {
            let again = merge(message, &merged, &list(config)).unwrap();
            assert_eq!(again, merged, "{live} + {config}, twice");
        }
    }
}

#[test]
fn live_elements_without_a_key_are_an_error_with_their_path() {
    let message = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
    let live = object(r#"{"spec":{"containers":[null]}}"#);
    let config = object(r#"{"spec":{"containers":[{"name":"a"}]}}"#);
    let error = merge(message, &live, &config).unwrap_err().to_string();
    assert_eq!(error, ".spec.containers: element 0: associative list with keys may not have a null element");
}

#[test]
fn removing_a_field_removes_everything_below_it() {
    let message = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
    let pod = r#"{"metadata":{"labels":{"a":"1","b":"2"}},"spec":{"nodeSelector":{"x":"y"},"containers":[{"name":"a","image":"i"},{"name":"b"}]}}"#;
    for (fields, want) in [
        ("{}", pod.to_owned()),
        (r#"{"f:metadata":{"f:labels":{"f:a":{}}}}"#, pod.replace(r#""a":"1","#, "")),
        // Maps that become empty are null. An atomic value is null if a part of the value was removed.
        (r#"{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}}}"#, pod.replace(r#"{"a":"1","b":"2"}"#, "null")),
        (r#"{"f:spec":{"f:nodeSelector":{"f:x":{}}}}"#, pod.replace(r#"{"x":"y"}"#, "null")),
        (r#"{"f:spec":{"f:containers":{"k:{\"name\":\"b\"}":{}}}}"#, pod.replace(r#",{"name":"b"}"#, "")),
        (
            r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:image":{}}}}}"#,
            pod.replace(r#","image":"i""#, ""),
        ),
        (r#"{"f:spec":{}}"#, r#"{"metadata":{"labels":{"a":"1","b":"2"}}}"#.to_owned()),
    ] {
        let got = remove(message, &object(pod), &FieldSet::parse(fields).unwrap());
        assert_eq!(text(got), want, "{fields}");
    }
}

/// Merges without shortcuts by rebuilding everything.
fn plainly(of: OwnershipType, live: Option<&Value>, config: &Value) -> Result<Value, TypeError> {
    let Some(live) = live else { return Ok(config.clone()) };
    let empty = Object::new();
    match of.for_value(config) {
        OwnershipType::Struct { atomic: false, .. }
        | OwnershipType::Map { atomic: false, .. }
        | OwnershipType::Deduced => {
            let (live, over) = (live.as_object().unwrap_or(&empty), config.as_object().unwrap_or(&empty));
            if live.is_empty() && over.is_empty() {
                return Ok(config.clone());
            }
            let mut made = Object::new();
            for (name, value) in live.iter() {
                let below = of.step(&Element::field(name));
                made.push(
                    name.to_owned(),
                    match (over.get(name), below) {
                        (None, _) => value.clone(),
                        (Some(config), None) => config.clone(),
                        (Some(config), Some(below)) => plainly(below, Some(value), config)
                            .map_err(|error| error.within(Element::field(name)))?,
                    },
                );
            }
            for (name, value) in over.iter().filter(|(name, _)| !live.contains(name)) {
                made.push(name.to_owned(), value.clone());
            }
            Ok(made.into())
        }
        OwnershipType::List { item, list } if *list != ListType::Atomic => {
            let (live, over) = (live.as_array().unwrap_or_default(), config.as_array().unwrap_or_default());
            if live.is_empty() && over.is_empty() {
                return Ok(config.clone());
            }
            let (live, over) = (indexed(item, list, live)?, indexed(item, list, over)?);
            let made = plan(&live, &over).into_iter().map(|source| match source {
                Source::Live(at) => Ok(live[at].1.clone()),
                Source::Config(at) => Ok(over[at].1.clone()),
                Source::Both { live: at, config } => {
                    let (element, value) = &over[config];
                    plainly(OwnershipType::of_kind(item), Some(live[at].1), value)
                        .map_err(|error| error.within(element.clone()))
                }
            });
            Ok(Value::Array(made.collect::<Result<_, _>>()?))
        }
        _ => Ok(config.clone()),
    }
}

#[test]
fn merging_in_place_equals_rebuilding() {
    let (mut random, mut laid, mut failed, mut shared) = (Random(5), 0, 0, 0);
    // The object itself is never atomic.
    for &message in builtin::messages(&KUBERNETES).iter().filter(|message| !message.atomic) {
        for at in 0..24 {
            let live = generate::object(&mut random, message, 0);
            let (mut config, mut live) = (Value::Object(live.clone()), Value::Object(live));
            if at % 3 == 0 {
                config = generate::object(&mut random, message, 0).into();
            }
            generate::thin(&mut random, &mut config);
            for _ in 0..at % 4 {
                generate::disturb(&mut random, &mut config);
                generate::disturb(&mut random, &mut live);
            }
            let (Value::Object(live), Value::Object(config)) = (live, config) else { continue };
            if !check(message, &config).is_empty() {
                continue;
            }
            let want = plainly(
                OwnershipType::of_message(message),
                Some(&live.clone().into()),
                &config.clone().into(),
            );
            laid += 1;
            failed += usize::from(want.is_err());
            let got = merge(message, &live, &config).map(Value::Object);
            assert_eq!(got, want, "{}: {live:?} and {config:?}", message.name);
            // Merges an object with shared parts. Such parts stay shared unless the configuration changes
            // them.
            let mut settled = live.clone();
            for (_, value) in settled.members_mut() {
                if let Value::Object(part) = value {
                    part.settle(Bytes::new());
                }
            }
            let got = merge(message, &settled, &config);
            for (name, value) in got.iter().flat_map(Object::iter) {
                let (Some(Value::Object(before)), Value::Object(after)) = (settled.get(name), value) else {
                    continue;
                };
                shared += usize::from(after.is_one_with(before));
                assert!(after.is_one_with(before) || config.contains(name), "{name} of {}", message.name);
            }
            assert_eq!(got.map(Value::Object), want, "{}: {live:?} and {config:?}, settled", message.name);
        }
    }
    assert!(
        laid > 5_000 && failed > 0 && shared > 1_000,
        "{laid} laid over, {failed} failed, {shared} shared"
    );
}
