//! Converts a definition to the resources that it serves, one resource for each version.
//!
//! All versions use the keys of one storage. Each version has its own schema, and refers to the other
//! versions and to the storage version, which may not be served. The names are the names that the definition
//! was granted. The module `details` computes the properties that depend on schemas, immediately or on first
//! use.

use std::sync::{Arc, OnceLock};

use super::definition::{Definition, DefinitionVersion};
use super::details::{DeferredDetails, Details};
use types::schema::make::ResourceMaker;
use types::schema::make_error::MakeError;
use types::schema::registry::Resource;
use types::schema::share::Pool;
use types::schema::table::{ScalePaths, Slot};
use types::schema::versioned::{self, Versions};
use values::json::{Object, Value};
use values::naming::Naming;
use values::object::at;
use wire::outgoing::{Client, Identities};

/// The webhook that converts objects between versions.
#[derive(Debug)]
pub struct Webhook {
    /// Client configuration from the definition.
    config: Value,
    /// Client that is built from the configuration on first use.
    client: OnceLock<Client>,
    /// First version of conversion reviews that the definition lists and this server supports.
    pub review_version: Option<&'static str>,
}

impl Webhook {
    /// Returns the client of the webhook. `identities` contains the certificate authorities of this server
    /// and must be the same in every call.
    pub fn client(&self, identities: &Identities) -> &Client {
        self.client.get_or_init(|| Client::read_authenticated(&self.config, CONVERSION_SECONDS, identities))
    }
}

/// Supported versions of conversion reviews.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Timeout of a conversion review in seconds. The server also sends the timeout to the webhook as a
/// parameter.
pub const CONVERSION_SECONDS: i64 = 30;

/// Makers of the types of one definition, which do not depend on other definitions.
#[derive(Debug)]
pub struct Makers {
    /// For each version: whether it is served, whether it is the storage version, and its maker.
    versions: Vec<(bool, bool, ResourceMaker)>,
    webhook: Slot,
}

impl Makers {
    /// Creates the makers of all versions of a definition that was read from `object`.
    ///
    /// # Errors
    /// [`MakeError`] if a schema is not structural and its version is served or is the storage version.
    pub fn new(definition: &Definition, object: &Object) -> Result<Makers, MakeError> {
        let mut versions = Vec::with_capacity(definition.versions.len());
        let preferred = definition.preferred_version();
        for (at, version) in definition.versions.iter().enumerate() {
            match Details::for_version(definition, object, at, version) {
                Ok(details) => {
                    let maker = maker(definition, version, preferred, details);
                    versions.push((version.served, version.storage, maker));
                }
                Err(error) if version.served || version.storage => return Err(error),
                // Objects of a version that is neither served nor stored are read without a schema.
                Err(_) => {}
            }
        }
        Ok(Makers { versions, webhook: webhook(definition, object) })
    }

    /// Creates the makers of all versions of a definition that was read from its outline `object`. Details
    /// that depend on schemas are computed on first use.
    pub fn deferred(definition: &Definition, object: &Object, unread: &DeferredDetails) -> Makers {
        let preferred = definition.preferred_version();
        let versions = definition.versions.iter().enumerate().map(|(at, version)| {
            let details = Details::deferred(definition, version, unread, at);
            (version.served, version.storage, maker(definition, version, preferred, details))
        });
        Makers { versions: versions.collect(), webhook: webhook(definition, object) }
    }

    /// Returns the resources of the served versions in the order of the definition; empty if the definition
    /// has no storage version. `pool` shares equal parts of different types.
    pub fn into_served(self, naming: &Naming, pool: &mut Pool) -> Vec<Arc<Resource>> {
        let (served, unserved): (Vec<_>, Vec<_>) =
            self.into_resources(naming, pool).into_iter().partition(|(served, ..)| *served);
        // The schema of a version that is not served is not published.
        let unserved = unserved.into_iter().map(|(.., resource)| Resource { published: None, ..resource });
        let unserved: Vec<_> = unserved.map(Arc::new).collect();
        let served = served.into_iter();
        served.map(|(.., resource)| Arc::new(Resource { unserved: unserved.clone(), ..resource })).collect()
    }

    /// Returns the resource of the storage version, even if that version is not served; `None` if there is no
    /// storage version.
    pub fn stored(self, naming: &Naming) -> Option<Arc<Resource>> {
        let mut resources = self.into_resources(naming, &mut Pool::default()).into_iter();
        resources.find(|(_, storage, _)| *storage).map(|(.., resource)| Arc::new(resource))
    }

    /// Returns the resources of all versions; empty if there is no storage version.
    fn into_resources(self, naming: &Naming, pool: &mut Pool) -> Vec<(bool, bool, Resource)> {
        let resources = self.versions.into_iter();
        let mut resources: Vec<_> = resources
            .map(|(served, storage, maker)| (served, storage, maker.shared(pool).resource(naming)))
            .collect();
        let all = resources.iter().map(|(.., resource)| versioned::VersionedTable {
            api_version: resource.api_version.clone(),
            table: resource.table.clone(),
        });
        let all = all.collect();
        let stored = resources.iter().position(|(_, storage, _)| *storage).unwrap_or(usize::MAX);
        let Some(versions) = Versions::new(all, stored, self.webhook) else { return Vec::new() };
        let versions = Arc::new(versions);
        for (.., resource) in &mut resources {
            resource.versions = Some(Arc::clone(&versions));
        }
        resources
    }
}

/// Returns the webhook that converts objects of a definition; empty if the strategy is not `Webhook`.
fn webhook(definition: &Definition, object: &Object) -> Slot {
    let conversion = definition.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook");
    let Some(conversion) = conversion else { return Slot::new() };
    let known = |version: &String| REVIEW_VERSIONS.into_iter().find(|known| version == known);
    let config = at(object, "spec.conversion.webhook.clientConfig").unwrap_or(&Value::Null);
    Slot::with_value(Arc::new(Webhook {
        config: config.clone(),
        client: OnceLock::new(),
        review_version: conversion.review_versions.iter().find_map(known),
    }))
}

fn maker(
    definition: &Definition,
    version: &DefinitionVersion,
    preferred: Option<&str>,
    details: Details,
) -> ResourceMaker {
    let accepted = &definition.accepted;
    let Details { message, form, published, rules, fault } = details;
    let (plural, kind) = (accepted.plural.clone(), accepted.kind.clone().into());
    let maker = ResourceMaker::from_message(
        &definition.group,
        &version.name,
        plural,
        definition.scope(),
        kind,
        message,
    );
    let mut maker = maker.form(form).published(published);
    if let Some(rules) = rules {
        maker = maker.rules(rules);
    }
    if let Some(fault) = fault {
        maker = maker.fault(fault);
    }
    let scale = version.subresources.as_ref().and_then(|subresources| subresources.scale.as_ref());
    if let Some(scale) = scale {
        let selector = scale.label_selector_path.clone().filter(|path| !path.is_empty());
        maker = maker.scale(ScalePaths {
            spec: scale.spec_replicas_path.clone().into(),
            status: scale.status_replicas_path.clone().into(),
            selector: selector.map(Into::into),
        });
    }
    definition.present(version, preferred, maker)
}

#[cfg(test)]
mod tests {
    use super::super::outline::outline;
    use super::*;
    use types::schema::decode::decode;
    use types::schema::table::Scope;
    use values::naming::KUBERNETES;
    use values::testing::{object, object_text};

    const DEFINITION: &str = r#"{"spec":{"group":"g.example","scope":"Cluster",
        "names":{"plural":"things","kind":"Thing","listKind":"ThingList","singular":"thing"},"versions":[
        {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
            "properties":{"spec":{"type":"object","properties":{"a":{"type":"string"},"n":{"type":"integer"}}}}}},
            "subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}}},
        {"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object",
            "properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}}}}}}},
        {"name":"v3","served":false,"storage":false}]},
        "status":{"acceptedNames":{"plural":"things","kind":"Thing","listKind":"ThingList","singular":"thing"}}}"#;

    fn served_resources(text: &str) -> Result<Vec<Arc<Resource>>, MakeError> {
        let object = object(text);
        let makers = Makers::new(&Definition::read(&object), &object)?;
        Ok(makers.into_served(&KUBERNETES, &mut Pool::default()))
    }

    #[test]
    fn all_served_versions_use_the_storage_of_the_stored_version() {
        let made = served_resources(DEFINITION).unwrap();
        let [v1, v2] = &*made else { panic!("{} versions", made.len()) };
        assert_eq!((&*v1.api_version, &*v2.api_version), ("g.example/v1", "g.example/v2"));
        assert_eq!((v1.table.scope, &*v1.table.list_kind), (Scope::Cluster, "ThingList"));
        let names: Vec<_> = v1.subresources.iter().map(|subresource| subresource.table.name).collect();
        assert_eq!((names, v2.subresources.len()), (vec!["scale", "status"], 0));
        assert!(v1.is_stored_version() && !v2.is_stored_version() && v2.is_stored_form());
        assert_eq!(v2.stored_api_version(), "g.example/v1");
        assert_eq!(v2.storage.as_ref().unwrap().key_prefix, "/custom:g.example/things/");
    }

    /// Returns the types that a server makes at start from the text of a definition.
    fn deferred_resources(text: &str) -> Vec<Arc<Resource>> {
        let outline = object(&String::from_utf8(outline(text.as_bytes()).unwrap()).unwrap());
        let unread = DeferredDetails::new("things.g.example", text.to_owned().into(), Arc::default());
        Makers::deferred(&Definition::read(&outline), &outline, &unread)
            .into_served(&KUBERNETES, &mut Pool::default())
    }

    #[test]
    fn types_compiled_on_first_use_equal_types_compiled_immediately() {
        let text = object_text(&object(&DEFINITION.replace(
            r#""spec":{"type":"object","#,
            r#""spec":{"type":"object","default":{"a":"x"},"x-kubernetes-validations":[{"rule":"self.a != 'y'"}],"#,
        )));
        let (now, later) = (served_resources(&text).unwrap(), deferred_resources(&text));
        assert_eq!(now.len(), later.len());
        for (now, later) in now.iter().zip(&later) {
            // Names are available before the schema is parsed.
            assert_eq!((&now.api_version, &now.table.kind), (&later.api_version, &later.table.kind));
            assert!(format!("{:?}", later.table.message).contains("uninit"), "{:?}", later.table.message);
            later.complete();
            assert_eq!(later.fault(), None);
            let text = |resource: &Resource| format!("{:?}", resource.table.message.fields);
            assert_eq!(text(now), text(later));
            assert_eq!(now.table.form.as_deref(), later.table.form.as_deref());
            let rules = |resource: &Resource| resource.table.rules.as_deref().is_some_and(Slot::is_filled);
            assert_eq!(rules(now), rules(later));
            let published = |resource: &Resource| resource.published.as_deref().unwrap().schema();
            assert_eq!(published(now), published(later));
        }
        assert!(later[0].table.rules.as_deref().is_some_and(Slot::is_filled));
    }

    #[test]
    fn a_schema_that_cannot_be_compiled_is_a_fault_of_every_version() {
        let text = object_text(&object(&DEFINITION.replace(
            r#""a":{"type":"string"},"#,
            r#""l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object"}},"#,
        )));
        assert_eq!(served_resources(&text).unwrap_err(), MakeError::NoKey("k".into()));
        for resource in deferred_resources(&text) {
            assert_eq!(resource.fault(), Some(&MakeError::NoKey("k".into())), "{}", resource.api_version);
            assert!(resource.table.message.custom);
        }
    }

    #[test]
    fn a_version_without_a_schema_keeps_all_fields() {
        let text = DEFINITION.replace(r#""served":false"#, r#""served":true"#);
        let made = served_resources(&text).unwrap();
        let text = br#"{"kind":"Thing","apiVersion":"g.example/v3","metadata":{},"z":[{"a":1}]}"#;
        let kept = decode(&made[2].table.message, text).unwrap();
        assert_eq!((object_text(&kept.object).into_bytes(), kept.strict.len()), (text.to_vec(), 0));
    }
}
