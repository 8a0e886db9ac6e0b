//! From a definition to the resources that it serves, one for each version.
//!
//! All versions share the keys of one storage. Each is worked with in its own form; the versions know of each other, and
//! which of them is written to the store, whether that is served or not. Names are those that the definition was
//! granted.

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use super::definition::{Definition, Version};
use super::resource;
use super::rules::Rules;
use super::schema::Schema;
use crate::types::schema::make::{MakeError, ResourceMaker};
use crate::types::schema::registry::Resource;
use crate::types::schema::share::Pool;
use crate::types::schema::table::{ScalePaths, Slot};
use crate::types::schema::versioned::{self, Versions};
use crate::values::json::{self, Object, Value};
use crate::values::naming::Naming;
use crate::values::object::at;
use crate::wire::outgoing::{Client, Identities};

/// The webhook that converts objects from version to version.
#[derive(Debug)]
pub struct Webhook {
    /// Where it is, as the definition says it.
    config: Value,
    /// The same as it is called.
    client: OnceLock<Client>,
    /// The first version of the review that both sides know.
    pub review_version: Option<&'static str>,
}

impl Webhook {
    /// How it is called by a server that believes `identities`, which are the same in every call.
    pub fn client(&self, identities: &Identities) -> &Client {
        self.client.get_or_init(|| Client::known(&self.config, CONVERSION_SECONDS, identities))
    }
}

/// The versions of the review of conversions.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// How long an answer to such a review is waited for, which the webhook is told.
pub const CONVERSION_SECONDS: i64 = 30;

/// What the types of a definition are made from, each by itself, without a look at other definitions.
#[derive(Debug)]
pub struct Makers {
    /// For each version: whether it is served, whether objects are stored in it.
    versions: Vec<(bool, bool, ResourceMaker)>,
    webhook: Slot,
}

impl Makers {
    /// Those of all versions of a definition that is read from `object`.
    ///
    /// # Errors
    /// [`MakeError`] for schemas that are not structural, of versions that are served or stored.
    pub fn of(definition: &Definition, object: &Object) -> Result<Makers, MakeError> {
        let mut versions = Vec::with_capacity(definition.versions.len());
        for version in &definition.versions {
            match maker(definition, object, version) {
                Ok(maker) => versions.push((version.served, version.storage, maker)),
                Err(error) if version.served || version.storage => return Err(error),
                // Objects of such a version are read without a schema.
                Err(_) => {}
            }
        }
        Ok(Makers { versions, webhook: webhook(definition, object) })
    }

    /// The resources of the served versions in the order of the definition; none for one without a storage version.
    /// What they have in common with others in the `pool` is shared.
    pub fn served(self, naming: &Naming, pool: &mut Pool) -> Vec<Arc<Resource>> {
        let made = self.made(naming, pool).into_iter();
        made.filter(|(served, ..)| *served).map(|(.., resource)| Arc::new(resource)).collect()
    }

    /// The resource of the version that objects are stored in, whether it is served or not; `None` without one.
    pub fn stored(self, naming: &Naming) -> Option<Arc<Resource>> {
        let mut made = self.made(naming, &mut Pool::default()).into_iter();
        made.find(|(_, storage, _)| *storage).map(|(.., resource)| Arc::new(resource))
    }

    /// The resources of all versions; none without a storage version.
    fn made(self, naming: &Naming, pool: &mut Pool) -> Vec<(bool, bool, Resource)> {
        let made = self.versions.into_iter();
        let mut made: Vec<_> = made
            .map(|(served, storage, maker)| (served, storage, maker.shared(pool).resource(naming)))
            .collect();
        let all = made.iter().map(|(.., resource)| versioned::Version {
            api_version: resource.api_version.clone(),
            table: resource.table.clone(),
        });
        let all = all.collect();
        let stored = made.iter().position(|(_, storage, _)| *storage).unwrap_or(usize::MAX);
        let Some(versions) = Versions::new(all, stored, self.webhook) else { return Vec::new() };
        let versions = Arc::new(versions);
        for (.., resource) in &mut made {
            resource.versions = Some(Arc::clone(&versions));
        }
        made
    }
}

/// The webhook that converts objects of a definition, if one does.
fn webhook(definition: &Definition, object: &Object) -> Slot {
    let conversion = definition.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook");
    let Some(conversion) = conversion else { return Slot::new() };
    let known = |version: &String| REVIEW_VERSIONS.into_iter().find(|known| version == known);
    let config = at(object, "spec.conversion.webhook.clientConfig").unwrap_or(&Value::Null);
    Slot::of(Arc::new(Webhook {
        config: config.clone(),
        client: OnceLock::new(),
        review_version: conversion.review_versions.iter().find_map(known),
    }))
}

/// Fingerprint of a version and of what its schema says of the form of objects: everything but descriptions.
fn form(api_version: &str, schema: &Value) -> u32 {
    let mut hash = Sha256::new();
    hash.update(api_version);
    let mut text = Vec::new();
    write_undescribed(schema, &mut text);
    hash.update(&text);
    let digest: [u8; 32] = hash.finalize().into();
    // Zero is that of built-in types.
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]).max(1)
}

/// Appends a schema as compact JSON without the descriptions of its parts. Values that it names stay as they are.
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

/// The schema of a version as the definition's object has it; `null` without one.
fn written<'o>(object: &'o Object, version: &str) -> &'o Value {
    let versions = at(object, "spec.versions").and_then(Value::as_array).unwrap_or_default();
    let version = versions.iter().find(|each| each.str_at(&["name"]) == version);
    version.and_then(|version| version.at(&["schema", "openAPIV3Schema"])).unwrap_or(&Value::Null)
}

fn maker(definition: &Definition, object: &Object, version: &Version) -> Result<ResourceMaker, MakeError> {
    let accepted = &definition.accepted;
    let schema = version.validation.as_ref().and_then(|validation| validation.schema.as_ref());
    let made = match schema {
        Some(schema) => resource::object(&accepted.kind, schema)?,
        // A version without a schema keeps what it is given.
        None => {
            let open = Schema { preserve_unknown_fields: Some(true), ..Schema::default() };
            resource::object(&accepted.kind, &open)?
        }
    };
    let group_version = (&*definition.group, &*version.name);
    let mut maker = ResourceMaker::new(group_version, accepted.plural.clone(), definition.scope(), made)?;
    let schema_text = written(object, &version.name);
    let form = form(&format!("{}/{}", definition.group, version.name), schema_text);
    maker = maker.form(form).published(schema_text);
    let scale = version.subresources.as_ref().and_then(|subresources| subresources.scale.as_ref());
    if let Some(scale) = scale {
        let selector = scale.label_selector_path.clone().filter(|path| !path.is_empty());
        maker = maker.scale(ScalePaths {
            spec: scale.spec_replicas_path.clone().into(),
            status: scale.status_replicas_path.clone().into(),
            selector: selector.map(Into::into),
        });
    }
    if let Some(rules) = schema.and_then(Rules::of) {
        maker = maker.rules(Slot::of(rules));
    }
    Ok(definition.present(version, maker))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{object, object_text};
    use crate::types::schema::decode::decode;
    use crate::types::schema::table::Scope;
    use crate::values::naming::KUBERNETES;

    const DEFINITION: &str = r#"{"spec":{"group":"g.example","scope":"Cluster",
        "names":{"plural":"things","kind":"Thing","listKind":"ThingList","singular":"thing"},"versions":[
        {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
            "properties":{"spec":{"type":"object","properties":{"a":{"type":"string"},"n":{"type":"integer"}}}}}},
            "subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}}},
        {"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object",
            "properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}}}}}}},
        {"name":"v3","served":false,"storage":false}]},
        "status":{"acceptedNames":{"plural":"things","kind":"Thing","listKind":"ThingList","singular":"thing"}}}"#;

    fn made(text: &str) -> Result<Vec<Arc<Resource>>, MakeError> {
        let object = object(text);
        let makers = Makers::of(&Definition::read(&object), &object)?;
        Ok(makers.served(&KUBERNETES, &mut Pool::default()))
    }

    #[test]
    fn served_versions_share_the_storage_of_one() {
        let made = made(DEFINITION).unwrap();
        let [v1, v2] = &*made else { panic!("{} versions", made.len()) };
        assert_eq!((&*v1.api_version, &*v2.api_version), ("g.example/v1", "g.example/v2"));
        assert_eq!((v1.table.scope, &*v1.table.list_kind), (Scope::Cluster, "ThingList"));
        let names: Vec<_> = v1.subresources.iter().map(|subresource| subresource.table.name).collect();
        assert_eq!((names, v2.subresources.len()), (vec!["scale", "status"], 0));
        assert!(v1.is_stored_version() && !v2.is_stored_version() && v2.is_stored_form());
        assert_eq!(v2.stored_api_version(), "g.example/v1");
        assert_eq!(v2.storage.as_ref().unwrap().key_prefix, "/custom:g.example/things/");
    }

    #[test]
    fn a_form_is_that_of_a_version_and_its_schema_without_descriptions() {
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

    #[test]
    fn a_version_without_a_schema_keeps_everything() {
        let text = DEFINITION.replace(r#""served":false"#, r#""served":true"#);
        let made = made(&text).unwrap();
        let text = br#"{"kind":"Thing","apiVersion":"g.example/v3","metadata":{},"z":[{"a":1}]}"#;
        let kept = decode(&made[2].table.message, text).unwrap();
        assert_eq!((object_text(&kept.object).into_bytes(), kept.strict.len()), (text.to_vec(), 0));
    }
}
