//! Parameters of policies: objects that a binding names or selects.

use std::sync::Arc;

use super::typecheck::parameters;
use crate::writes::admission::rules::selects;
use crate::writes::server::store::ObjectStorage;
use types::schema::registry::Resource;
use types::selector::LabelSelector;
use types::served::Served;
use values::json::{Object, Value};
use values::status::Status;

/// The kind of a policy's parameters.
#[derive(Clone, Debug)]
pub struct ParamKind {
    spec: Value,
    api_version: String,
    kind: String,
}

/// The reference of a binding to the parameters of a policy.
#[derive(Debug)]
pub struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<LabelSelector>,
    must_be_found: bool,
}

impl ParamKind {
    /// Reads the kind from the spec of a policy, if present.
    pub fn read(spec: &Value) -> Option<ParamKind> {
        let kind = spec.get("paramKind").filter(|kind| !kind.is_null())?;
        let mut own = Object::new();
        own.insert("paramKind", kind.clone());
        Some(ParamKind {
            spec: own.into(),
            api_version: kind.str_at(&["apiVersion"]).to_owned(),
            kind: kind.str_at(&["kind"]).to_owned(),
        })
    }

    /// Returns the resource of the kind.
    ///
    /// # Errors
    /// Fails if the resource is not served.
    pub fn resource<'s>(&self, served: &'s Served) -> Result<&'s Resource, String> {
        parameters(&self.spec, served.registry()).ok_or_else(|| {
            let api_version = if self.api_version.contains('/') {
                self.api_version.clone()
            } else {
                format!("/{}", self.api_version)
            };
            format!("failed to find resource referenced by paramKind: '{api_version}, Kind={}'", self.kind)
        })
    }
}

impl ParamRef {
    /// Reads the reference from the spec of a binding, if present.
    pub fn read(spec: &Value) -> Option<ParamRef> {
        let reference = spec.get("paramRef").filter(|reference| !reference.is_null())?;
        let selector = reference.get("selector").filter(|selector| !selector.is_null());
        Some(ParamRef {
            name: reference.str_at(&["name"]).to_owned(),
            namespace: reference.str_at(&["namespace"]).to_owned(),
            selector: selector.map(|selector| LabelSelector::from_object(Some(selector)).unwrap_or_default()),
            must_be_found: reference.str_at(&["parameterNotFoundAction"]) == "Deny",
        })
    }

    /// Returns the referenced objects, for a write in `namespace`.
    ///
    /// # Errors
    /// Fails if the reference is invalid, or if an object cannot be read or found.
    pub fn collect(
        &self,
        store: &ObjectStorage,
        resource: &Resource,
        namespace: &str,
    ) -> Result<Vec<Arc<Object>>, String> {
        let namespace = match (resource.namespaced(), &*self.namespace) {
            (true, "") if namespace.is_empty() => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .to_owned(),
                );
            }
            (true, "") => namespace,
            (true, own) => own,
            (false, "") => "",
            (false, _) => {
                return Err(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()
                );
            }
        };
        let found = match (&*self.name, &self.selector) {
            ("", None) => return Err("one of name or selector must be provided".to_owned()),
            ("", Some(selector)) => store.list(resource, namespace).map(|mut objects| {
                objects.retain(|object| selects(selector, object));
                objects
            }),
            (name, _) => store.get(resource, namespace, name).map(|object| object.into_iter().collect()),
        };
        let found = found.map_err(Status::into_message)?;
        if found.is_empty() && self.must_be_found {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
        }
        Ok(found.into_iter().map(Arc::new).collect())
    }
}
