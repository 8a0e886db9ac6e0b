//! Migration from client-side apply to server-side apply
//! (docs/api/apply.md#migration-from-client-side-apply).
//!
//! Client-side apply keeps the applied configuration in an annotation, and its manager owns the fields by an
//! update. The first server-side apply would conflict with that manager, so fields that still equal the
//! annotation cause no conflict. Later applies keep the annotation up to date for clients that still use
//! client-side apply.

use super::check::check;
use super::collect::field_set;
use super::compare::compare;
use super::versions::Versions;
use values::field::FieldSet;
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::metadata_mut;

/// Manager name of the command-line client `kubectl`.
pub const MANAGER: &str = "kubectl";

/// Maximum size of all annotations in bytes (docs/api/writes.md#metadata-rules).
const ANNOTATIONS_BYTES_MAX: usize = 262_144;

fn annotation(naming: &Naming) -> String {
    format!("{MANAGER}.{}", naming.label("last-applied-configuration"))
}

fn last_applied<'o>(naming: &Naming, object: &'o Object) -> Option<&'o str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    annotations.get(&annotation(naming))?.as_str().filter(|text| !text.is_empty())
}

/// Returns the fields of `live` that still equal the client's last applied configuration; `None` if the
/// annotation is absent.
pub fn allowed(versions: &Versions<'_>, naming: &Naming, live: &Object) -> Option<FieldSet<'static>> {
    let message = versions.message();
    let Value::Object(last) = json::parse(last_applied(naming, live)?.as_bytes()).ok()? else { return None };
    let api_version = last.get("apiVersion").and_then(Value::as_str);
    if api_version != Some(versions.own.api_version) || !check(message, &last).is_empty() {
        return None;
    }
    let nothing = FieldSet::new();
    let changes = compare(message, &last, live, &nothing);
    let fields = field_set(message, &last);
    let kept = fields.difference(&changes.modified).difference(&changes.added).difference(&changes.removed);
    Some(kept.into_owned())
}

/// Sets the annotation of `object` to `config` if the object has the annotation. Removes the annotation if
/// the new value would be too long.
pub fn refresh(naming: &Naming, object: &mut Object, config: &Object) {
    if last_applied(naming, object).is_none() {
        return;
    }
    let name = annotation(naming);
    let mut applied = config.clone();
    if let Some(annotations) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = annotations.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(&name);
    }
    let mut text = Vec::new();
    json::write(&sorted(applied.into()), &mut text);
    text.push(b'\n');
    let text = String::from_utf8(text).expect("JSON is text");
    let annotations = metadata_mut(object).object_entry("annotations");
    annotations.insert(name.clone(), text.into());
    let len = |(name, value): (&str, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(len).sum::<usize>() > ANNOTATIONS_BYTES_MAX {
        annotations.remove(&name);
    }
}

/// Sorts members by name, because clients write the annotation in this order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.into_members().into_iter().map(|(name, value)| (name, sorted(value))).collect();
            json::sort_members(&mut members);
            members.into_iter().collect::<Object>().into()
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
