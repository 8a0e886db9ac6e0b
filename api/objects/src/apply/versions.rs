//! Converts objects to the versions in which managers wrote them (docs/api/apply.md#schema-changes).
//!
//! A field set refers to the fields of one version. To compare an object with the field set, the object is
//! converted to that version through the storage version, as for any client of that version. Versions of
//! custom types are converted to each other as their definition declares.

use crate::conversion::Conversions;
use types::convert;
use types::schema::conform::conform;
use types::schema::registry::{Registry, Resource};
use types::schema::table::Message;
use values::json::{Object, Value};
use values::naming::Naming;

/// A kind in one of its versions.
#[derive(Clone, Copy, Debug)]
pub struct KindVersion<'r> {
    /// Group and version, as in the member `apiVersion`.
    pub api_version: &'r str,
    /// Schema of the kind in this version.
    pub message: &'r Message,
    /// Resource of this version; `None` for the body of a subresource.
    resource: Option<&'r Resource>,
}

/// All versions of one kind, starting from the version of a request.
#[derive(Clone, Copy, Debug)]
pub struct Versions<'r> {
    registry: &'r Registry,
    naming: &'static Naming,
    /// The version of the request.
    pub own: KindVersion<'r>,
    /// Known conversions by webhooks; `None` without webhooks.
    conversions: Option<&'r Conversions>,
}

impl<'r> Versions<'r> {
    /// Creates the versions of a resource.
    pub fn for_resource(registry: &'r Registry, resource: &'r Resource) -> Self {
        let own = KindVersion {
            api_version: &resource.api_version,
            message: &resource.table.message,
            resource: Some(resource),
        };
        Versions { registry, naming: registry.naming(), own, conversions: None }
    }

    /// Sets the known conversions by webhooks.
    #[must_use]
    pub fn with(self, conversions: &'r Conversions) -> Self {
        Versions { conversions: Some(conversions), ..self }
    }

    /// Creates the single version of the body of a subresource.
    pub fn of_body(registry: &'r Registry, api_version: &'r str, message: &'r Message) -> Self {
        let own = KindVersion { api_version, message, resource: None };
        Versions { registry, naming: registry.naming(), own, conversions: None }
    }

    /// Returns the schema in the version of the request.
    pub fn message(&self) -> &'r Message {
        self.own.message
    }

    /// Returns this kind in `api_version`; `None` if that version is not served.
    pub fn at(&self, api_version: &str) -> Option<KindVersion<'r>> {
        if api_version == self.own.api_version {
            return Some(self.own);
        }
        let resource = self.own.resource?;
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let other = self.registry.by_kind(group, version, &resource.table.kind)?;
        let home =
            |resource: &'r Resource| resource.storage.as_ref().map(|storage| storage.key_prefix.as_str());
        (home(other) == home(resource)).then_some(KindVersion {
            api_version: &other.api_version,
            message: &other.table.message,
            resource: Some(other),
        })
    }

    /// Converts an object from one version to another. If both versions are equal, the object stays
    /// unchanged, even if it is invalid.
    ///
    /// Returns `None` if the object does not fit its version or cannot be converted.
    pub fn convert(&self, object: Object, from: KindVersion<'_>, to: KindVersion<'_>) -> Option<Object> {
        if from.api_version == to.api_version {
            return Some(object);
        }
        let object = conform(from.message, Value::Object(object)).ok()?.object;
        if let Some(versions) = &from.resource?.versions {
            return self.conversions?.get(versions, object, to.api_version);
        }
        let stored = convert::to_stored(from.resource?, object, self.naming).ok()?;
        convert::to_served(to.resource?, stored, self.naming).ok()
    }
}
