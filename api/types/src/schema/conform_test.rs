//! Tests that reading only the changed parts gives the same result as reading the whole object.

use bytes::Bytes;

use super::*;
use crate::schema::builtin;
use crate::schema::decode::decode_settled;
use crate::schema::generate;
use testkit::Random;
use values::json::parse;
use values::naming::KUBERNETES;

#[test]
fn conform_changes_gives_the_same_result_as_conform() {
    let (mut random, mut failed, mut reported) = (Random(11), 0, 0);
    for message in builtin::messages(&KUBERNETES) {
        for at in 0..24 {
            let made = generate::object(&mut random, message, 0);
            let known = conform(message, made.into()).unwrap().object;
            let mut changed = Value::Object(known.clone());
            for _ in 0..at % 4 {
                generate::disturb(&mut random, &mut changed);
            }
            let Value::Object(changed) = changed else { continue };
            let want = conform(message, changed.clone().into());
            failed += usize::from(want.is_err());
            reported += usize::from(want.as_ref().is_ok_and(|decoded| !decoded.strict.is_empty()));
            let got = conform_changes(message, changed.clone().into(), &known);
            assert_eq!(got, want, "{}: {changed:?}", message.name);
            assert_eq!(conform_changes(message, changed.into(), &Object::new()), want, "{}", message.name);
        }
    }
    assert!(failed > 100 && reported > 100, "{failed} {reported}");
}

#[test]
fn conform_skips_a_settled_member_only_under_its_own_name() {
    let message = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
    let text = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"n","containers":[{"name":"c"}]},"status":{"phase":"Running"}}"#;
    let known = decode_settled(message, &Bytes::from(text)).unwrap();
    for (from, to) in
        [("spec", "status"), ("status", "spec"), ("spec", "metadata"), ("spec", "unknown"), ("spec", "spec")]
    {
        let part = known.get(from).unwrap().clone();
        assert!(part.as_object().unwrap().is_settled());
        let mut patched = known.clone();
        patched.insert(to, part.clone());
        let got = conform_changes(message, patched.clone().into(), &known);
        assert_eq!(got, conform(message, patched.into()), "{from} to {to}");
        let is_kept = got.unwrap().object.get(to) == Some(&part);
        assert_eq!(is_kept, from == to, "{from} to {to}");
    }
    let no_object = conform(message, Value::Array(Vec::new()));
    assert_eq!(conform_changes(message, Value::Array(Vec::new()), &known), no_object);
}

#[test]
fn conform_changes_applies_the_same_depth_limit_as_conform() {
    let message = builtin::message(&KUBERNETES, "api.apps.v1.ControllerRevision").unwrap();
    let known =
        conform(message, parse(br#"{"metadata":{"name":"a"},"data":{"a":{}},"revision":1}"#).unwrap());
    let known = known.unwrap().object;
    for levels in [DEPTH_MAX - 3, DEPTH_MAX - 2, DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1] {
        let mut changed = known.clone();
        let deep = (0..levels).fold(Value::Int(1), |value, _| Value::Array(vec![value]));
        changed.insert("data", deep);
        let want = conform(message, changed.clone().into());
        assert_eq!(want.is_ok(), levels < DEPTH_MAX, "{levels}");
        assert_eq!(conform_changes(message, changed.into(), &known), want, "{levels}");
    }
}
