//! Tests of both forms of values. The inputs are small hand-made values and, if available, a whole store that
//! the reference server wrote.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::Revision;

use super::super::keys::{KeyMeaning, Keys};
use super::*;
use objects::representation::stamped;
use values::naming::KUBERNETES;

fn values() -> Values {
    Values::new(Registry::new(&KUBERNETES), &KUBERNETES)
}

fn keys() -> Keys {
    Keys::new(&Registry::new(&KUBERNETES), "/registry")
}

fn builtin(key: &str) -> Arc<Resource> {
    match keys().place(key.as_bytes()) {
        KeyMeaning::Builtin(resource, _) => resource,
        other => panic!("{key} is {other:?}"),
    }
}

/// Returns a config map in the form in which kube-apiserver stores it. If `unknown` is true, the object and
/// its metadata have an unknown field each.
fn config_map(data: &str, unknown: bool) -> Vec<u8> {
    let metadata = |out: &mut Vec<u8>| {
        // name, generateName, namespace, selfLink, uid, resourceVersion, generation, creationTimestamp
        for (number, text) in [(1, "a"), (2, ""), (3, "default"), (4, ""), (5, ""), (6, "")] {
            protobuf::write_bytes(number, text.as_bytes(), out);
        }
        out.extend_from_slice(b"\x38\x00\x42\x00");
        if unknown {
            protobuf::write_bytes(77, b"later", out);
        }
        Ok::<_, EncodeError>(())
    };
    let mut out = Vec::new();
    envelope::wrap("v1", "ConfigMap", &mut out, |out| {
        protobuf::write_delimited(1, out, metadata)?;
        protobuf::write_delimited(2, out, |out| {
            protobuf::write_bytes(1, b"k", out);
            protobuf::write_bytes(2, data.as_bytes(), out);
            Ok::<_, EncodeError>(())
        })?;
        if unknown {
            protobuf::write_bytes(99, b"much later", out);
        }
        Ok::<_, EncodeError>(())
    })
    .unwrap();
    out
}

#[test]
fn unknown_fields_of_a_later_release_survive_a_write() {
    let resource = builtin("/registry/configmaps/default/a");
    let values = values();
    for unknown in [false, true] {
        let old = config_map("old", unknown);
        let payload = values.decode(&resource, &old).unwrap();
        assert_eq!(has_unknown(&payload.attributes), unknown);
        let shown = String::from_utf8(stamped(&payload, Revision::new(7)).to_vec()).unwrap();
        let want = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":"7"},"data":{"k":"old"}}"#;
        assert_eq!(shown, want);
        let text = String::from_utf8(payload.value.to_vec()).unwrap().replace("old", "new");
        let new = Payload { value: text.into_bytes().into(), ..payload };
        let written = values.encode(&resource, &new, Some(&old)).unwrap();
        assert_eq!(&written[..], config_map("new", unknown), "unknown fields: {unknown}");
    }
}

#[test]
fn stored_values_of_another_type_are_errors() {
    let resource = builtin("/registry/configmaps/default/a");
    let other = config_map("x", false);
    let pod = builtin("/registry/pods/default/a");
    for (resource, value) in [
        (&resource, &b""[..]),
        (&resource, b"k8s:enc:aescbc:v1:key:..."),
        (&resource, b"k8s\0"),
        (&resource, b"k8s\0\xff"),
        (&resource, b"{"),
        (&resource, b"[]"),
        (&pod, &other),
        (&resource, &other[..other.len() / 2]),
    ] {
        assert!(values().decode(resource, value).is_err(), "{value:?}");
    }
    for value in [&b"{}"[..], b"", b"[1]", b"null"] {
        assert!(values().decode_custom(None, value).is_err(), "{value:?}");
    }
}

#[test]
fn custom_objects_are_stored_sorted_and_served_with_metadata_first() {
    let value = br#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"a","uid":"u"},"spec":{"a":1.50,"z":[]}}
"#;
    let payload = values().decode_custom(None, value).unwrap();
    let shown = String::from_utf8(stamped(&payload, Revision::new(42)).to_vec()).unwrap();
    let want = r#"{"kind":"Thing","apiVersion":"g.example/v1","metadata":{"resourceVersion":"42","name":"a","uid":"u"},"spec":{"a":1.5,"z":[]}}"#;
    assert_eq!(shown, want);
    let back = values().encode_custom(&payload).unwrap();
    assert_eq!(String::from_utf8_lossy(&back), String::from_utf8_lossy(value).replace("1.50", "1.5"));
}

fn sorted(mut value: Value) -> Value {
    value.sort_names();
    value
}

/// Compares a store that kube-apiserver wrote, with one key per line, with the responses of kube-apiserver
/// for its objects.
#[test]
fn objects_of_a_kube_apiserver_store_are_read_as_served_and_written_back_unchanged() {
    let Some(path) = testkit::reference("etcd/objects.jsonl") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let (keys, values) = (keys(), values());
    let (mut objects, mut wrong, mut differs) = (0, Vec::new(), Vec::new());
    for line in text.lines() {
        let line = json::parse(line.as_bytes()).unwrap();
        let key = line.str_at(&["key"]);
        let value = match line.get("base64") {
            Some(text) => STANDARD.decode(text.as_str().unwrap()).unwrap(),
            None => line.str_at(&["text"]).as_bytes().to_vec(),
        };
        let Some(served) = line.get("served") else {
            assert!(matches!(keys.place(key.as_bytes()), KeyMeaning::Other), "{key}");
            continue;
        };
        objects += 1;
        let revision = line.get("mod_revision").and_then(Value::as_i64).unwrap().unsigned_abs();
        let place = keys.place(key.as_bytes());
        let (payload, back) = match &place {
            KeyMeaning::Builtin(resource, _) => {
                let payload =
                    values.decode(resource, &value).unwrap_or_else(|error| panic!("{key}: {error}"));
                assert!(!has_unknown(&payload.attributes), "{key}");
                let back = values.encode(resource, &payload, None).unwrap();
                (payload, back)
            }
            KeyMeaning::Custom(_) => {
                let payload = values.decode_custom(None, &value).unwrap();
                let back = values.encode_custom(&payload).unwrap();
                (payload, back)
            }
            KeyMeaning::Other => panic!("{key} is an object"),
        };
        let shown = json::parse(&stamped(&payload, Revision::new(revision))).unwrap();
        let (ours, theirs) = (sorted(shown), sorted(served.clone()));
        if ours != theirs {
            let show = |value: &Value| {
                let mut out = Vec::new();
                json::write(value, &mut out);
                String::from_utf8_lossy(&out).into_owned()
            };
            wrong.push(format!("{key} reads\n  {}\n  {}", show(&ours), show(&theirs)));
        }
        // Reading a written value yields the same object, and writing that object yields the same value.
        let (again, twice) = match &place {
            KeyMeaning::Builtin(resource, _) => {
                let again = values.decode(resource, &back).unwrap();
                let twice = values.encode(resource, &again, None).unwrap();
                (again, twice)
            }
            _ => {
                let again = values.decode_custom(None, &back).unwrap();
                let twice = values.encode_custom(&again).unwrap();
                (again, twice)
            }
        };
        if again.value != payload.value || again.attributes != payload.attributes || twice != back {
            wrong.push(format!("{key} changes when it is written again"));
        }
        if back != value {
            differs.push(key.to_owned());
        }
    }
    // For these types the reference server would also write different bytes: it adds defaults when it reads a
    // value, and compacts raw JSON inside an object. This server also adds the defaults and compacts the
    // JSON.
    let with_defaults =
        ["/registry/jobs/", "/registry/persistentvolumeclaims/", "/registry/controllerrevisions/"];
    differs.retain(|key| !with_defaults.iter().any(|start| key.starts_with(start)));
    wrong.extend(differs.into_iter().map(|key| format!("{key} is written otherwise")));
    let shown: Vec<String> = wrong.iter().take(6).map(|text| text.chars().take(6000).collect()).collect();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), shown.join("\n"));
    assert!(objects > 400, "{objects}");
}
