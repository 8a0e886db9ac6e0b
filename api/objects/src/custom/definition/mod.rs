//! Definitions of custom types, parsed once into typed values.
//!
//! ```text
//! CustomResourceDefinition (object) ─ read ─► Definition ─► validation::definition   (may it be stored)
//!                                                 ├───────► naming ─► conditions     (which names it gets)
//!                                                 ├───────► formats                  (warnings for the writer)
//!                                                 └───────► presentation             (how its objects are shown)
//! ```
//!
//! Absent strings and lists are read as empty. The parser also accepts a definition that was not validated: a
//! member of a wrong type counts as absent. The functions of this module are pure; a controller in another
//! module stores their results.

pub mod approval;
pub mod conditions;
pub mod formats;
pub mod naming;
pub mod presentation;
pub mod rules;
pub mod walk;

use super::schema::Schema;
use values::json::{Object, Value};

/// A definition: its desired types and its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    /// API group of the type.
    pub group: String,
    /// Scope of the objects: `Namespaced` or `Cluster`.
    pub scope: String,
    /// Names that the definition requests.
    pub names: Names,
    /// Versions in the order of the definition.
    pub versions: Vec<DefinitionVersion>,
    /// Conversion of objects between versions.
    pub conversion: Option<CustomConversion>,
    /// Deprecated flag: all versions keep unknown fields.
    pub preserve_unknown_fields: bool,
    /// Names that the definition was granted.
    pub accepted: Names,
    /// Conditions in the status of the definition.
    pub conditions: Vec<Condition>,
    /// Versions in which objects may have been stored.
    pub stored_versions: Vec<String>,
}

/// Names of a type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// Plural name, used in URLs.
    pub plural: String,
    /// Name of a single object.
    pub singular: String,
    /// Short names for command line tools.
    pub short_names: Vec<String>,
    /// Kind of the objects.
    pub kind: String,
    /// Kind of lists of the objects.
    pub list_kind: String,
    /// Categories of resources to which the type belongs.
    pub categories: Vec<String>,
}

/// A version of a custom type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DefinitionVersion {
    /// Name of the version, such as `v1`.
    pub name: String,
    /// Whether clients can use the version.
    pub served: bool,
    /// Whether objects are stored in this version.
    pub storage: bool,
    /// Whether clients that use the version get a warning.
    pub deprecated: bool,
    /// Text of the deprecation warning; `None` for the default text.
    pub deprecation_warning: Option<String>,
    /// The member `schema`, which may lack a schema.
    pub validation: Option<Validation>,
    /// Subresources of the objects; `None` if the version declares no subresources.
    pub subresources: Option<Subresources>,
    /// Columns of tables, in order.
    pub columns: Vec<PrinterColumn>,
    /// Paths of fields that field selectors may use.
    pub selectable: Vec<String>,
}

/// The member `schema` of a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// Schema of the objects; `None` if the member is absent.
    pub schema: Option<Schema>,
}

/// Subresources of a version.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subresources {
    /// Whether the type has the subresource `/status`.
    pub status: bool,
    /// Paths for the subresource `/scale`; `None` if the type does not have the subresource.
    pub scale: Option<Scale>,
}

/// Paths that `/scale` uses, as simple JSON paths.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scale {
    /// Path of the desired number of replicas.
    pub spec_replicas_path: String,
    /// Path of the actual number of replicas.
    pub status_replicas_path: String,
    /// Path of the label selector, which is a string.
    pub label_selector_path: Option<String>,
}

/// A column of tables.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PrinterColumn {
    /// Header of the column.
    pub name: String,
    /// JSON type of the cells.
    pub kind: String,
    /// Format of the cells, as in OpenAPI.
    pub format: String,
    /// Description of the column's content.
    pub description: String,
    /// Priority of the column; 0 means always shown.
    pub priority: i64,
    /// JSON path of the cell in the object.
    pub json_path: String,
}

/// Conversion of objects between versions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CustomConversion {
    /// Strategy of conversion: `None` or `Webhook`.
    pub strategy: String,
    /// Address of the conversion webhook, if the definition has one.
    pub client: Option<WebhookClient>,
    /// Versions of the review that the webhook supports.
    pub review_versions: Vec<String>,
}

/// Address of a webhook and its certificate authorities.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WebhookClient {
    /// URL of the webhook. A webhook with a URL has no `service`.
    pub url: Option<String>,
    /// Service of the webhook. A webhook with a service has no `url`.
    pub service: Option<ServiceReference>,
    /// Certificate authorities as base64 of PEM.
    pub ca_bundle: String,
}

/// Reference to a service that the server calls.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServiceReference {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub name: String,
    /// URL path of the call.
    pub path: Option<String>,
    /// Port of the service.
    pub port: i64,
}

/// A condition in the status of a definition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Condition {
    /// Type of the condition, such as `Established`.
    pub kind: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason of the status, as one word.
    pub reason: String,
    /// Reason of the status, as a message for people.
    pub message: String,
    /// Time of the last change of status; empty if unknown.
    pub last_transition_time: String,
}

/// Tells which parts all versions of a definition have in common.
///
/// Common parts are validated once and reported at `spec.validation`, `spec.subresources` and so on. Other
/// parts are validated for each version, below `spec.versions`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Shared {
    /// Whether all versions have the same schema.
    pub validation: bool,
    /// Whether all versions have the same subresources.
    pub subresources: bool,
    /// Whether all versions have the same columns.
    pub columns: bool,
    /// Whether all versions have the same selectable fields, which depend on the schema.
    pub selectable: bool,
}

impl Definition {
    /// Reads a definition from its object.
    pub fn read(object: &Object) -> Definition {
        let member = |name: &str| object.get(name).unwrap_or(&Value::Null);
        let (spec, status) = (member("spec"), member("status"));
        Definition {
            group: text(spec, "group"),
            scope: text(spec, "scope"),
            names: Names::read(spec.get("names")),
            versions: items(spec, "versions").iter().map(DefinitionVersion::read).collect(),
            conversion: object_at(spec, "conversion").map(CustomConversion::read),
            preserve_unknown_fields: flag(spec, "preserveUnknownFields"),
            accepted: Names::read(status.get("acceptedNames")),
            conditions: items(status, "conditions").iter().map(Condition::read).collect(),
            stored_versions: texts(status, "storedVersions"),
        }
    }

    /// Returns which parts all versions have in common. Without versions, no part is common.
    pub fn shared(&self) -> Shared {
        let Some((first, others)) = self.versions.split_first() else { return Shared::default() };
        let validation = others.iter().all(|other| other.validation == first.validation);
        Shared {
            validation,
            subresources: others.iter().all(|other| other.subresources == first.subresources),
            columns: others.iter().all(|other| other.columns == first.columns),
            selectable: validation && others.iter().all(|other| other.selectable == first.selectable),
        }
    }

    /// Returns the schemas of all versions that have a schema.
    pub fn schemas(&self) -> impl Iterator<Item = &Schema> {
        self.versions.iter().filter_map(DefinitionVersion::schema)
    }

    /// Returns the storage version.
    pub fn storage_version(&self) -> Option<&DefinitionVersion> {
        self.versions.iter().find(|version| version.storage)
    }

    /// Returns the condition with this type, if there is one.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Returns whether a condition has the status `True`.
    pub fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }
}

impl DefinitionVersion {
    /// Returns the schema, if there is one.
    pub fn schema(&self) -> Option<&Schema> {
        self.validation.as_ref().and_then(|validation| validation.schema.as_ref())
    }

    /// Returns whether there is a subresource `/status`.
    pub fn has_status(&self) -> bool {
        self.subresources.as_ref().is_some_and(|subresources| subresources.status)
    }

    fn read(value: &Value) -> DefinitionVersion {
        DefinitionVersion {
            name: text(value, "name"),
            served: flag(value, "served"),
            storage: flag(value, "storage"),
            deprecated: flag(value, "deprecated"),
            deprecation_warning: optional_text(value, "deprecationWarning"),
            validation: object_at(value, "schema").map(|validation| Validation {
                schema: object_at(validation, "openAPIV3Schema").map(Schema::read),
            }),
            subresources: object_at(value, "subresources").map(Subresources::read),
            columns: items(value, "additionalPrinterColumns").iter().map(PrinterColumn::read).collect(),
            selectable: items(value, "selectableFields")
                .iter()
                .map(|field| text(field, "jsonPath"))
                .collect(),
        }
    }
}

impl Names {
    fn read(value: Option<&Value>) -> Names {
        let value = value.unwrap_or(&Value::Null);
        Names {
            plural: text(value, "plural"),
            singular: text(value, "singular"),
            short_names: texts(value, "shortNames"),
            kind: text(value, "kind"),
            list_kind: text(value, "listKind"),
            categories: texts(value, "categories"),
        }
    }

    /// Returns the names as a member of the definition's object. Empty optional names are left out.
    pub fn to_value(&self) -> Value {
        let mut names = Object::new();
        names.push("plural", self.plural.as_str().into());
        if !self.singular.is_empty() {
            names.push("singular", self.singular.as_str().into());
        }
        if !self.short_names.is_empty() {
            names.push("shortNames", self.short_names.as_slice().into());
        }
        names.push("kind", self.kind.as_str().into());
        if !self.list_kind.is_empty() {
            names.push("listKind", self.list_kind.as_str().into());
        }
        if !self.categories.is_empty() {
            names.push("categories", self.categories.as_slice().into());
        }
        names.into()
    }
}

impl Subresources {
    fn read(value: &Value) -> Subresources {
        let scale = object_at(value, "scale").map(|scale| Scale {
            spec_replicas_path: text(scale, "specReplicasPath"),
            status_replicas_path: text(scale, "statusReplicasPath"),
            label_selector_path: optional_text(scale, "labelSelectorPath"),
        });
        Subresources { status: object_at(value, "status").is_some(), scale }
    }
}

impl PrinterColumn {
    fn read(value: &Value) -> PrinterColumn {
        PrinterColumn {
            name: text(value, "name"),
            kind: text(value, "type"),
            format: text(value, "format"),
            description: text(value, "description"),
            priority: value.get("priority").and_then(Value::as_i64).unwrap_or(0),
            json_path: text(value, "jsonPath"),
        }
    }
}

impl CustomConversion {
    fn read(value: &Value) -> CustomConversion {
        let webhook = value.get("webhook").unwrap_or(&Value::Null);
        let client = object_at(webhook, "clientConfig").map(|client| WebhookClient {
            url: optional_text(client, "url"),
            service: object_at(client, "service").map(|service| ServiceReference {
                namespace: text(service, "namespace"),
                name: text(service, "name"),
                path: optional_text(service, "path"),
                port: service.get("port").and_then(Value::as_i64).unwrap_or(0),
            }),
            ca_bundle: text(client, "caBundle"),
        });
        let review_versions = texts(webhook, "conversionReviewVersions");
        CustomConversion { strategy: text(value, "strategy"), client, review_versions }
    }
}

impl Condition {
    fn read(value: &Value) -> Condition {
        Condition {
            kind: text(value, "type"),
            status: text(value, "status"),
            reason: text(value, "reason"),
            message: text(value, "message"),
            last_transition_time: text(value, "lastTransitionTime"),
        }
    }
}

fn text(value: &Value, name: &str) -> String {
    value.str_at(&[name]).to_owned()
}

fn optional_text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn object_at<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.get(name).filter(|value| value.as_object().is_some())
}

fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).unwrap_or_default()
}

fn texts(value: &Value, name: &str) -> Vec<String> {
    items(value, name).iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn settings_that_all_versions_have_in_common_are_shared() {
        let shared = |validation, subresources, columns, selectable| Shared {
            validation,
            subresources,
            columns,
            selectable,
        };
        for (versions, want) in [
            ("", shared(false, false, false, false)),
            (r#"{"name":"v1"}"#, shared(true, true, true, true)),
            (r#"{"schema":{}},{"schema":{"openAPIV3Schema":{}}}"#, shared(false, true, true, false)),
            (r#"{"subresources":{"status":{}}},{"subresources":{}}"#, shared(true, false, true, true)),
            (
                r#"{"additionalPrinterColumns":[]},{"additionalPrinterColumns":null}"#,
                shared(true, true, true, true),
            ),
            (r#"{"selectableFields":[{"jsonPath":".a"}]},{}"#, shared(true, true, true, false)),
        ] {
            let definition = Definition::read(&object(&format!(r#"{{"spec":{{"versions":[{versions}]}}}}"#)));
            assert_eq!(definition.shared(), want, "{versions}");
        }
    }
}
