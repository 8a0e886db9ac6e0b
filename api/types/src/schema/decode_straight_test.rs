//! Tests that the fast decoder returns an object for all usual documents, and that this object equals the
//! result of the general decoder.

use super::*;
use crate::schema::conform::{conform, conform_changes};
use crate::schema::decode::decode_any;
use crate::schema::decoded::Decoded;
use crate::schema::encode::encode;
use crate::schema::generate;
use testkit::Random;
use values::json;
use values::naming::KUBERNETES;
use values::testing::object;

fn written(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    json::write(value, &mut out);
    out
}

/// Shuffles the members of all objects in a value.
fn shuffle(random: &mut Random, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| shuffle(random, item)),
        Value::Object(object) => {
            let members = object.members_mut();
            for at in 1..members.len() {
                members.swap(at, random.index(at + 1));
            }
            members.iter_mut().for_each(|(_, value)| shuffle(random, value));
        }
        _ => {}
    }
}

fn agree(message: &Message, text: &[u8], author: Author) -> bool {
    let Some(object) = straight(message, text, author) else { return false };
    let shown = String::from_utf8_lossy(text);
    let decoded =
        decode_any(message, text).unwrap_or_else(|error| panic!("{}: {error}\n{shown}", message.name));
    assert_eq!(Decoded { object, strict: Vec::new() }, decoded, "{}: {shown}", message.name);
    true
}

#[test]
fn the_straight_decoder_reads_every_type_like_the_general_decoder() {
    let (mut answered, mut attempts) = (0, 0);
    for message in builtin::messages(&KUBERNETES) {
        for seed in 0..12 {
            let mut random = Random(seed);
            let object = generate::object(&mut random, message, 0);
            let mut text = Vec::new();
            encode(message, &object, &mut text);
            attempts += 1;
            answered += usize::from(agree(message, &text, Author::Client));
            let mut value = json::parse(&text).unwrap();
            shuffle(&mut random, &mut value);
            agree(message, &written(&value), Author::Client);
            // The stored text is canonical: decoding it gives the same tree.
            let decoded = decode_any(message, &text).unwrap();
            let mut canonical = Vec::new();
            encode(message, &decoded.object, &mut canonical);
            agree(message, &canonical, Author::Server);
            // For a damaged text, the fast decoder returns the same object as the general decoder, or `None`.
            for _ in 0..8 {
                let mut damaged = text.clone();
                let (at, with) = (random.index(damaged.len()), random.index(damaged.len()));
                match random.index(4) {
                    0 => damaged[at] = b" \"\\{}[],:0a\n"[random.index(12)],
                    1 => drop(damaged.remove(at)),
                    2 => damaged.insert(at, damaged[with]),
                    _ => damaged.truncate(at),
                }
                agree(message, &damaged, Author::Client);
            }
        }
    }
    assert!(answered * 10 > attempts * 9, "{answered} of {attempts}");
}

#[test]
fn a_settled_member_equals_the_text_that_it_was_decoded_from() {
    let (mut shared, mut apart) = (0, 0);
    for message in builtin::messages(&KUBERNETES) {
        for seed in 0..12 {
            let mut random = Random(seed);
            let text = |object: &Object| {
                let mut text = Vec::new();
                encode(message, object, &mut text);
                Bytes::from(text)
            };
            let stored =
                text(&decode_any(message, &text(&generate::object(&mut random, message, 0))).unwrap().object);
            let Some(own) = straight(message, &stored, Author::Server) else { continue };
            assert_eq!(settled(message, &stored, None), Some(own.clone()));
            // `beside` differs in some members.
            let other =
                decode_any(message, &text(&generate::object(&mut random, message, 0))).unwrap().object;
            let mut beside = own.clone();
            for (name, value) in other.iter().filter(|_| random.index(2) == 0) {
                if beside.contains(name) {
                    beside.insert(name.to_owned(), value.clone());
                }
            }
            let before = beside.clone();
            let read = settled(message, &stored, Some(&mut beside)).unwrap();
            assert_eq!((&read, &beside), (&own, &before), "{}", message.name);
            assert_eq!((text(&read), text(&beside)), (stored.clone(), text(&before)), "{}", message.name);
            for (name, part) in read.iter() {
                let Some(part) = part.as_object().filter(|part| part.settled_text().is_some()) else {
                    continue;
                };
                let is_one =
                    beside.get(name).and_then(Value::as_object).is_some_and(|other| part.is_one_with(other));
                assert_eq!(is_one, own.get(name) == before.get(name), "{} {name}", message.name);
                shared += usize::from(is_one);
                apart += usize::from(!is_one);
            }
            // A patch of other members gives the same result as without settled parts.
            let known = settled(message, &stored, None).unwrap();
            let mut patched = known.clone();
            let mut plain = own;
            for (name, value) in other.into_members() {
                if random.index(3) == 0 {
                    patched.insert(name.clone(), value.clone());
                    plain.insert(name, value);
                } else if random.index(4) == 0 {
                    patched.remove(&name);
                    plain.remove(&name);
                }
            }
            shuffle_members(&mut random, &mut patched, &mut plain);
            let conformed = conform_changes(message, patched.into(), &known).unwrap();
            assert_eq!(conformed, conform(message, plain.into()).unwrap(), "{}", message.name);
        }
    }
    assert!(shared > 100 && apart > 100, "{shared} {apart}");
}

#[test]
fn decoding_with_a_known_object_gives_the_same_result_and_shares_members() {
    let (mut shared, mut apart, mut field_sets) = (0, 0, 0);
    for message in builtin::messages(&KUBERNETES) {
        for seed in 0..12 {
            let mut random = Random(seed);
            let text = |object: &Object| {
                let mut text = Vec::new();
                encode(message, object, &mut text);
                Bytes::from(text)
            };
            let mut generated = || {
                let object = generate::object(&mut random, message, 0);
                decode_any(message, &text(&object)).unwrap().object
            };
            let (stored, other) = (text(&generated()), generated());
            let Some(old) = settled(message, &stored, None) else { continue };
            // The text of a client that read the object and then changed a part of it.
            let Some(mut changed) = straight(message, &stored, Author::Server) else { continue };
            for (name, value) in other.iter().filter(|_| random.index(3) == 0) {
                changed.insert(name.to_owned(), value.clone());
            }
            let given = text(&changed);
            let read = straight_with_known(message, &given, &old);
            assert_eq!(read, straight(message, &given, Author::Client), "{}", message.name);
            let Some(read) = read else { continue };
            assert_eq!(text(&read), given, "{}", message.name);
            for (name, part) in old.iter().filter_map(|(name, part)| Some((name, part.as_object()?))) {
                let Some(other) = read.get(name).and_then(Value::as_object) else { continue };
                assert_eq!(
                    other.is_one_with(part),
                    part.is_settled() && other == part,
                    "{} {name}",
                    message.name
                );
                shared += usize::from(other.is_one_with(part));
                apart += usize::from(!other.is_one_with(part));
            }
            field_sets += super::field_sets(&old).len();
            // Texts that begin like the known text but end differently.
            for damaged in [&given[..given.len() - 1], &[&given[..], b"}"].concat()] {
                assert_eq!(
                    straight_with_known(message, damaged, &old),
                    straight(message, damaged, Author::Client)
                );
            }
        }
    }
    assert!(shared > 100 && apart > 100 && field_sets > 100, "{shared} {apart} {field_sets}");
}

/// Shuffles the members of both objects in the same way.
fn shuffle_members(random: &mut Random, a: &mut Object, b: &mut Object) {
    let (a, b) = (a.members_mut(), b.members_mut());
    for at in 1..a.len() {
        let other = random.index(at + 1);
        a.swap(at, other);
        b.swap(at, other);
    }
}

#[test]
fn the_straight_decoder_leaves_unusual_documents_to_the_general_decoder() {
    let pod = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
    for (text, is_read) in [
        (r#"{}"#, true),
        ("{\"kind\":\"Pod\"}\n", true),
        (r#"{"spec":{"containers":[{"name":"a\n\u00e9","ports":[{"containerPort":80}]}]}}"#, true),
        (r#"{"metadata":{"creationTimestamp":null,"labels":{"b":"1","a":"2"}},"kind":"Pod"}"#, true),
        (r#"{"metadata":{"creationTimestamp":"2024-01-01T00:00:00.5Z"}}"#, true),
        (r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"1000m"}}}]}}"#, true),
        (r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}"#, true),
        (r#"{"metadata":{"managedFields":[]}}"#, false),
        (r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}]}}"#, false),
        (r#"{"metadata":{"managedFields":[{"fieldsV1":"{}"}]}}"#, false),
        (r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":1}}}]}}"#, true),
        (r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":0.5}}}]}}"#, false),
        (r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"x"}}}]}}"#, false),
        (r#"{"kind":"Pod","kind":"Pod"}"#, false),
        (r#"{"metadata":{"labels":{"a":"1","a":"2"}}}"#, false),
        (r#"{"kind":null,"kind":null}"#, false),
        (r#"{"sort":"Pod"}"#, false),
        (r#"{"kind": "Pod"}"#, false),
        (r#"{"kin\u0064":"Pod"}"#, false),
        ("{\"kind\":\"a\tb\"}", false),
        (r#"{"kind":"\ud800"}"#, false),
        (r#"{"kind":"\x"}"#, false),
        (r#"{"kind":1}"#, false),
        (r#"{"kind":"Pod",}"#, false),
        (r#"{"spec":{"containers":[{},]}}"#, false),
        (r#"{"metadata":{"labels":{"a":"1",}}}"#, false),
        (r#"{"kind":"Pod"}}"#, false),
        (r#"{"kind":"Pod""#, false),
        (r#"{"kind":"Pod"]"#, false),
        (r#"{"spec":{"priority":01}}"#, false),
        (r#"{"spec":{"priority":-0}}"#, false),
        (r#"{"spec":{"priority":+1}}"#, false),
        (r#"{"spec":{"priority":1e3}}"#, false),
        (r#"{"spec":{"priority":2147483648}}"#, false),
        (r#"{"spec":{"priority":-2147483648}}"#, true),
        (r#"{"spec":{"hostNetwork":"true"}}"#, false),
        ("null", false),
        ("[]", false),
        ("", false),
    ] {
        assert_eq!(agree(pod, text.as_bytes(), Author::Client), is_read, "{text}");
    }
    assert_eq!(straight(pod, b"{\"kind\":\"\xff\"}", Author::Client), None);
    let schema = builtin::message(&KUBERNETES, "api.apps.v1.ControllerRevision").unwrap();
    for levels in [60, 200, 100_000] {
        let deep = format!("{{\"data\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(agree(schema, deep.as_bytes(), Author::Client), levels == 60, "{levels}");
    }
    for bad in [r#"{"data":{"a":01}}"#, r#"{"data":{"a"}}"#, r#"{"data":[}}"#, r#"{"data":tru}"#] {
        assert!(!agree(schema, bad.as_bytes(), Author::Client), "{bad}");
    }
}

#[test]
fn equal_settled_members_are_shared_between_objects() {
    let message = pod();
    let mut old = object(r#"{"a":{"x":1},"b":{"y":[2]},"c":{"z":3},"d":4}"#);
    for (_, value) in old.iter_mut().filter(|(name, _)| *name != "c") {
        if let Value::Object(part) = value {
            part.settle(Bytes::new());
        }
    }
    for (text, shared) in [
        (r#"{"b":{"y":[2]},"a":{"x":1},"c":{"z":3},"d":4}"#, "b a"),
        (r#"{"a":{"x":2},"b":{"y":[2]}}"#, "b"),
        (r#"{"a":{"x":1,"y":2},"d":4}"#, ""),
        (r#"{"a":1,"b":{"x":1},"e":{"x":1}}"#, ""),
    ] {
        let mut new = object(text);
        share(message, &mut new, &old);
        assert_eq!(new, object(text));
        let is_shared = |value: &Value| value.as_object().is_some_and(Object::is_settled);
        let names: Vec<_> = new.iter().filter(|(_, value)| is_shared(value)).map(|(name, _)| name).collect();
        assert_eq!(names.join(" "), shared, "{text}");
    }
}

#[test]
fn members_are_shared_regardless_of_their_order() {
    let message = pod();
    const TEXT: &str = r#"{"a":{"x":[{"u":1,"v":2}],"y":{"w":null}}}"#;
    let mut old = object(TEXT);
    old.get_mut("a").and_then(Value::as_object_mut).expect("an object").settle(Bytes::new());
    for (text, is_shared) in [
        (r#"{"a":{"y":{"w":null},"x":[{"v":2,"u":1}]}}"#, true),
        (r#"{"a":{"y":{"w":null},"x":[{"v":1,"u":2}]}}"#, false),
        (r#"{"a":{"y":{"z":null},"x":[{"v":2,"u":1}]}}"#, false),
        (r#"{"a":{"y":{"w":null},"x":[{"v":2,"u":1},{}]}}"#, false),
    ] {
        let mut new = object(text);
        share(message, &mut new, &old);
        assert_eq!(new == object(TEXT), is_shared, "{text}");
    }
}

#[test]
fn an_unread_member_is_shared_if_its_text_is_equal() {
    const STORED: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","metadata":{},"spec":{"containers":[{"name":"c","resources":{}}],"nodeName":"n"},"status":{"phase":"Running"}}"#;
    let message = pod();
    let part = |object: &Object, name: &str| object.get(name).and_then(Value::as_object).unwrap().clone();
    for (given, is_spec_shared) in [
        (r#"{"spec":{"containers":[{"name":"c"}],"nodeName":"n"},"status":{"phase":"Running"}}"#, true),
        (r#"{"spec":{"nodeName":"n","containers":[{"name":"c"}]},"status":{"phase":"Running"}}"#, true),
        (r#"{"spec":{"containers":[{"name":"c"}],"nodeName":"o"},"status":{"phase":"Running"}}"#, false),
        (r#"{"spec":{"containers":[],"nodeName":"n"},"status":{"phase":"Running"}}"#, false),
    ] {
        let old = settled(message, &Bytes::from_static(STORED), None).unwrap();
        let mut new = decode_any(message, given.as_bytes()).unwrap().object;
        share(message, &mut new, &old);
        for (name, is_shared) in [("spec", is_spec_shared), ("status", true)] {
            assert_eq!(part(&new, name).is_one_with(&part(&old, name)), is_shared, "{given} {name}");
            assert_eq!(part(&old, name).unread_text().is_none(), is_shared, "{given} {name}");
        }
        assert_eq!(old, straight(message, STORED, Author::Server).unwrap());
        assert!(part(&old, "spec").unread_text().is_none());
    }
}

#[test]
fn members_written_by_another_release_are_decoded_by_the_current_schema() {
    let message = pod();
    let at = message.position(b"spec").unwrap();
    let Kind::Message(spec) = &message.fields[at].kind else { panic!("a spec is an object") };
    for (text, want) in [
        (r#"{"nodeName":"n"}"#, r#"{"containers":null,"nodeName":"n"}"#),
        (r#"{"nodeName":7}"#, r#"{"nodeName":7}"#),
        (r#"{"nodeName":"n""#, "{}"),
        ("[]", "{}"),
    ] {
        let members = spec.read_members(&Bytes::from_static(text.as_bytes()));
        let object: Object = members.into_iter().collect();
        assert_eq!(written(&object.into()), want.as_bytes(), "{text}");
    }
}

fn pod() -> &'static Message {
    builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap()
}
