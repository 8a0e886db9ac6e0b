//! Stored definitions: whether the types of a definition are served, and the registry that a set of
//! definitions gives.
//!
//! ```text
//! text of a record ─┬─ outline ─► Prepared, schemas are read on first use ─┐
//!                   └─ unusual: whole text ─► Prepared ────────────────────┴─► Established ─► Registry
//! ```

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::definition::Definition;
use super::definition::conditions::finalizer;
use super::definition::naming::ESTABLISHED;
use super::established::{Established, Prepared, RegistryChanges};
use super::outline::outline;
use types::schema::registry::{Priorities, Registry};
use types::schema::share::Pool;
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::{finalizers, meta};

/// Returns whether the deletion of a definition was requested.
pub fn is_deleted(object: &Object) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// Returns whether the definition has the finalizer that waits for the deletion of its objects.
pub fn holds(naming: &Naming, object: &Object) -> bool {
    finalizers(object).contains(&&*finalizer(naming))
}

/// Returns whether the types of a definition are served: from the time when the definition is established
/// until its objects are deleted.
pub fn is_served(naming: &Naming, object: &Object, definition: &Definition) -> bool {
    let is_there = !is_deleted(object) || holds(naming, object);
    is_there && definition.is(ESTABLISHED)
}

/// Parses a definition without its schemas. Returns `None` if the text is not canonical.
pub fn outlined(text: &[u8]) -> Option<Object> {
    parsed(&outline(text)?)
}

/// Parses a definition. The text is canonical, so the result equals the result of decoding by the schema.
pub fn parsed(text: &[u8]) -> Option<Object> {
    match json::parse(text) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// Prepares a definition; returns `None` if its types are not served. If the types cannot be made, the server
/// logs an error.
pub fn prepared(naming: &Naming, text: &Bytes, pool: &Arc<Mutex<Pool>>) -> Option<Prepared> {
    let Some(outlined) = outlined(text) else { return prepared_at_once(naming, text) };
    let definition = Definition::read(&outlined);
    if !is_served(naming, &outlined, &definition) {
        return None;
    }
    let later = Prepared::deferred(meta(&outlined, "name"), &outlined, &definition, Bytes::clone(text), pool);
    later.or_else(|| prepared_at_once(naming, text))
}

/// Parses and prepares a definition with its schemas; returns `None` if its types are not served.
fn prepared_at_once(naming: &Naming, text: &[u8]) -> Option<Prepared> {
    let object = parsed(text)?;
    let definition = Definition::read(&object);
    if !is_served(naming, &object, &definition) {
        return None;
    }
    let name = meta(&object, "name");
    match Prepared::new(name, &object, &definition) {
        Ok(prepared) => Some(prepared),
        Err(error) => {
            tracing::error!(definition = name, %error, "types of a definition cannot be served");
            None
        }
    }
}

/// Returns a registry with the built-in types of `base` and the custom types of these definitions. The
/// custom types of `base` are not included.
pub fn registry_of<'t>(base: &Registry, definitions: impl IntoIterator<Item = &'t Bytes>) -> Registry {
    let naming = base.naming();
    let (mut established, mut changes) = (Established::default(), RegistryChanges::default());
    for text in definitions {
        let Some(prepared) = prepared(naming, text, established.pool()) else { continue };
        let name = prepared.name().to_owned();
        established.put(prepared, naming, &mut changes);
        if outlined(text).or_else(|| parsed(text)).is_some_and(|object| is_deleted(&object)) {
            established.end(&name, &mut changes);
        }
    }
    let custom: Vec<_> = base.resources().filter(|resource| !resource.is_builtin()).cloned().collect();
    changes.apply(&base.changed(&custom, [], Priorities::CUSTOM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    fn definition(name: &str, metadata: &str, versions: &[&str], established: &str) -> Bytes {
        let names = format!(r#"{{"plural":"{name}","kind":"Thing","listKind":"ThingList"}}"#);
        let versions = versions.iter().enumerate().map(|(at, version)| {
            format!(r#"{{"name":"{version}","served":true,"storage":{},"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}"#, at == 0)
        });
        let versions = versions.collect::<Vec<_>>().join(",");
        Bytes::from(format!(
            r#"{{"metadata":{{"name":"{name}.g.example"{metadata}}},"spec":{{"group":"g.example","scope":"Cluster","names":{names},"versions":[{versions}]}},"status":{{"acceptedNames":{names},"conditions":[{{"type":"Established","status":"{established}"}}]}}}}"#
        ))
    }

    #[test]
    fn registry_of_replaces_the_custom_types_by_those_of_the_given_definitions() {
        let builtin = Registry::new(&KUBERNETES);
        let things =
            |registry: &Registry, version| registry.resource("g.example", version, "things").cloned();
        let first = registry_of(&builtin, &[definition("things", "", &["v1"], "True")]);
        assert!(things(&first, "v1").is_some());
        let states = [
            definition("things", "", &["v2"], "True"),
            definition("others", "", &["v1"], "False"),
            definition("gone", r#","deletionTimestamp":"2026-01-01T00:00:00Z""#, &["v1"], "True"),
        ];
        let second = registry_of(&first, &states);
        assert!(things(&second, "v1").is_none() && things(&second, "v2").is_some());
        assert_eq!(second.resources().count(), builtin.resources().count() + 1);
        assert_eq!(registry_of(&second, &[]).resources().count(), builtin.resources().count());
    }

    #[test]
    fn a_type_whose_definition_is_being_deleted_does_not_offer_create() {
        let metadata = r#","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["customresourcecleanup.apiextensions.k8s.io"]"#;
        let registry =
            registry_of(&Registry::new(&KUBERNETES), &[definition("things", metadata, &["v1"], "True")]);
        let things = registry.resource("g.example", "v1", "things").unwrap();
        assert!(!things.discovery_verbs().contains(&"create"));
    }
}
