//! Handles `null` for a member of a custom type whose schema does not permit `null`
//! (docs/api/apply.md#apply).
//!
//! Decoding drops these members for every verb. Without these members, an apply would make its manager the owner of a
//! field that the object does not have. The reference server keeps the members until validation refuses them. Therefore
//! this module restores the members after decoding. A member with a default gets the default instead of `null`. A
//! `null` for a granular struct, map or list that has parts only ends the manager's ownership of these parts.

use super::typed::{OwnershipType, item_element};
use types::schema::kind::Kind;
use types::schema::limits::Limits;
use types::schema::table::{Empty, ListType, Message};
use values::field::Element;
use values::json::{Object, Value};

/// Maximum number of members that are restored. A single restored member is enough to refuse the object.
const NULLS_MAX: usize = 100;

/// Paths of the members of a configuration that are `null` and must be refused.
#[derive(Debug, Default)]
pub(super) struct Nulls(Vec<Vec<Element<'static>>>);

impl Nulls {
    /// Collects the refused nulls of the configuration `config`, which is applied to `live`.
    pub(super) fn collect(message: &Message, config: &Object, live: &Object) -> Nulls {
        let mut nulls = Nulls::default();
        if message.custom {
            nulls.members(message, config, &mut Vec::new());
        }
        nulls.0.retain(|path| !has_parts(message, live, path));
        nulls
    }

    fn members<'c>(&mut self, message: &Message, config: &'c Object, path: &mut Vec<Element<'c>>) {
        for (name, value) in config.iter() {
            let Some(field) = message.field(name) else { continue };
            let is_refused = field.empty == Empty::Kept
                && field.assigned.is_none()
                && has_type(&field.kind, field.limits.as_deref());
            path.push(Element::field(name));
            self.value(&field.kind, is_refused, value, path);
            path.pop();
        }
    }

    fn value<'c>(&mut self, kind: &Kind, is_refused: bool, config: &'c Value, path: &mut Vec<Element<'c>>) {
        if self.0.len() >= NULLS_MAX {
            return;
        }
        match (kind, config) {
            (_, Value::Null) if is_refused => {
                self.0.push(path.iter().cloned().map(Element::into_owned).collect());
            }
            (Kind::Message(message), Value::Object(config)) if message.custom => {
                self.members(message, config, path);
            }
            (Kind::Map(map), Value::Object(config)) => {
                let element = &map.value;
                let limits = element.limits.as_deref();
                let has_default = limits.is_some_and(|limits| limits.default.is_some());
                let is_refused =
                    element.empty == Empty::Kept && !has_default && has_type(&element.kind, limits);
                for (key, value) in config.iter() {
                    path.push(Element::field(key));
                    self.value(&element.kind, is_refused, value, path);
                    path.pop();
                }
            }
            (Kind::List(list), Value::Array(config))
                if matches!(list.item.kind, Kind::Message(_) | Kind::Map(_) | Kind::List(_)) =>
            {
                // Decoding keeps list elements that are `null`, so this module need not restore `null` elements.
                for (at, value) in config.iter().enumerate() {
                    let element = item_element(&list.item.kind, &list.merge, value);
                    path.push(element.unwrap_or(Element::Index(i64::try_from(at).unwrap_or(i64::MAX))));
                    self.value(&list.item.kind, false, value, path);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    /// Restores the members in `object`, the result of applying the configuration.
    pub(super) fn put_back(&self, message: &Message, object: &mut Object) {
        for path in &self.0 {
            let [Element::Field(first), rest @ ..] = &**path else { continue };
            let Some(field) = message.field(first) else { continue };
            match (rest, object.get_mut(first)) {
                ([], None) => object.push(first.to_string(), Value::Null),
                (rest, Some(value)) => restore_null(&field.kind, value, rest),
                _ => {}
            }
        }
    }
}

/// Returns whether the schema declares a type for the value, which makes validation refuse `null`.
fn has_type(kind: &Kind, limits: Option<&Limits>) -> bool {
    let limits = crate::custom::limits_of(kind, limits);
    !matches!(kind, Kind::Json | Kind::RawExtension) && !limits.is_some_and(|limits| limits.any_type)
}

/// Returns whether `object` has a granular value with parts at `path`. Paths through list elements are not
/// followed.
fn has_parts(message: &Message, object: &Object, path: &[Element<'_>]) -> bool {
    let mut of = OwnershipType::of_message(message);
    let mut members = Some(object);
    for (at, element) in path.iter().enumerate() {
        let Element::Field(name) = element else { return false };
        let Some(value) = members.and_then(|members| members.get(name)) else { return false };
        let Some(below) = of.step(element) else { return false };
        (of, members) = (below, value.as_object());
        if at + 1 == path.len() {
            return match of {
                OwnershipType::Struct { atomic: false, .. } | OwnershipType::Map { atomic: false, .. } => {
                    members.is_some_and(|members| !members.is_empty())
                }
                OwnershipType::List { list: ListType::Set | ListType::Map(_), .. } => {
                    value.as_array().is_some_and(|items| !items.is_empty())
                }
                _ => false,
            };
        }
    }
    false
}

/// Sets the element of `value` at `path` to null if it is absent.
fn restore_null(kind: &Kind, value: &mut Value, path: &[Element<'_>]) {
    let [first, rest @ ..] = path else { return };
    match (kind, value, first) {
        (Kind::List(list), Value::Array(items), element) => {
            let is_it = |item: &Value| {
                item_element(&list.item.kind, &list.merge, item).is_ok_and(|it| it == *element)
            };
            let at = match element {
                Element::Index(at) => usize::try_from(*at).ok(),
                _ => items.iter().position(is_it),
            };
            if let Some(item) = at.and_then(|at| items.get_mut(at)) {
                restore_null(&list.item.kind, item, rest);
            }
        }
        (kind, Value::Object(members), Element::Field(name)) => {
            let below = match kind {
                Kind::Message(message) => message.field(name).map(|field| &field.kind),
                Kind::Map(map) => Some(&map.value.kind),
                _ => None,
            };
            let Some(below) = below else { return };
            match (rest, members.get_mut(name)) {
                ([], None) => members.push(name.to_string(), Value::Null),
                (rest, Some(value)) => restore_null(below, value, rest),
                _ => {}
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::apply::fixture::{things, writer};
    use crate::apply::{Reset, Versions, apply};
    use crate::strategy::Endpoint;
    use types::schema::registry::Registry;
    use values::json::Value;
    use values::naming::KUBERNETES;
    use values::testing::{object, object_text};

    /// Returns the spec after its manager has applied another configuration.
    fn applied(live: &str, config: &str) -> String {
        let resource = things(
            r#"{"str":{"type":"string"},"num":{"type":"integer"},"def":{"type":"string","default":"d"},
                "nullable":{"type":"string","nullable":true},"any":{"x-kubernetes-preserve-unknown-fields":true},
                "obj":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string","default":"x"}}},
                "map":{"type":"object","additionalProperties":{"type":"string"}},
                "defs":{"type":"object","additionalProperties":{"type":"string","default":"d"}},
                "list":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}},
                "keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
                    "items":{"type":"object","properties":{"k":{"type":"string"},"a":{"type":"string"}}}}}"#,
        );
        let registry = Registry::new(&KUBERNETES);
        let versions = Versions::for_resource(&registry, &resource);
        let reset = Reset::for_endpoint(&resource, Endpoint::Main);
        let writer = writer("m", "2026-01-01T00:00:00Z");
        let message = &resource.table.message;
        let of = |spec: &str| {
            object(&format!(
                r#"{{"kind":"Thing","apiVersion":"example.com/v1","metadata":{{"name":"a"}},"spec":{spec}}}"#
            ))
        };
        let mut stored = types::schema::decode_form::zero_object(message);
        for spec in [live, config] {
            let done = apply(&versions, &writer, &reset, &stored, &of(spec), false).unwrap();
            stored = done.conformed(message, &stored).unwrap();
        }
        stored.get("spec").and_then(Value::as_object).map_or_else(|| "nothing".to_owned(), object_text)
    }

    #[test]
    fn null_stays_for_validation_where_the_schema_does_not_allow_it() {
        for (live, config, want) in [
            ("{}", r#"{"str":null}"#, r#"{"str":null}"#),
            (r#"{"str":"a","num":1}"#, r#"{"str":null,"num":null}"#, r#"{"str":null,"num":null}"#),
            ("{}", r#"{"def":null,"any":null,"nullable":null}"#, r#"{"nullable":null}"#),
            ("{}", r#"{"obj":null}"#, r#"{"obj":null}"#),
            ("{}", r#"{"obj":{"a":null,"b":null}}"#, r#"{"obj":{"a":null}}"#),
            ("{}", r#"{"map":{"a":null,"b":"c"}}"#, r#"{"map":{"b":"c","a":null}}"#),
            ("{}", r#"{"list":[{"a":"x"},{"a":null}]}"#, r#"{"list":[{"a":"x"},{"a":null}]}"#),
            (
                r#"{"keyed":[{"k":"1","a":"x"}]}"#,
                r#"{"keyed":[{"k":"2"},{"k":"3","a":null}]}"#,
                r#"{"keyed":[{"k":"2"},{"k":"3","a":null}]}"#,
            ),
            // A `null` that only ends the ownership of parts is not restored.
            (r#"{"obj":{"a":"x"},"num":1}"#, r#"{"num":1}"#, r#"{"num":1}"#),
            (r#"{"obj":{"a":"x"}}"#, r#"{"obj":{}}"#, "{}"),
        ] {
            assert_eq!(applied(live, config), want, "{live} {config}");
        }
    }
}
