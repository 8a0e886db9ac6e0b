//! From a definition to the resources that it serves, one for each version.
//!
//! All versions share one storage, in the form of the storage version, whether that is served or not. Names are those
//! that the definition was granted.

use std::sync::Arc;

use super::definition::{Definition, Version};
use super::resource;
use super::rules::Rules;
use super::schema::Schema;
use crate::json::{Object, Value};
use crate::naming::Naming;
use crate::object::at;
use crate::schema::make::{MakeError, ResourceMaker};
use crate::schema::registry::Resource;
use crate::schema::table::{ScalePaths, Slot};

/// The resources of the served versions of a definition, read from `object`, in its order; none for a definition without a storage version.
///
/// # Errors
/// [`MakeError`] for schemas that are not structural.
pub fn resources(
    definition: &Definition,
    object: &Object,
    naming: &Naming,
) -> Result<Vec<Arc<Resource>>, MakeError> {
    let Some(storage) = definition.storage_version() else { return Ok(Vec::new()) };
    let stored = maker(definition, object, storage)?.make(naming);
    let served = definition.versions.iter().filter(|version| version.served);
    served
        .map(|version| {
            if version.name == storage.name {
                return Ok(Arc::clone(&stored));
            }
            Ok(maker(definition, object, version)?.make_version_of(&stored, naming))
        })
        .collect()
}

/// The resource of the version that objects are stored in, whether it is served or not; `None` without one.
///
/// # Errors
/// As for [`resources`].
pub fn stored(
    definition: &Definition,
    object: &Object,
    naming: &Naming,
) -> Result<Option<Arc<Resource>>, MakeError> {
    let Some(storage) = definition.storage_version() else { return Ok(None) };
    Ok(Some(maker(definition, object, storage)?.make(naming)))
}

/// The schema of a version as the definition's object has it; `null` without one.
fn written(object: &Object, version: &str) -> Value {
    let versions = at(object, "spec.versions").and_then(Value::as_array).unwrap_or_default();
    let version = versions.iter().find(|each| each.str_at(&["name"]) == version);
    version.and_then(|version| version.at(&["schema", "openAPIV3Schema"])).cloned().unwrap_or_default()
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
    maker = maker.published(written(object, &version.name));
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
    use crate::naming::KUBERNETES;
    use crate::schema::decode::decode;
    use crate::schema::table::Scope;
    use crate::testing::{object, object_text};

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
        resources(&Definition::read(&object), &object, &KUBERNETES)
    }

    #[test]
    fn served_versions_share_the_storage_of_one() {
        let made = made(DEFINITION).unwrap();
        let [v1, v2] = &*made else { panic!("{} versions", made.len()) };
        assert_eq!((&*v1.api_version, &*v2.api_version), ("g.example/v1", "g.example/v2"));
        assert_eq!((v1.table.scope, &*v1.table.list_kind), (Scope::Cluster, "ThingList"));
        let names: Vec<_> = v1.subresources.iter().map(|subresource| subresource.table.name).collect();
        assert_eq!((names, v2.subresources.len()), (vec!["scale", "status"], 0));
        assert!(v1.is_stored_form() && !v2.is_stored_form());
        assert_eq!(v2.storage.as_ref().unwrap().key_prefix, "/custom:g.example/things/");
    }

    #[test]
    fn a_version_shows_the_fields_that_it_knows() {
        let made = made(DEFINITION).unwrap();
        let text =
            br#"{"kind":"Thing","apiVersion":"g.example/v1","metadata":{"name":"x"},"spec":{"a":"b","n":1}}"#;
        let stored = decode(&made[0].table.message, text).unwrap().object;
        let shown = crate::convert::to_served(&made[1], stored, &KUBERNETES).unwrap();
        assert_eq!(
            object_text(&shown),
            r#"{"kind":"Thing","apiVersion":"g.example/v2","metadata":{"name":"x"},"spec":{"a":"b"}}"#
        );
        let back = crate::convert::to_stored(&made[1], shown, &KUBERNETES).unwrap();
        assert_eq!(back.get("apiVersion"), Some(&Value::from("g.example/v1")));
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
