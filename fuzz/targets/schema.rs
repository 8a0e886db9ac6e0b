//! Objects by schema: decoding, conforming and encoding agree, and the canonical form is a fixed point.

use types::schema::builtin;
use types::schema::conform::conform;
use types::schema::decode::decode;
use types::schema::decoded::Decoded;
use types::schema::encode::{encode, encode_stamped, prefix_len};
use types::schema::table::{Message, Ref};
use values::json::{Object, Value};
use values::naming::CLUSTER;

use crate::document;
use crate::input::Input;

/// Maximum number of reports of strict decoding for one document.
const STRICT_MAX: usize = 100;

/// Reads a line with the name of a type (`api.core.v1.Pod`; any other text selects some type), then the
/// document.
pub fn schema_text(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (line, rest) = data.split_at(end);
    let named = std::str::from_utf8(line).ok().and_then(|stem| builtin::message(&CLUSTER, stem));
    let message = named.map_or_else(|| some_message(&mut Input::new(line)), Ref::Static);
    check(&message, rest.get(1..).unwrap_or_default());
}

/// Builds a type and a document that mostly fits it from the bytes.
pub fn schema_objects(data: &[u8]) {
    let mut input = Input::new(data);
    let message = some_message(&mut input);
    check(&message, &document::object(&message, &mut input));
}

/// Returns one of the built-in types.
pub(super) fn some_message(input: &mut Input) -> Ref<Message> {
    let messages = builtin::messages(&CLUSTER);
    Ref::Static(messages[input.below(messages.len())])
}

fn check(message: &Message, text: &[u8]) {
    let by_text = decode(message, text);
    // The parser keeps the text of numbers, because quantities need it.
    if let Ok(tree) = values::json::parse_exact(text) {
        let by_tree = conform(message, tree);
        // Duplicate members of the text are merged or replaced; the tree has only the last one.
        let is_repeated =
            |decoded: &Decoded| decoded.strict.iter().any(|fault| fault.starts_with("duplicate field"));
        match (&by_text, &by_tree) {
            (Ok(decoded), _) if is_repeated(decoded) => {}
            (Ok(a), Ok(b)) if a.object == b.object => {}
            (Ok(a), Ok(b)) => {
                let [mut a, mut b] = [a, b].map(|decoded| Value::from(decoded.object.clone()));
                texts_without_duplicates(&mut a);
                texts_without_duplicates(&mut b);
                assert_eq!(a, b, "{}", message.name);
            }
            // A wrong type in a member that a later duplicate replaces is an error only in the text.
            (Err(_), _) => {}
            (Ok(_), Err(error)) => panic!("{}: decodes, and its tree does not: {error}", message.name),
        }
    }
    match by_text {
        Ok(decoded) => {
            assert!(decoded.strict.len() <= STRICT_MAX);
            check_canonical(message, decoded.object);
        }
        Err(error) => assert!(!error.message.is_empty()),
    }
}

/// Removes duplicate members from JSON that an object keeps as text, because a tree has no duplicates.
fn texts_without_duplicates(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Ok(tree) = values::json::parse(text.as_bytes()) {
                let mut once = Vec::new();
                values::json::write(&tree, &mut once);
                *text = String::from_utf8(once).expect("JSON is UTF-8");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(texts_without_duplicates),
        Value::Object(object) => {
            object.members_mut().iter_mut().for_each(|(_, member)| texts_without_duplicates(member));
        }
        _ => {}
    }
}

/// Checks the invariants of every decoded object.
pub(super) fn check_canonical(message: &Message, object: Object) {
    let mut encoded = Vec::new();
    encode(message, &object, &mut encoded);
    let shown = || String::from_utf8_lossy(&encoded);
    let again = decode(message, &encoded).unwrap_or_else(|error| panic!("{error}: {}", shown()));
    assert_eq!(again.strict, [""; 0], "{}", shown());
    // Compare the stored forms instead of the trees, because an empty list in a field that is always written
    // is stored as `null`.
    let mut encoded_again = Vec::new();
    encode(message, &again.object, &mut encoded_again);
    assert_eq!(String::from_utf8_lossy(&encoded_again), shown(), "{}", message.name);
    assert!((1..=encoded.len()).contains(&prefix_len(&encoded)));

    let (mut stamped, at) = encode_stamped(message, &object);
    if at > 0 {
        let at = at as usize;
        stamped.splice(at..at, *b"42");
        let stamped = decode(message, &stamped).expect("a stamped object is an object").object;
        assert_eq!(stamped.get("metadata").map(|metadata| metadata.str_at(&["resourceVersion"])), Some("42"));
    }
    let object = Value::Object(object);
    if has_odd_set(&object) {
        return;
    }
    let conformed = conform(message, object.clone()).expect("a canonical tree conforms");
    assert_eq!((Value::Object(conformed.object), conformed.strict), (object, Vec::new()));
}

/// Returns whether the value contains a field set that is not a JSON object. The decoder stores such a field set as a
/// string with its JSON text. `conform` would read this string as the value, and quote it a second time.
pub(super) fn has_odd_set(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_odd_set),
        Value::Object(object) => object.iter().any(|(name, member)| {
            let is_odd = |text: &str| !text.starts_with('{');
            name == "fieldsV1" && member.as_str().is_some_and(is_odd) || has_odd_set(member)
        }),
        _ => false,
    }
}
