//! Selector attributes: any bytes can be read, and encoded attributes match like the object.

use types::attributes::{Attributes, Selection, encode, select};
use types::schema::decode::decode;
use types::schema::table::ResourceTable;
use types::selector::field::slots;
use values::json::{Object, Value};

use super::selectors::some_resource;
use crate::document;
use crate::input::Input;

/// If the first byte is odd, reads the rest as attributes. Otherwise builds an object from the rest, and
/// reads its attributes.
pub fn attributes(data: &[u8]) {
    let mut input = Input::new(data);
    if input.byte() & 1 == 1 {
        view(input.rest());
    } else {
        let table = some_resource(&mut input);
        let text = document::object(&table.message, &mut input);
        if let Ok(decoded) = decode(&table.message, &text) {
            let encoded = encode(table, &decoded.object);
            view(&encoded);
            agree(table, &decoded.object, &encoded, &mut input);
        }
    }
}

/// Reads all labels and fields in the attributes.
fn view(bytes: &[u8]) {
    let view = Attributes::new(bytes);
    let labels: Vec<(&str, &str)> = view.labels().take(bytes.len() + 1).collect();
    assert!(labels.len() <= bytes.len(), "labels without end");
    for (key, _) in labels.iter().take(64) {
        view.label(key);
    }
    let fields: usize = (0..64).map(|slot| view.field(slot).len()).sum();
    assert!(fields <= bytes.len());
    let _ = (view.label("app"), view.has_finalizers(), view.is_deleting(), view.layout());
}

fn agree(table: &'static ResourceTable, object: &Object, encoded: &[u8], input: &mut Input) {
    let view = Attributes::new(encoded);
    let metadata = object.get("metadata");
    let given = metadata.and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    let given: Vec<(&str, &str)> = given
        .into_iter()
        .flat_map(Object::iter)
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .collect();
    assert_eq!(view.labels().count(), given.len());
    for (key, value) in &given {
        assert_eq!(view.label(key), Some(*value), "{key}");
    }
    for (at, slot) in slots(table).enumerate() {
        assert_eq!(view.field(at), select(slot, object), "{}", slot.path);
    }
    let is_set =
        |name| metadata.and_then(|metadata| metadata.get(name)).is_some_and(|value| !value.is_null());
    assert_eq!(
        (view.has_finalizers(), view.is_deleting()),
        (is_set("finalizers"), is_set("deletionTimestamp"))
    );

    let (key, value) = given.first().copied().unwrap_or(("a", "b"));
    let label = input.pick(&["", "a", "!a", "a in (b,x)", "a notin (,x)", "name!=x"]);
    let label = if input.byte() & 1 == 1 { format!("{key}={value}") } else { label.to_owned() };
    let field = match (table.selectable.is_empty(), input.below(3)) {
        (false, kind @ 1..) => {
            let field = &table.selectable[input.below(table.selectable.len())];
            let operator = if kind == 1 { "=" } else { "!=" };
            let value = select(field, object).replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            format!("{}{operator}{value}", field.label)
        }
        _ => "metadata.name=x".to_owned(),
    };
    // Keys and values that are not valid labels cannot form a selector.
    let Ok(selection) = Selection::parse(&label, &field, table, table) else { return };
    assert!(!selection.is_outdated(&view));
    for name in ["x", "y"] {
        let by_body = selection.matches_object(name, "ns", table, object);
        assert_eq!(selection.matches(name, "ns", &view), by_body, "{label} and {field}");
    }
}
