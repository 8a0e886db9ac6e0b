//! Definitions of custom types, read once into typed values.
//!
//! ```text
//! CustomResourceDefinition (object) ─ read ─► Definition ─► validation::definition   (may it be stored)
//!                                                 ├───────► naming ─► conditions     (which names it gets)
//!                                                 ├───────► formats                  (what its writer is warned of)
//!                                                 └───────► presentation             (how its objects are shown)
//! ```
//!
//! Absent texts and lists read as empty ones. A definition that was not validated reads as well: whatever has another
//! type than it should reads as absent. Functions from values to values; the controller that stores what they say is
//! elsewhere.

pub mod approval;
pub mod conditions;
pub mod formats;
pub mod naming;
pub mod presentation;
pub mod rules;
pub mod walk;

use super::schema::Schema;
use crate::values::json::{Object, Value};

/// A definition: what is wanted, and its state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    /// API group of the type.
    pub group: String,
    /// `Namespaced` or `Cluster`.
    pub scope: String,
    /// The names that are asked for.
    pub names: Names,
    /// The versions, in the order of the definition.
    pub versions: Vec<Version>,
    /// How objects are converted between versions.
    pub conversion: Option<Conversion>,
    /// Kept for old definitions.
    pub preserve_unknown_fields: bool,
    /// The names in use.
    pub accepted: Names,
    /// Conditions of the definition.
    pub conditions: Vec<Condition>,
    /// Versions that objects may be stored in.
    pub stored_versions: Vec<String>,
}

/// Names of a type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// Name in URLs.
    pub plural: String,
    /// Name of one object.
    pub singular: String,
    /// Short names for command lines.
    pub short_names: Vec<String>,
    /// Kind of the objects.
    pub kind: String,
    /// Kind of lists.
    pub list_kind: String,
    /// Sets of resources that it belongs to.
    pub categories: Vec<String>,
}

/// One version of a type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// It is offered to clients.
    pub served: bool,
    /// Objects are stored in it.
    pub storage: bool,
    /// Clients that use it are warned.
    pub deprecated: bool,
    /// What the warning says.
    pub deprecation_warning: Option<String>,
    /// `schema`, which may be there without a schema in it.
    pub validation: Option<Validation>,
    /// Subresources beside the objects.
    pub subresources: Option<Subresources>,
    /// Columns of tables.
    pub columns: Vec<PrinterColumn>,
    /// Paths of the fields that selectors may name.
    pub selectable: Vec<String>,
}

/// What objects of a version look like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// The schema.
    pub schema: Option<Schema>,
}

/// Subresources of a version.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subresources {
    /// There is `/status`.
    pub status: bool,
    /// Where `/scale` finds its numbers.
    pub scale: Option<Scale>,
}

/// Where `/scale` finds its numbers, as simple JSON paths.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scale {
    /// The number wanted.
    pub spec_replicas_path: String,
    /// The number there is.
    pub status_replicas_path: String,
    /// The label selector, as text.
    pub label_selector_path: Option<String>,
}

/// One column of tables.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PrinterColumn {
    /// Header.
    pub name: String,
    /// Type of the cells.
    pub kind: String,
    /// Format of the cells.
    pub format: String,
    /// What the column shows.
    pub description: String,
    /// 0 for columns that are always shown.
    pub priority: i64,
    /// Path of the cell in the object.
    pub json_path: String,
}

/// How objects are converted between versions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conversion {
    /// `None` or `Webhook`.
    pub strategy: String,
    /// How the webhook is called.
    pub client: Option<WebhookClient>,
    /// Versions of the review that the webhook understands.
    pub review_versions: Vec<String>,
}

/// How a webhook is called.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WebhookClient {
    /// By this address,
    pub url: Option<String>,
    /// or as this service.
    pub service: Option<ServiceReference>,
    /// Certificate authorities, as base64 of PEM.
    pub ca_bundle: String,
}

/// A service that is called.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServiceReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The path to call.
    pub path: Option<String>,
    /// The port to call.
    pub port: i64,
}

/// A condition of a definition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Condition {
    /// Which condition.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// When the status last changed; empty when unknown.
    pub last_transition_time: String,
}

/// Which parts all versions of a definition have in common.
///
/// Those are judged once and reported at `spec.validation`, `spec.subresources` and so on; the others version by
/// version, below `spec.versions`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Shared {
    /// Their schema.
    pub validation: bool,
    /// Their subresources.
    pub subresources: bool,
    /// Their columns.
    pub columns: bool,
    /// Their selectable fields; these go with the schema.
    pub selectable: bool,
}

impl Definition {
    /// Returns the definition that an object is.
    pub fn read(object: &Object) -> Definition {
        let member = |name: &str| object.get(name).unwrap_or(&Value::Null);
        let (spec, status) = (member("spec"), member("status"));
        Definition {
            group: text(spec, "group"),
            scope: text(spec, "scope"),
            names: Names::read(spec.get("names")),
            versions: items(spec, "versions").iter().map(Version::read).collect(),
            conversion: object_at(spec, "conversion").map(Conversion::read),
            preserve_unknown_fields: flag(spec, "preserveUnknownFields"),
            accepted: Names::read(status.get("acceptedNames")),
            conditions: items(status, "conditions").iter().map(Condition::read).collect(),
            stored_versions: texts(status, "storedVersions"),
        }
    }

    /// Returns the parts that all versions have in common; none without versions.
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

    /// Returns the schemas of the versions.
    pub fn schemas(&self) -> impl Iterator<Item = &Schema> {
        self.versions.iter().filter_map(Version::schema)
    }

    /// Returns the version that objects are stored in.
    pub fn storage_version(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    /// Returns the condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Returns whether a condition holds.
    pub fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }
}

impl Version {
    /// Returns the schema, if there is one.
    pub fn schema(&self) -> Option<&Schema> {
        self.validation.as_ref().and_then(|validation| validation.schema.as_ref())
    }

    /// Returns whether there is `/status`.
    pub fn has_status(&self) -> bool {
        self.subresources.as_ref().is_some_and(|subresources| subresources.status)
    }

    fn read(value: &Value) -> Version {
        Version {
            name: text(value, "name"),
            served: flag(value, "served"),
            storage: flag(value, "storage"),
            deprecated: flag(value, "deprecated"),
            deprecation_warning: given_text(value, "deprecationWarning"),
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

    /// Returns the names as an object's member; empty optional names are left out.
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
            label_selector_path: given_text(scale, "labelSelectorPath"),
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

impl Conversion {
    fn read(value: &Value) -> Conversion {
        let webhook = value.get("webhook").unwrap_or(&Value::Null);
        let client = object_at(webhook, "clientConfig").map(|client| WebhookClient {
            url: given_text(client, "url"),
            service: object_at(client, "service").map(|service| ServiceReference {
                namespace: text(service, "namespace"),
                name: text(service, "name"),
                path: given_text(service, "path"),
                port: service.get("port").and_then(Value::as_i64).unwrap_or(0),
            }),
            ca_bundle: text(client, "caBundle"),
        });
        let review_versions = texts(webhook, "conversionReviewVersions");
        Conversion { strategy: text(value, "strategy"), client, review_versions }
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

fn given_text(value: &Value, name: &str) -> Option<String> {
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
    use crate::testing::object;

    #[test]
    fn versions_share_what_is_the_same_in_all() {
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
