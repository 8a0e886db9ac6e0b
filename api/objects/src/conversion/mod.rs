//! Conversion of custom objects between the versions of their type, and from an earlier schema to the current schema.
//!
//! ```text
//! stored record ─ of the own form ────────────────────────────────────────────► record
//!               └ of another ─► tree by the schema of its version, defaults ─┬─► record in the own form
//!                                                          other version ─► webhook, or a new apiVersion ─┘
//! object to be written ─► the version to be stored ─► payload
//! ```
//!
//! All other modules work with objects in the version and form of the request. The *form* of a record is the
//! schema layout that is stored in the record's selector attributes ([`attributes::layout`]). Therefore this
//! module detects records that need no conversion without reading their values. Many records are converted at
//! once with a single call of a webhook. Behavior: docs/api/custom-resources.md.

mod pending;
mod restore;
mod review;

use std::sync::Arc;
use std::time::Duration;

use engine::{Payload, Record};

pub use self::pending::Conversions;
use crate::custom::serving::{CONVERSION_SECONDS, Webhook};
use crate::services::Services;
use crate::store;
use types::attributes::{self, Attributes};
use types::convert;
use types::schema::conform::conform;
use types::schema::decode::decode_record;
use types::schema::defaults;
use types::schema::encode::{encode, encode_stamped};
use types::schema::registry::Resource;
use types::schema::versioned::{VersionedTable, Versions};
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::set_meta;
use values::status::{Status, StatusReason};
use wire::outgoing::{self, Identities, Networks};

/// Maximum number of records that are converted at once.
pub const RECORDS_AT_ONCE: usize = 500;

/// Maximum total size in bytes of records that are converted at once. The last record is not counted.
pub const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;

/// Converter for objects of custom types.
pub struct Converter {
    services: Arc<Services>,
    naming: &'static Naming,
    agent: String,
    /// Certificate authorities for webhooks that do not configure their own authorities.
    identities: Identities,
}

/// Returns whether a stored object with these selector attributes has the current form of `resource`. Objects
/// of built-in types always have the current form.
pub fn is_current(resource: &Resource, attributes: &[u8]) -> bool {
    resource.versions.is_none()
        || Attributes::new(attributes).layout() == Some(attributes::layout(&resource.stored().table))
}

impl Converter {
    /// Creates a converter that looks up the services of webhooks in `services`.
    pub fn new(services: Arc<Services>, naming: &'static Naming) -> Converter {
        let agent = format!("{}apiserver-admission", naming.system_prefix);
        Converter { services, naming, agent, identities: Identities::default() }
    }

    /// Sets the networks in which webhooks are called, and the CA certificates of the operating system (PEM).
    /// These certificates verify webhooks that do not configure a CA bundle.
    pub fn calling(self, system: Vec<u8>, networks: Networks) -> Converter {
        Converter { identities: self.identities.believing(system).reaching(networks), ..self }
    }

    /// Converts records to the form of `resource`, in place. If a record already has that form, only its
    /// selector attributes are read.
    ///
    /// # Errors
    /// Fails with 500 if a record cannot be read or converted, or has a version that the definition no longer
    /// declares. After an error, all records are unchanged.
    pub async fn convert_records(&self, resource: &Resource, records: &mut [Record]) -> Result<(), Status> {
        let Some(versions) = &resource.versions else { return Ok(()) };
        let is_other = |record: &Record| !is_current(resource, &record.attributes);
        if !records.iter().any(is_other) {
            return Ok(());
        }
        let Some(own) = versions.get(&resource.api_version) else { return Ok(()) };
        let mut objects = Vec::new();
        let mut places = Vec::new();
        for (place, record) in records.iter().enumerate().filter(|(_, record)| is_other(record)) {
            places.push(place);
            objects.push(self.read(versions, record)?);
        }
        let objects = self.convert(versions, objects, own).await?;
        for (place, object) in places.into_iter().zip(objects) {
            let record = &mut records[place];
            let mut value = Vec::with_capacity(record.value.len());
            encode(&own.table.message, &object, &mut value);
            record.value = value.into();
            record.attributes = attributes::encode(&own.table, &object).into();
        }
        Ok(())
    }

    /// Converts one record, like [`Converter::convert_records`].
    ///
    /// # Errors
    /// The errors of [`Converter::convert_records`].
    pub async fn convert_record(&self, resource: &Resource, record: Record) -> Result<Record, Status> {
        let mut records = [record];
        self.convert_records(resource, &mut records).await?;
        let [record] = records;
        Ok(record)
    }

    /// Encodes an object of `resource` for storage, in the storage version.
    ///
    /// # Errors
    /// Fails with 500 if the object cannot be converted.
    pub async fn payload(&self, resource: &Resource, object: &Object) -> Result<Payload, Status> {
        let Some(versions) = &resource.versions else { return Ok(store::payload(resource, object)) };
        let stored = versions.stored();
        let converted = self.convert(versions, vec![object.clone()], stored).await?;
        let Some(object) = converted.first() else { return Err(Status::internal("nothing was converted")) };
        let (value, stamp_at) = encode_stamped(&stored.table.message, object);
        let attributes = attributes::encode(&stored.table, object).into();
        let essential = store::is_essential(object);
        Ok(Payload { attributes, value: value.into(), stamp_at: Some(stamp_at), ttl: None, essential })
    }

    /// Converts an object of any type from one version to another.
    ///
    /// # Errors
    /// Fails with 500 if the object cannot be converted.
    pub async fn converted(&self, object: Object, from: &Resource, to: &Resource) -> Result<Object, Status> {
        let stored = convert::to_stored(from, object, self.naming)?;
        let object = convert::to_served(to, stored, self.naming)?;
        self.between(object, to).await
    }

    /// Converts an object to the version of `to` if `to` is a custom type. Other objects stay unchanged.
    ///
    /// # Errors
    /// Fails with 500 if the object cannot be converted.
    async fn between(&self, object: Object, to: &Resource) -> Result<Object, Status> {
        let Some((versions, to)) =
            to.versions.as_ref().and_then(|versions| Some((versions, versions.get(&to.api_version)?)))
        else {
            return Ok(object);
        };
        let converted = self.convert(versions, vec![object], to).await?;
        converted.into_iter().next().ok_or_else(|| Status::internal("nothing was converted"))
    }

    /// Returns an object as a later read in the version of `resource` returns it. Storing drops the fields
    /// that the storage version lacks and adds the defaults of the storage version.
    ///
    /// # Errors
    /// Fails with 500 if the object cannot be converted.
    pub async fn as_stored(&self, resource: &Resource, object: Object) -> Result<Object, Status> {
        let versions = resource.versions.as_ref().filter(|_| !resource.is_stored_version());
        let Some((versions, own)) =
            versions.and_then(|versions| Some((versions, versions.get(&resource.api_version)?)))
        else {
            return Ok(object);
        };
        let stored = versions.stored();
        let mut objects = self.convert(versions, vec![object], stored).await?;
        for object in &mut objects {
            defaults::apply(&stored.table.message, object, self.naming);
        }
        let converted = self.convert(versions, objects, own).await?;
        converted.into_iter().next().ok_or_else(|| Status::internal("nothing was converted"))
    }

    /// Decodes a stored object by the current schema of its version and applies the defaults of that schema.
    fn read(&self, versions: &Versions, record: &Record) -> Result<Object, Status> {
        let unreadable =
            |why: &dyn std::fmt::Display| Status::new(StatusReason::StorageReadError, why.to_string());
        let value = json::parse(&record.value).map_err(|why| unreadable(&why))?;
        let api_version = value.str_at(&["apiVersion"]);
        let Some(version) = versions.get(api_version) else {
            // The definition no longer has this version.
            let why = format!("request to convert CR from an invalid group/version: {api_version}");
            return Err(Status::new(StatusReason::Unknown, why));
        };
        let message = &version.table.message;
        let mut object = decode_record(message, &record.value).map_err(|why| unreadable(&why))?.object;
        defaults::apply(message, &mut object, self.naming);
        Ok(object)
    }

    /// Converts objects to the version `to`. Fields that the schema of that version does not declare are
    /// dropped.
    async fn convert(
        &self,
        versions: &Versions,
        mut objects: Vec<Object>,
        to: &VersionedTable,
    ) -> Result<Vec<Object>, Status> {
        let is_other = |object: &Object| api_version(object) != to.api_version;
        let others: Vec<usize> = (0..objects.len()).filter(|&at| is_other(&objects[at])).collect();
        if others.is_empty() {
            return Ok(objects);
        }
        if let Some(webhook) = versions.webhook.get::<Webhook>() {
            let given: Vec<Object> = others.iter().map(|&at| std::mem::take(&mut objects[at])).collect();
            // Boxed because the call is rare, and its state would otherwise be part of the future of every
            // read and write. The compiler then checks the types of the client once, and not in each future
            // that converts.
            let asking: store::Pending<'_, _> =
                Box::pin(self.call_webhook(versions, webhook, given, &to.api_version));
            let converted = asking.await?;
            for (&at, object) in others.iter().zip(converted) {
                objects[at] = object;
            }
        }
        for at in others {
            objects[at] = renamed(std::mem::take(&mut objects[at]), to)?;
        }
        Ok(objects)
    }

    /// Runs the conversions of objects of `resource` that the computation of a write has requested.
    ///
    /// # Errors
    /// Fails with 500 if an object cannot be converted.
    pub async fn make(&self, resource: &Resource, conversions: &Conversions) -> Result<(), Status> {
        let Some(versions) = &resource.versions else { return Ok(()) };
        for request in conversions.take_requests() {
            let Some(to) = versions.get(&request.to) else { continue };
            let converted = self.convert(versions, vec![request.object.clone()], to).await?;
            if let Some(converted) = converted.into_iter().next() {
                conversions.learn(request, converted);
            }
        }
        Ok(())
    }

    /// Calls a webhook to convert objects to the version `to`.
    async fn call_webhook(
        &self,
        versions: &Versions,
        webhook: &Webhook,
        objects: Vec<Object>,
        to: &str,
    ) -> Result<Vec<Object>, Status> {
        let source = objects.first().map(group_version_kind).unwrap_or_default();
        let failed = |what: &str, why: &str| {
            Status::new(StatusReason::Unknown, format!("conversion webhook for {source} {what}{why}"))
        };
        let version = webhook.review_version.ok_or("no supported conversion review versions");
        let version = version.map_err(|why| failed("failed: ", why))?;
        let group = self.naming.group("apiextensions", true);
        let review = review::ReviewParameters { group: &group, version, uid: &values::names::uid() };
        let texts = objects.iter().map(|object| text(versions, object));
        let body = review.request(to, texts);
        let answer = self.post(webhook, body).await.map_err(|why| failed("failed: ", &why))?;
        let converted = review.answer(&answer).map_err(|why| failed("failed: ", &why))?;
        if converted.len() != objects.len() {
            let counts = format!("{} objects, expected {}", converted.len(), objects.len());
            return Err(failed("returned ", &counts));
        }
        let mut restored = Vec::with_capacity(objects.len());
        for (at, (original, converted)) in objects.into_iter().zip(converted).enumerate() {
            let converted = review::object(&answer, at, converted)
                .map_err(|why| Status::new(StatusReason::Unknown, why))?;
            restore::check_type(&converted, to, original.get("kind"))
                .map_err(|why| failed(&format!("returned invalid object at index {at}: "), &why))?;
            restore::check_identity(&converted, &original)
                .map_err(|why| failed("returned invalid object: ", &why))?;
            let object = restore::metadata(converted, original)
                .map_err(|why| failed("returned invalid metadata: ", &why))?;
            restored.push(object);
        }
        Ok(restored)
    }

    async fn post(&self, webhook: &Webhook, body: bytes::Bytes) -> Result<outgoing::Reply, String> {
        let endpoint =
            webhook.client(&self.identities).endpoint_at(|service| self.services.address(service))?;
        let timeout = Duration::from_secs(CONVERSION_SECONDS.unsigned_abs());
        let answer = outgoing::post(&endpoint, &self.agent, body, timeout).await;
        answer.map(|answer| answer.body).map_err(|why| why.to_string())
    }
}

/// Returns an object with another `apiVersion`, without the fields that the schema of that version lacks.
fn renamed(mut object: Object, to: &VersionedTable) -> Result<Object, Status> {
    object.insert("apiVersion", to.api_version.as_str().into());
    let conformed = conform(&to.table.message, Value::Object(object)).map_err(Status::internal)?;
    Ok(conformed.object)
}

/// Encodes an object for webhooks. The object has no resourceVersion, because stored objects do not contain a
/// resourceVersion. The members are sorted, as in the requests of the reference server.
fn text(versions: &Versions, object: &Object) -> Vec<u8> {
    let mut object = object.clone();
    set_meta(&mut object, "resourceVersion", None);
    let mut text = Vec::new();
    let mut value = match versions.get(api_version(&object)) {
        Some(version) => {
            encode(&version.table.message, &object, &mut text);
            json::parse(&text).unwrap_or_default()
        }
        None => Value::Object(object),
    };
    value.sort_names();
    text.clear();
    json::write(&value, &mut text);
    text
}

fn api_version(object: &Object) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the version and the kind of an object for error messages: `g.example/v1, Kind=Thing`.
fn group_version_kind(object: &Object) -> String {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    format!("{}, Kind={kind}", api_version(object))
}

#[cfg(test)]
#[path = "conversion_test.rs"]
mod tests;
