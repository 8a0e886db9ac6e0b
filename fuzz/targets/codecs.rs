//! YAML and CBOR: a decoded document can be encoded, and decodes to the same value.

use objects::codec::cbor;
use values::json::Value;
use values::yaml;

use super::text;
use crate::document;
use crate::input::Input;

/// Checks the bytes as a YAML document, and the YAML form of a tree that is built from the bytes.
pub fn yaml_text(data: &[u8]) {
    match yaml::parse(data) {
        Ok(document) => {
            assert!(document.duplicates.len() <= 100);
            check_yaml(&document.value);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(tree) = values::json::parse(&document::anything(&mut Input::new(data))) {
        check_yaml(&tree);
    }
}

fn check_yaml(value: &Value) {
    let mut written = Vec::new();
    yaml::write(value, &mut written);
    let again = yaml::parse(&written)
        .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&written)));
    assert_eq!(again.duplicates, [""; 0]);
    // After the first encoding, members are sorted and whole doubles are integers.
    let mut twice = Vec::new();
    yaml::write(&again.value, &mut twice);
    assert_eq!(String::from_utf8_lossy(&twice), String::from_utf8_lossy(&written));
}

/// Checks the bytes as a CBOR item, and the CBOR form of a tree that is built from the bytes.
pub fn cbor_item(data: &[u8]) {
    match cbor::parse(data) {
        Ok(value) => check_cbor(&value),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(tree) = values::json::parse(&document::anything(&mut Input::new(data))) {
        check_cbor(&tree);
    }
}

fn check_cbor(value: &Value) {
    let mut written = Vec::new();
    cbor::write(value, &mut written);
    let again = cbor::parse(&written).expect("what was written can be read");
    let mut twice = Vec::new();
    cbor::write(&again, &mut twice);
    assert_eq!(twice, written);
    assert_eq!(sorted(again), sorted(value.clone()));
    assert!(!text(value).is_empty());
}

/// Sorts the members of every object by name, because CBOR has an order of its own.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Object(mut members) => {
            members.members_mut().sort_by(|(a, _), (b, _)| a.cmp(b));
            members.iter_mut().for_each(|(_, value)| *value = sorted(std::mem::take(value)));
            Value::Object(members)
        }
        flat => flat,
    }
}
