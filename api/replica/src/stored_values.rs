//! Converts values between kube-apiserver's form in etcd and the engine's form (docs/api/etcd.md#values).
//!
//! ```text
//! built-in  k8s\0 + Unknown{ message }   ◄─►  canonical JSON with a slot for the revision, and selector attributes
//! others    JSON and a final newline     ◄─►
//! ```
//!
//! A value never contains the revision of its object. As in the reference server, reading a value adds the
//! defaults of this release, so that objects of an older release look the same on servers of both kinds. If a
//! value has fields of a later release, the selector attributes record the presence of such fields, and
//! [`Values::encode`] preserves the fields.

use std::sync::Arc;

use bytes::Bytes;
use engine::Payload;
use parking_lot::Mutex;

use super::definitions;
use objects::codec::protobuf::envelope::{self, Unknown};
use objects::codec::protobuf::{self, EncodeError, Transcoder, unknown};
use objects::store;
use types::attributes::{self, Attributes};
use types::convert;
use types::schema::decode::{decode, decode_own};
use types::schema::defaults;
use types::schema::encode::{encode, encode_stamped};
use types::schema::registry::{Registry, Resource};
use types::served::Served;
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::set_meta;

/// Built-in types with JSON values in etcd: stem, plural, and the version in etcd if it differs from the
/// stored version of this server.
const AS_JSON: [(&str, &str, Option<&str>); 2] = [
    ("apiextensions", "customresourcedefinitions", Some("v1beta1")),
    ("apiregistration", "apiservices", None),
];

/// Built-in types with protobuf values in etcd whose version differs from the stored version of this server.
/// Both versions have the same fields.
const VERSIONS: [(&str, &str, &str); 3] = [
    ("admissionregistration", "mutatingadmissionpolicies", "v1beta1"),
    ("admissionregistration", "mutatingadmissionpolicybindings", "v1beta1"),
    ("resource", "devicetaintrules", "v1alpha3"),
];

/// Converter between the two forms of values.
pub struct Values {
    registry: Registry,
    naming: &'static Naming,
    /// Idle transcoders. A transcoder caches parts of objects, because consecutive objects are often made
    /// from one template.
    transcoders: Mutex<Vec<Transcoder>>,
}

/// Maximum number of idle transcoders. A transcoder needs about 40 KiB.
const TRANSCODERS_MAX: usize = 4;

/// The reason why a value cannot be read, or an object cannot be written.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

fn failed(why: impl std::fmt::Display) -> ValueError {
    ValueError(why.to_string())
}

impl From<EncodeError> for ValueError {
    fn from(error: EncodeError) -> ValueError {
        failed(error)
    }
}

impl Values {
    /// Returns a converter for the built-in types in `registry`.
    pub fn new(registry: Registry, naming: &'static Naming) -> Values {
        Values { registry, naming, transcoders: Mutex::default() }
    }

    /// Returns the built-in types of the converter.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns whether the values of a built-in type in etcd are protobuf of our stored version, so that no
    /// conversion is needed.
    pub fn needs_no_conversion(resource: &Resource) -> bool {
        as_json(resource).is_none() && other_version(resource).is_none()
    }

    /// Returns the engine's payload of an object of a built-in type.
    ///
    /// # Errors
    /// Fails if the value is not an object of this type.
    pub fn decode(&self, resource: &Resource, value: &[u8]) -> Result<Payload, ValueError> {
        let storage = resource.stored();
        let mut has_unknown = false;
        let mut object = if value.starts_with(&envelope::PREFIX) {
            let enveloped = Unknown::read(value).map_err(failed)?;
            if enveloped.holds_json() {
                self.read_json(resource, enveloped.raw)?
            } else {
                let written = self.written_as(resource, enveloped.api_version, enveloped.kind)?;
                let message = written.map_or(&storage.message, |written| &written.table.message);
                let object = protobuf::decode(&self.registry, message, enveloped.raw).map_err(failed)?;
                has_unknown = unknown::has_unknown(message, enveloped.raw).map_err(failed)?;
                self.stored(resource, written.map(|written| &**written), object)?
            }
        } else {
            self.read_json(resource, value)?
        };
        name(&mut object, &storage.kind, &storage.api_version);
        defaults::apply(&storage.message, &mut object, self.naming);
        let mut payload = Payload { ttl: None, ..store::payload(resource, &object) };
        if has_unknown {
            let mut noted = payload.attributes.to_vec();
            attributes::note_unknown(&mut noted);
            payload.attributes = noted.into();
        }
        Ok(payload)
    }

    /// Returns the resource of the version in a value, if that version is served and differs from the stored
    /// version of this server.
    fn written_as(
        &self,
        resource: &Resource,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<&Arc<Resource>>, ValueError> {
        let storage = resource.stored();
        if kind != storage.kind {
            return Err(failed(format!("the value is of kind {kind:?}, not {:?}", storage.kind)));
        }
        if api_version == storage.api_version {
            return Ok(None);
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        // A version that is not served is a beta version with the same fields and field numbers as the stored
        // version.
        Ok(self.registry.by_kind(group, version, kind))
    }

    fn stored(
        &self,
        resource: &Resource,
        written: Option<&Resource>,
        mut object: Object,
    ) -> Result<Object, ValueError> {
        let Some(written) = written else { return Ok(object) };
        name(&mut object, &resource.stored().kind, &written.api_version);
        convert::to_stored(written, object, self.naming).map_err(|status| failed(status.into_message()))
    }

    fn read_json(&self, resource: &Resource, text: &[u8]) -> Result<Object, ValueError> {
        let Value::Object(mut object) = json::parse(text).map_err(failed)? else {
            return Err(failed("the value is not an object"));
        };
        let storage = resource.stored();
        let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let written = self.written_as(resource, &api_version, &kind)?;
        if written.is_none()
            && api_version != storage.api_version
            && let Some((.., Some(_))) = as_json(resource)
        {
            object = definitions::from_stored(object, &storage.api_version);
        }
        let mut text = Vec::new();
        json::write(&Value::Object(object), &mut text);
        let message = written.map_or(&storage.message, |written| &written.table.message);
        let decoded = decode(message, &text).map_err(failed)?.object;
        self.stored(resource, written.map(|written| &**written), decoded)
    }

    /// Returns the etcd value of an object of a built-in type. `payload` is the engine's payload. `old` is
    /// the replaced value if it may have fields that this release does not know; these fields are preserved.
    ///
    /// # Errors
    /// Fails if the object cannot be represented.
    pub fn encode(
        &self,
        resource: &Resource,
        payload: &Payload,
        old: Option<&[u8]>,
    ) -> Result<Bytes, ValueError> {
        let storage = resource.stored();
        if let Some((.., older)) = as_json(resource) {
            let mut object = decode_own(&storage.message, &payload.value).map_err(failed)?;
            set_meta(&mut object, "resourceVersion", None);
            let mut text = Vec::with_capacity(payload.value.len());
            match older {
                None => encode(&storage.message, &object, &mut text),
                Some(version) => {
                    let api_version = format!("{}/{version}", storage.group);
                    encode(&storage.message, &object, &mut text);
                    let Value::Object(object) = json::parse(&text).map_err(failed)? else {
                        return Err(failed("no object"));
                    };
                    text.clear();
                    json::write(&Value::Object(definitions::to_stored(object, &api_version)), &mut text);
                }
            }
            text.push(b'\n');
            return Ok(text.into());
        }
        let api_version = match other_version(resource) {
            Some(version) => format!("{}/{version}", storage.group),
            None => storage.api_version.clone(),
        };
        let mut message = Vec::with_capacity(payload.value.len());
        let mut transcoder = self.transcoders.lock().pop().unwrap_or_default();
        let transcoded = transcoder.transcode(&storage.message, &payload.value, &mut message);
        let mut idle = self.transcoders.lock();
        if idle.len() < TRANSCODERS_MAX {
            idle.push(transcoder);
        }
        drop(idle);
        transcoded?;
        if let Some(old) = old.filter(|old| old.starts_with(&envelope::PREFIX)) {
            let enveloped = Unknown::read(old).map_err(failed)?;
            if enveloped.api_version == api_version && !enveloped.holds_json() {
                message = unknown::graft(&storage.message, enveloped.raw, &message).map_err(failed)?;
            }
        }
        let mut out = Vec::with_capacity(message.len() + 64);
        envelope::wrap(&api_version, &storage.kind, &mut out, |out| {
            out.extend_from_slice(&message);
            Ok::<_, EncodeError>(())
        })?;
        Ok(out.into())
    }

    /// Returns the engine's payload of an object of a custom type. If the version of the object is known, the
    /// payload has the form of the version. Otherwise the payload has a form that readers convert.
    ///
    /// # Errors
    /// Fails if the value is not an object.
    pub fn decode_custom(&self, served: Option<&Served>, value: &[u8]) -> Result<Payload, ValueError> {
        let Value::Object(mut object) = json::parse(value).map_err(failed)? else {
            return Err(failed("the value is not an object"));
        };
        let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let known = served.and_then(|served| served.registry().by_kind(group, version, &kind).cloned());
        if let Some(versions) = known.as_ref().and_then(|resource| resource.versions.as_ref())
            && let Some(version) = versions.get(&api_version)
            && let Ok(decoded) = decode(&version.table.message, value)
        {
            let mut object = decoded.object;
            defaults::apply(&version.table.message, &mut object, self.naming);
            let (value, stamp_at) = encode_stamped(&version.table.message, &object);
            let attributes = attributes::encode(&version.table, &object).into();
            return Ok(Payload {
                attributes,
                value: value.into(),
                stamp_at: Some(stamp_at),
                ttl: None,
                essential: false,
            });
        }
        let definitions = self.registry.stored();
        let other = definitions.first().ok_or_else(|| failed("nothing is built in"))?;
        let attributes = attributes::encode(&other.stored().table, &object);
        let metadata = match object.remove("metadata") {
            Some(Value::Object(mut metadata)) => {
                metadata.remove("resourceVersion");
                metadata
            }
            _ => return Err(failed("the object has no metadata")),
        };
        object.remove("kind");
        object.remove("apiVersion");
        let mut out = b"{\"kind\":\"".to_vec();
        json::write_escaped(&kind, &mut out);
        out.extend_from_slice(b"\",\"apiVersion\":\"");
        json::write_escaped(&api_version, &mut out);
        out.extend_from_slice(b"\",\"metadata\":{\"resourceVersion\":\"");
        let stamp_at = u32::try_from(out.len()).map_err(failed)?;
        out.push(b'"');
        for (name, value) in metadata.iter() {
            push_member(name, value, &mut out);
        }
        out.push(b'}');
        for (name, value) in object.iter() {
            push_member(name, value, &mut out);
        }
        out.push(b'}');
        Ok(Payload {
            attributes: attributes.into(),
            value: out.into(),
            stamp_at: Some(stamp_at),
            ttl: None,
            essential: false,
        })
    }

    /// Returns the etcd value of an object of a custom type. `payload` is the engine's payload.
    ///
    /// # Errors
    /// Fails if the payload is not an object.
    pub fn encode_custom(&self, payload: &Payload) -> Result<Bytes, ValueError> {
        let mut value = json::parse(&payload.value).map_err(failed)?;
        let Value::Object(object) = &mut value else { return Err(failed("no object")) };
        set_meta(object, "resourceVersion", None);
        value.sort_names();
        let mut out = Vec::with_capacity(payload.value.len());
        json::write(&value, &mut out);
        out.push(b'\n');
        Ok(out.into())
    }
}

impl Values {
    /// Returns the payload for writing an object again: the engine's form, but without the revision.
    ///
    /// # Errors
    /// Fails if the value is not an object of this type.
    pub fn restated(&self, resource: Option<&Resource>, value: &[u8]) -> Result<Payload, ValueError> {
        let Some(resource) = resource else { return self.decode_custom(None, value) };
        let mut object = decode_own(&resource.stored().message, value).map_err(failed)?;
        set_meta(&mut object, "resourceVersion", None);
        Ok(Payload { ttl: None, ..store::payload(resource, &object) })
    }
}

/// Returns the content of a value in a form in which all stores agree: without the revision, and with sorted
/// members.
///
/// # Errors
/// Fails if the value is not an object.
pub fn content(value: &[u8]) -> Result<Vec<u8>, ValueError> {
    let mut value = json::parse(value).map_err(failed)?;
    let Value::Object(object) = &mut value else { return Err(failed("the value is not an object")) };
    set_meta(object, "resourceVersion", None);
    value.sort_names();
    let mut out = Vec::new();
    json::write(&value, &mut out);
    Ok(out)
}

/// Returns whether the value of an object in etcd has fields that this release does not know.
pub fn has_unknown(attributes: &[u8]) -> bool {
    Attributes::new(attributes).has_unknown()
}

fn as_json(resource: &Resource) -> Option<(&'static str, &'static str, Option<&'static str>)> {
    AS_JSON.into_iter().find(|(stem, plural, _)| resource.is_of(stem, plural))
}

/// Returns the version of a type's values in etcd; `None` if the version equals the stored version of this
/// server.
fn other_version(resource: &Resource) -> Option<&'static str> {
    VERSIONS.iter().find(|(stem, plural, _)| resource.is_of(stem, plural)).map(|(.., version)| *version)
}

/// Sets `kind` and `apiVersion` as the first members.
fn name(object: &mut Object, kind: &str, api_version: &str) {
    object.remove("kind");
    object.remove("apiVersion");
    Unknown { api_version, kind, ..Unknown::default() }.name(object);
}

fn push_member(name: &str, value: &Value, out: &mut Vec<u8>) {
    out.push(b',');
    json::write_string(name, out);
    out.push(b':');
    json::write(value, out);
}

#[cfg(test)]
#[path = "stored_values_test.rs"]
mod tests;
