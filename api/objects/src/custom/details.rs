//! Details of the types of a definition, computed from its schemas immediately or on first use.
//!
//! ```text
//! definition, object ─► Details (one for each version)
//! text of the object ─► Unread ─ first use ─► definition, object ─► Details of all versions ─► shared (pool)
//! ```
//!
//! At start most types are not used yet, and schemas are the largest part of a definition. Deferred details
//! are computed together for all versions, so that the text is read once and then released. A stored
//! definition was validated when it was written. If its schemas still do not describe a type, the server logs
//! the error once. In this case every version has an empty type, and [`Details::fault`] contains the reason.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::definition::{Definition, DefinitionVersion};
use super::resource;
use super::rules::Rules;
use super::schema::Schema;
use types::schema::builtin;
use types::schema::make::Struct;
use types::schema::make_error::MakeError;
use types::schema::published::Published;
use types::schema::share::Pool;
use types::schema::table::{Message, Ref, Slot};
use values::json::{self, Object, Value};
use values::object::at;

/// Details of one version that follow from its schema.
#[derive(Clone, Debug)]
pub struct Details {
    /// Type of the version's objects.
    pub message: Ref<Message>,
    /// Schema in its published OpenAPI form.
    pub published: Ref<Published>,
    /// Fingerprint of the stored form of the version's objects.
    pub form: Ref<u32>,
    /// Validation rules of the version.
    pub rules: Option<Ref<Slot>>,
    /// Reason why a deferred type could not be made; `None` if the details are not deferred.
    pub fault: Option<Ref<Option<MakeError>>>,
}

impl Details {
    /// Returns the details of one version of the definition in `object`. `at` is the index of the version.
    ///
    /// # Errors
    /// [`MakeError`] if the schema is not structural.
    pub fn for_version(
        definition: &Definition,
        object: &Object,
        at: usize,
        version: &DefinitionVersion,
    ) -> Result<Details, MakeError> {
        let kind = &definition.accepted.kind;
        let schema = version.validation.as_ref().and_then(|validation| validation.schema.as_ref());
        let structure = match schema {
            Some(schema) => resource::object(kind, schema)?,
            // A version without a schema keeps all members.
            None => {
                let open = Schema { preserve_unknown_fields: Some(true), ..Schema::default() };
                resource::object(kind, &open)?
            }
        };
        let text = written(object, at);
        Ok(Details {
            message: structure.object(&definition.group, &version.name)?,
            published: Ref::new(Published::new(text)),
            form: Ref::new(form(&format!("{}/{}", definition.group, version.name), text)),
            rules: schema.and_then(Rules::from_schema).map(|rules| Ref::new(Slot::with_value(rules))),
            fault: None,
        })
    }

    /// Returns deferred details of the version at index `at`. The first use of any version computes the
    /// details of all versions.
    pub fn deferred(
        definition: &Definition,
        version: &DefinitionVersion,
        unread: &DeferredDetails,
        at: usize,
    ) -> Details {
        let DeferredDetails(all) = unread;
        let (kind, group, name) =
            (definition.accepted.kind.clone(), definition.group.clone(), version.name.clone());
        let empty = move || {
            let object = Struct::new(kind).object(&group, &name);
            object.unwrap_or(Ref::Static(builtin::OBJECT_META)) // cannot fail, because there are no fields
        };
        let message = part(all, at, |details| details.message.clone(), empty);
        let published =
            part(all, at, |details| details.published.clone(), || Ref::new(Published::new(&Value::Null)));
        let form = part(all, at, |details| details.form.clone(), || Ref::new(0));
        let rules = part(
            all,
            at,
            |details| details.rules.clone().unwrap_or_else(|| Ref::new(Slot::new())),
            || Ref::new(Slot::new()),
        );
        let fault = Arc::clone(all);
        let fault = Ref::lazy(move || {
            Ref::new(match &**fault {
                Ok(all) if at < all.len() => None,
                Ok(_) => Some(MakeError::Unreadable),
                Err(error) => Some(error.clone()),
            })
        });
        Details { message, published, form, rules: Some(rules), fault: Some(fault) }
    }
}

/// Returns a deferred part of the details of the version at `at`, or the result of `missing` if the details
/// could not be computed.
fn part<T: Send + Sync>(
    all: &Arc<LazyDetails>,
    at: usize,
    part: impl FnOnce(&Details) -> Ref<T> + Send + Sync + 'static,
    missing: impl FnOnce() -> Ref<T> + Send + Sync + 'static,
) -> Ref<T> {
    let all = Arc::clone(all);
    Ref::lazy(move || match &**all {
        Ok(all) => all.get(at).map_or_else(missing, part),
        Err(_) => missing(),
    })
}

type LazyDetails = LazyLock<
    Result<Vec<Details>, MakeError>,
    Box<dyn FnOnce() -> Result<Vec<Details>, MakeError> + Send + Sync>,
>;

/// Deferred details of all versions of a definition that is not parsed yet.
#[derive(Debug)]
pub struct DeferredDetails(Arc<LazyDetails>);

impl DeferredDetails {
    /// Creates deferred details of the definition with this name and text. `pool` shares equal parts of different
    /// types.
    pub fn new(name: &str, text: Bytes, pool: Arc<Mutex<Pool>>) -> DeferredDetails {
        let name = name.to_owned();
        let make = move || {
            let made = read(&text, &pool);
            if let Err(error) = &made {
                tracing::error!(definition = name, %error, "types of a definition cannot be made");
            }
            made
        };
        DeferredDetails(Arc::new(LazyLock::new(Box::new(make))))
    }
}

fn read(text: &[u8], pool: &Mutex<Pool>) -> Result<Vec<Details>, MakeError> {
    let Ok(Value::Object(object)) = json::parse(text) else { return Err(MakeError::Unreadable) };
    let definition = Definition::read(&object);
    let versions = definition.versions.iter().enumerate();
    let details =
        versions.map(|(at, version)| match Details::for_version(&definition, &object, at, version) {
            Err(_) if !version.served && !version.storage => {
                // Objects of a version that is neither served nor stored are read without a schema.
                let open = DefinitionVersion { validation: None, ..version.clone() };
                Details::for_version(&definition, &object, at, &open)
            }
            details => details,
        });
    let mut details = details.collect::<Result<Vec<_>, _>>()?;
    let mut pool = pool.lock();
    for details in &mut details {
        pool.share(&mut details.message);
    }
    Ok(details)
}

/// Returns the fingerprint of the form of objects. The fingerprint depends on the version, and on the schema
/// of the version without descriptions.
fn form(api_version: &str, schema: &Value) -> u32 {
    let mut hash = Sha256::new();
    hash.update(api_version);
    let mut text = Vec::new();
    write_undescribed(schema, &mut text);
    hash.update(&text);
    let digest: [u8; 32] = hash.finalize().into();
    // 0 is the fingerprint of built-in types.
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]).max(1)
}

/// Appends a schema as compact JSON without descriptions. Values in `default`, `enum` and `example` stay
/// unchanged.
fn write_undescribed(schema: &Value, out: &mut Vec<u8>) {
    match schema {
        Value::Object(members) => {
            let is_description = |name: &str, part: &Value| name == "description" && part.as_str().is_some();
            let parts = members.iter().filter(|(name, part)| !is_description(name, part));
            json::write_members(parts, out, |name, part, out| match name {
                "default" | "enum" | "example" => json::write(part, out),
                _ => write_undescribed(part, out),
            });
        }
        Value::Array(items) => json::write_items(items, out, write_undescribed),
        scalar => json::write(scalar, out),
    }
}

/// Returns the schema of the version at index `place` from the definition's object; `null` if there is no
/// schema.
fn written(object: &Object, place: usize) -> &Value {
    let versions = at(object, "spec.versions").and_then(Value::as_array).unwrap_or_default();
    versions.get(place).and_then(|version| version.at(&["schema", "openAPIV3Schema"])).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_version_depends_on_its_schema_but_not_on_descriptions() {
        let form =
            |version: &str, schema: &str| super::form(version, &json::parse(schema.as_bytes()).unwrap());
        let first = form("g/v1", r#"{"type":"object","properties":{"a":{"type":"string"}}}"#);
        for (version, schema, is_same) in [
            ("g/v1", r#"{"type":"object","properties":{"a":{"type":"string","description":"x"}}}"#, true),
            ("g/v2", r#"{"type":"object","properties":{"a":{"type":"string"}}}"#, false),
            ("g/v1", r#"{"type":"object","properties":{"b":{"type":"string"}}}"#, false),
            ("g/v1", r#"{"type":"object","properties":{"a":{"type":"string","default":"x"}}}"#, false),
            (
                "g/v1",
                r#"{"type":"object","properties":{"a":{"type":"string"},"description":{"type":"string"}}}"#,
                false,
            ),
        ] {
            assert_eq!(form(version, schema) == first, is_same, "{version} {schema}");
        }
    }
}
