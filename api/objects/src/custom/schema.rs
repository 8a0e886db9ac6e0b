//! The tree of a custom schema: the JSON Schema of one version, as the definition declares it.
//!
//! ```text
//! definition's value ─ read ─► Schema ─► rules of structural schemas   (what a definition may contain)
//!                                  └───► the types of its objects
//! ```
//!
//! The tree contains every keyword, including the keywords that structural schemas forbid. Reading the tree
//! does not validate the keywords. Absent strings, lists and maps are read as empty, as everywhere in a
//! definition. A `null` in `default` or `example` means absent. Lists keep the order of the definition, and
//! maps are sorted by name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use values::json::{Object, Value};

/// A node of the schema tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// The keyword `id`; empty if absent.
    pub id: String,
    /// The keyword `$schema`; empty if absent.
    pub dialect: String,
    /// The keyword `$ref`, which structural schemas forbid.
    pub reference: Option<String>,
    /// The keyword `description`; empty if absent.
    pub description: String,
    /// The keyword `title`; empty if absent.
    pub title: String,
    /// The keyword `type` with a type name of JSON Schema; empty if absent.
    pub kind: String,
    /// The keyword `format`; empty if absent.
    pub format: String,
    /// The keyword `nullable`, which permits `null`.
    pub nullable: bool,
    /// The keyword `default`; `null` means absent.
    pub default: Option<Value>,
    /// The keyword `example`; `null` means absent.
    pub example: Option<Value>,
    /// The keyword `externalDocs`, a reference to documentation.
    pub external_docs: Option<ExternalDocs>,
    /// The keyword `enum`; empty if any value is permitted.
    pub enumeration: Vec<Value>,

    /// The keyword `maximum`: upper bound of numbers.
    pub maximum: Option<f64>,
    /// The keyword `exclusiveMaximum`: whether a value equal to the maximum is refused.
    pub exclusive_maximum: bool,
    /// The keyword `minimum`: lower bound of numbers.
    pub minimum: Option<f64>,
    /// The keyword `exclusiveMinimum`: whether a value equal to the minimum is refused.
    pub exclusive_minimum: bool,
    /// The keyword `multipleOf`, a divisor of numbers.
    pub multiple_of: Option<f64>,
    /// The keyword `maxLength`: maximum length of strings in characters.
    pub max_length: Option<i64>,
    /// The keyword `minLength`: minimum length of strings in characters.
    pub min_length: Option<i64>,
    /// The keyword `pattern`, a regular expression in RE2 syntax; empty if absent.
    pub pattern: String,
    /// The keyword `maxItems`: maximum length of lists.
    pub max_items: Option<i64>,
    /// The keyword `minItems`: minimum length of lists.
    pub min_items: Option<i64>,
    /// The keyword `uniqueItems`, which must not be true.
    pub unique_items: bool,
    /// The keyword `maxProperties`: maximum number of members.
    pub max_properties: Option<i64>,
    /// The keyword `minProperties`: minimum number of members.
    pub min_properties: Option<i64>,
    /// The keyword `required`: names of the members that an object must have.
    pub required: Vec<String>,

    /// The keyword `items`: schemas of list elements.
    pub items: Option<Items>,
    /// The keyword `additionalItems`, which structural schemas forbid.
    pub additional_items: Option<Additional>,
    /// The keyword `properties`: schemas of members. The schemas are boxed because a node is large and the
    /// map may have many entries, so that inserting into the map does not move nodes.
    pub properties: BTreeMap<String, Box<Schema>>,
    /// The keyword `additionalProperties`: schema of map values.
    pub additional_properties: Option<Additional>,
    /// The keyword `patternProperties`, which structural schemas forbid.
    pub pattern_properties: BTreeMap<String, Schema>,
    /// The keyword `definitions`, which structural schemas forbid.
    pub definitions: BTreeMap<String, Schema>,
    /// The keyword `dependencies`, which structural schemas forbid.
    pub dependencies: BTreeMap<String, Dependency>,

    /// The keyword `allOf`: schemas that must all match.
    pub all_of: Vec<Schema>,
    /// The keyword `anyOf`: a list of schemas. At least one of the schemas must match.
    pub any_of: Vec<Schema>,
    /// The keyword `oneOf`: a list of schemas. Exactly one of the schemas must match.
    pub one_of: Vec<Schema>,
    /// The keyword `not`: a schema that must not match.
    pub not: Option<Box<Schema>>,

    /// The keyword `x-kubernetes-preserve-unknown-fields`. An explicit `false` is invalid.
    pub preserve_unknown_fields: Option<bool>,
    /// The keyword `x-kubernetes-embedded-resource`: whether the value is a Kubernetes object.
    pub embedded_resource: bool,
    /// The keyword `x-kubernetes-int-or-string`: whether integers and strings are accepted.
    pub int_or_string: bool,
    /// The keyword `x-kubernetes-list-type`: `atomic`, `set` or `map`.
    pub list_type: Option<String>,
    /// The keyword `x-kubernetes-list-map-keys`: names of the key members.
    pub list_map_keys: Vec<String>,
    /// The keyword `x-kubernetes-map-type`: `granular` or `atomic`.
    pub map_type: Option<String>,
    /// The keyword `x-kubernetes-validations`: validation rules of the node.
    pub validations: Vec<SchemaRule>,
}

/// The keyword `items`: one schema for all elements, or one schema for each position.
#[derive(Clone, Debug, PartialEq)]
pub enum Items {
    /// A single schema for all elements.
    All(Box<Schema>),
    /// Schemas of the first elements, in order. Structural schemas forbid this form.
    Each(Vec<Schema>),
}

/// The keywords `additionalProperties` and `additionalItems`, which specify whether other values are
/// permitted, or which schema other values have.
#[derive(Clone, Debug, PartialEq)]
pub enum Additional {
    /// Whether other values are permitted.
    Allowed(bool),
    /// Schema of the other values.
    Schema(Box<Schema>),
}

/// An entry of `dependencies`, which applies to objects that have a property.
#[derive(Clone, Debug, PartialEq)]
pub enum Dependency {
    /// A schema that the object must match.
    Schema(Box<Schema>),
    /// Other properties that the object must have.
    Properties(Vec<String>),
}

/// The keyword `externalDocs`, a reference to documentation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExternalDocs {
    /// Description of the external documentation.
    pub description: String,
    /// URL of the external documentation.
    pub url: String,
}

/// A validation rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SchemaRule {
    /// Source of the rule's expression.
    pub rule: String,
    /// Error message for a value that breaks the rule. If empty, the message is a text that contains the
    /// rule.
    pub message: String,
    /// Source of an expression that returns the error message; empty if absent.
    pub message_expression: String,
    /// Reason of the error, which selects the kind of field error.
    pub reason: Option<String>,
    /// Path below the node to which the error refers; empty for the node itself.
    pub field_path: String,
    /// Whether the rule is also evaluated without an old value. The old value is then an optional.
    pub optional_old_self: Option<bool>,
}

impl Schema {
    /// Reads the tree from a decoded schema of a definition. Ignores members that are unknown or have the
    /// wrong type.
    ///
    /// The recursion depth equals the depth of the value, which all parsers limit to
    /// [`DEPTH_MAX`](values::json::DEPTH_MAX).
    pub fn read(value: &Value) -> Schema {
        let mut schema = Schema::default();
        for (name, value) in value.as_object().into_iter().flat_map(Object::iter) {
            schema.keyword(name, value);
        }
        schema
    }

    /// Returns whether values of this node keep unknown fields.
    pub fn preserves_unknown_fields(&self) -> bool {
        self.preserve_unknown_fields == Some(true)
    }

    /// Returns whether the schema of an object describes the kind, the version, and both names in the
    /// metadata.
    pub fn describes_object(&self) -> bool {
        let is_text = |schema: &Schema, names: [&str; 2]| {
            let text = |name: &str| schema.properties.get(name).is_some_and(|part| part.kind == "string");
            names.into_iter().all(text)
        };
        let metadata = self.properties.get("metadata").filter(|metadata| metadata.kind == "object");
        is_text(self, ["kind", "apiVersion"])
            && metadata.is_some_and(|metadata| is_text(metadata, ["name", "generateName"]))
    }

    /// Returns the schema by which rules access a member. If the schema of an object does not describe kind,
    /// version and metadata itself, rules access kind, version and metadata by a fixed schema. The fixed schema of
    /// metadata contains only the names.
    pub fn declared_member(&self, is_object: bool, name: &str) -> Option<&Schema> {
        static TEXT: LazyLock<Schema> =
            LazyLock::new(|| Schema { kind: "string".to_owned(), ..Schema::default() });
        static METADATA: LazyLock<Schema> = LazyLock::new(|| {
            let names = ["name", "generateName"].map(|name| (name.to_owned(), Box::new(TEXT.clone())));
            Schema { kind: "object".to_owned(), properties: names.into(), ..Schema::default() }
        });
        match name {
            "kind" | "apiVersion" if is_object && !self.describes_object() => Some(&TEXT),
            "metadata" if is_object && !self.describes_object() => Some(&METADATA),
            _ => self.properties.get(name).map(|property| &**property),
        }
    }

    fn keyword(&mut self, name: &str, value: &Value) {
        match name {
            "id" => self.id = text(value),
            "$schema" => self.dialect = text(value),
            "$ref" => self.reference = value.as_str().map(str::to_owned),
            "description" => self.description = text(value),
            "title" => self.title = text(value),
            "type" => self.kind = text(value),
            "format" => self.format = text(value),
            "nullable" => self.nullable = flag(value),
            "default" => self.default = non_null(value),
            "example" => self.example = non_null(value),
            "externalDocs" => {
                let member = |name| value.str_at(&[name]).to_owned();
                self.external_docs =
                    Some(ExternalDocs { description: member("description"), url: member("url") });
            }
            "enum" => self.enumeration = elements(value).to_vec(),
            "maximum" => self.maximum = number(value),
            "exclusiveMaximum" => self.exclusive_maximum = flag(value),
            "minimum" => self.minimum = number(value),
            "exclusiveMinimum" => self.exclusive_minimum = flag(value),
            "multipleOf" => self.multiple_of = number(value),
            "maxLength" => self.max_length = value.as_i64(),
            "minLength" => self.min_length = value.as_i64(),
            "pattern" => self.pattern = text(value),
            "maxItems" => self.max_items = value.as_i64(),
            "minItems" => self.min_items = value.as_i64(),
            "uniqueItems" => self.unique_items = flag(value),
            "maxProperties" => self.max_properties = value.as_i64(),
            "minProperties" => self.min_properties = value.as_i64(),
            "required" => self.required = texts(value),
            "items" => {
                self.items = match value {
                    Value::Object(_) => Some(Items::All(boxed(value))),
                    Value::Array(_) => Some(Items::Each(schemas(value))),
                    _ => None,
                }
            }
            "additionalItems" => self.additional_items = additional(value),
            "properties" => {
                let members = value.as_object().into_iter().flat_map(Object::iter);
                self.properties = members.map(|(name, value)| (name.to_owned(), boxed(value))).collect();
            }
            "additionalProperties" => self.additional_properties = additional(value),
            "patternProperties" => self.pattern_properties = named(value),
            "definitions" => self.definitions = named(value),
            "dependencies" => {
                let members = value.as_object().into_iter().flat_map(Object::iter);
                let dependency = |value: &Value| match value {
                    Value::Array(_) => Dependency::Properties(texts(value)),
                    _ => Dependency::Schema(boxed(value)),
                };
                self.dependencies =
                    members.map(|(name, value)| (name.to_owned(), dependency(value))).collect();
            }
            "allOf" => self.all_of = schemas(value),
            "anyOf" => self.any_of = schemas(value),
            "oneOf" => self.one_of = schemas(value),
            "not" => self.not = value.as_object().map(|_| boxed(value)),
            _ => {
                // Extensions of schemas are named `x-<word>-<extension>`. All extensions have the same
                // `<word>`, so only `<extension>` is compared.
                if let Some((_, extension)) = name.strip_prefix("x-").and_then(|name| name.split_once('-')) {
                    self.extension(extension, value);
                }
            }
        }
    }

    fn extension(&mut self, name: &str, value: &Value) {
        match name {
            "preserve-unknown-fields" => self.preserve_unknown_fields = value.as_bool(),
            "embedded-resource" => self.embedded_resource = flag(value),
            "int-or-string" => self.int_or_string = flag(value),
            "list-type" => self.list_type = value.as_str().map(str::to_owned),
            "list-map-keys" => self.list_map_keys = texts(value),
            "map-type" => self.map_type = value.as_str().map(str::to_owned),
            "validations" => self.validations = elements(value).iter().map(SchemaRule::read).collect(),
            _ => {}
        }
    }
}

impl SchemaRule {
    fn read(value: &Value) -> SchemaRule {
        let member = |name| value.str_at(&[name]).to_owned();
        SchemaRule {
            rule: member("rule"),
            message: member("message"),
            message_expression: member("messageExpression"),
            reason: value.get("reason").and_then(Value::as_str).map(str::to_owned),
            field_path: member("fieldPath"),
            optional_old_self: value.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn flag(value: &Value) -> bool {
    value.as_bool().unwrap_or_default()
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

fn non_null(value: &Value) -> Option<Value> {
    (!value.is_null()).then(|| value.clone())
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    elements(value).iter().map(text).collect()
}

fn boxed(value: &Value) -> Box<Schema> {
    Box::new(Schema::read(value))
}

fn schemas(value: &Value) -> Vec<Schema> {
    elements(value).iter().map(Schema::read).collect()
}

fn named(value: &Value) -> BTreeMap<String, Schema> {
    let members = value.as_object().into_iter().flat_map(Object::iter);
    members.map(|(name, value)| (name.to_owned(), Schema::read(value))).collect()
}

fn additional(value: &Value) -> Option<Additional> {
    match value {
        Value::Bool(allowed) => Some(Additional::Allowed(*allowed)),
        Value::Object(_) => Some(Additional::Schema(boxed(value))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    fn read(text: &str) -> Schema {
        Schema::read(&Value::Object(object(text)))
    }

    #[test]
    fn every_schema_keyword_is_read_into_its_field() {
        type Change = fn(&mut Schema);
        let leaf = || Box::new(Schema { kind: "string".to_owned(), ..Schema::default() });
        assert_eq!(read(r#"{"type":"string"}"#), *leaf());
        let cases: [(&str, Change); 20] = [
            (r#"{"$ref":"/a","$schema":"s","id":"i"}"#, |s| {
                (s.reference, s.dialect, s.id) = (Some("/a".to_owned()), "s".to_owned(), "i".to_owned());
            }),
            (r#"{"default":{"a":null},"example":null,"nullable":true}"#, |s| {
                (s.default, s.nullable) = (Some(Value::Object(object(r#"{"a":null}"#))), true);
            }),
            (r#"{"default":null,"enum":[null,1,"a"]}"#, |s| {
                s.enumeration = vec![Value::Null, Value::Int(1), "a".into()];
            }),
            (r#"{"maximum":3,"minimum":-0.5,"exclusiveMaximum":true}"#, |s| {
                (s.maximum, s.minimum, s.exclusive_maximum) = (Some(3.0), Some(-0.5), true);
            }),
            (r#"{"exclusiveMinimum":true,"multipleOf":2}"#, |s| {
                (s.exclusive_minimum, s.multiple_of) = (true, Some(2.0));
            }),
            (r#"{"maxLength":1,"minLength":0,"pattern":"^a$"}"#, |s| {
                (s.max_length, s.min_length, s.pattern) = (Some(1), Some(0), "^a$".to_owned());
            }),
            (r#"{"maxItems":1,"minItems":2,"uniqueItems":true}"#, |s| {
                (s.max_items, s.min_items, s.unique_items) = (Some(1), Some(2), true);
            }),
            (r#"{"maxProperties":1,"minProperties":2,"required":["b","a"]}"#, |s| {
                (s.max_properties, s.min_properties) = (Some(1), Some(2));
                s.required = vec!["b".to_owned(), "a".to_owned()];
            }),
            (r#"{"items":[{},{}],"additionalItems":false}"#, |s| {
                s.items = Some(Items::Each(vec![Schema::default(); 2]));
                s.additional_items = Some(Additional::Allowed(false));
            }),
            (r#"{"items":[]}"#, |s| s.items = Some(Items::Each(Vec::new()))),
            (r#"{"items":{}}"#, |s| s.items = Some(Items::All(Box::default()))),
            (r#"{"additionalProperties":{},"properties":{"a":{}}}"#, |s| {
                s.additional_properties = Some(Additional::Schema(Box::default()));
                s.properties.insert("a".to_owned(), Box::default());
            }),
            (r#"{"patternProperties":{"a":{}},"definitions":{"b":{}}}"#, |s| {
                s.pattern_properties.insert("a".to_owned(), Schema::default());
                s.definitions.insert("b".to_owned(), Schema::default());
            }),
            (r#"{"dependencies":{"a":["b"],"c":{}}}"#, |s| {
                s.dependencies.insert("a".to_owned(), Dependency::Properties(vec!["b".to_owned()]));
                s.dependencies.insert("c".to_owned(), Dependency::Schema(Box::default()));
            }),
            (r#"{"allOf":[{}],"anyOf":[{},{}],"oneOf":[],"not":{}}"#, |s| {
                (s.all_of, s.any_of) = (vec![Schema::default()], vec![Schema::default(); 2]);
                s.not = Some(Box::default());
            }),
            (r#"{"x-kubernetes-preserve-unknown-fields":false,"x-kubernetes-int-or-string":true}"#, |s| {
                (s.preserve_unknown_fields, s.int_or_string) = (Some(false), true);
            }),
            (r#"{"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}"#, |s| {
                (s.list_type, s.list_map_keys) = (Some("map".to_owned()), vec!["a".to_owned()]);
            }),
            (r#"{"x-kubernetes-map-type":"atomic","x-kubernetes-embedded-resource":true}"#, |s| {
                (s.map_type, s.embedded_resource) = (Some("atomic".to_owned()), true);
            }),
            (r#"{"x-kubernetes-validations":[{"rule":"r","reason":"x","optionalOldSelf":false}]}"#, |s| {
                let rule = SchemaRule {
                    rule: "r".to_owned(),
                    reason: Some("x".to_owned()),
                    ..SchemaRule::default()
                };
                s.validations = vec![SchemaRule { optional_old_self: Some(false), ..rule }];
            }),
            (
                r#"{"title":"t","description":"d","format":"f","externalDocs":{"url":"u"},"other":1,"x-other":2}"#,
                |s| {
                    (s.title, s.description, s.format) = ("t".to_owned(), "d".to_owned(), "f".to_owned());
                    s.external_docs = Some(ExternalDocs { url: "u".to_owned(), ..ExternalDocs::default() });
                },
            ),
        ];
        for (text, change) in cases {
            let mut want = Schema::default();
            change(&mut want);
            assert_eq!(read(text), want, "{text}");
        }
    }

    #[test]
    fn rules_see_the_common_metadata_of_embedded_objects_unless_the_schema_declares_it() {
        let of = |metadata: &str| {
            format!(
                r#"{{"properties":{{"kind":{{"type":"string"}},"apiVersion":{{"type":"string"}},"metadata":{metadata}}}}}"#
            )
        };
        let text = r#"{"type":"string","maxLength":5}"#;
        let names = "generateName name";
        for (schema, is_object, want) in [
            ("{}".to_owned(), true, Some(names)),
            ("{}".to_owned(), false, None),
            (of(r#"{"type":"object"}"#), true, Some(names)),
            (of(&format!(r#"{{"type":"object","properties":{{"name":{text}}}}}"#)), true, Some(names)),
            (
                of(&format!(
                    r#"{{"type":"object","properties":{{"name":{text},"generateName":{text},"labels":{{}}}}}}"#
                )),
                true,
                Some("generateName labels name"),
            ),
            (of(r#"{"type":"object","properties":{"labels":{}}}"#), false, Some("labels")),
        ] {
            let schema = read(&schema);
            let known = schema.declared_member(is_object, "metadata");
            let known = known.map(|known| known.properties.keys().cloned().collect::<Vec<_>>().join(" "));
            assert_eq!(known.as_deref(), want, "{schema:?}");
        }
    }

    #[test]
    fn schema_keywords_with_values_of_the_wrong_type_are_ignored() {
        let text = r#"{"type":1,"items":1,"properties":[],"not":[],"maximum":"1","maxItems":1.5,"enum":{},
            "additionalProperties":null,"allOf":{},"required":"a","x-kubernetes-validations":1,"default":null}"#;
        assert_eq!(read(text), Schema::default());
    }
}
