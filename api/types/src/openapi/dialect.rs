//! The dialects of OpenAPI, and parts of schemas that depend on them.

use crate::schema::registry::{Resource, Subresource};
use crate::schema::table::{SubresourceTable, Text};
use values::json::{Object, Value};

/// Stem of the package of metadata types.
pub(super) const META: &str = "apimachinery.pkg.apis.meta.v1";

/// The version of OpenAPI.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dialect {
    /// OpenAPI 2.0, also known as Swagger.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Dialect {
    /// Returns the prefix of references to definitions.
    pub(super) fn reference_prefix(self) -> &'static str {
        match self {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        }
    }
}

/// Group, version and kind of a body.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Gvk {
    /// Full group name; empty for the core group.
    pub group: String,
    pub version: Text,
    pub kind: Text,
}

impl Gvk {
    /// Returns the kind of a resource's objects.
    pub(super) fn of_objects(resource: &Resource) -> Self {
        let kind = resource.table.kind.clone();
        Gvk { group: resource.group.clone(), version: resource.version.clone(), kind }
    }

    /// Returns the kind of a resource's lists.
    pub(super) fn of_list(resource: &Resource) -> Self {
        Gvk { kind: resource.table.list_kind.clone(), ..Gvk::of_objects(resource) }
    }

    /// Returns the kind of a subresource's body.
    pub(super) fn of_body(subresource: &Subresource) -> Self {
        let SubresourceTable { version, kind, .. } = &subresource.table;
        Gvk { group: subresource.group.clone(), version: version.clone(), kind: kind.clone() }
    }
}

/// Returns group, version and kind as the extensions write them.
pub(super) fn gvk_value(gvk: &Gvk) -> Value {
    let text = |text: &str| Value::String(text.to_owned());
    let members = [
        ("group".into(), text(&gvk.group)),
        ("kind".into(), text(&gvk.kind)),
        ("version".into(), text(&gvk.version)),
    ];
    Object::from_iter(members).into()
}

pub(super) fn push_text(schema: &mut Object, name: &'static str, text: &str) {
    if !text.is_empty() {
        schema.push(name, text.into());
    }
}
