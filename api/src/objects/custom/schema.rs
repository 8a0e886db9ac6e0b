//! The tree of a custom schema: the JSON Schema of one version of a definition, as the definition states it.
//!
//! ```text
//! definition's value ─ read ─► Schema ─► rules of structural schemas   (what a definition may contain)
//!                                  └───► the types of its objects
//! ```
//!
//! The tree has every keyword, those that structural schemas forbid too, and judges none of them. Absent texts, lists
//! and maps are the same as empty ones, as everywhere in the definition's own type; `default` and `example` are absent
//! where they are `null`. Lists keep the order of the definition; maps are sorted by name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::values::json::{Object, Value};

/// One node of the tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// `id`.
    pub id: String,
    /// `$schema`.
    pub dialect: String,
    /// `$ref`.
    pub reference: Option<String>,
    /// `description`.
    pub description: String,
    /// `title`.
    pub title: String,
    /// `type`, by its name in JSON Schema; empty without one.
    pub kind: String,
    /// `format`.
    pub format: String,
    /// `nullable`.
    pub nullable: bool,
    /// `default`.
    pub default: Option<Value>,
    /// `example`.
    pub example: Option<Value>,
    /// `externalDocs`: description and address.
    pub external_docs: Option<ExternalDocs>,
    /// `enum`; empty for any value.
    pub enumeration: Vec<Value>,

    /// `maximum`.
    pub maximum: Option<f64>,
    /// `exclusiveMaximum`: the maximum itself is refused.
    pub exclusive_maximum: bool,
    /// `minimum`.
    pub minimum: Option<f64>,
    /// `exclusiveMinimum`: the minimum itself is refused.
    pub exclusive_minimum: bool,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `maxLength`, in characters.
    pub max_length: Option<i64>,
    /// `minLength`, in characters.
    pub min_length: Option<i64>,
    /// `pattern`, in the syntax of RE2.
    pub pattern: String,
    /// `maxItems`.
    pub max_items: Option<i64>,
    /// `minItems`.
    pub min_items: Option<i64>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `maxProperties`.
    pub max_properties: Option<i64>,
    /// `minProperties`.
    pub min_properties: Option<i64>,
    /// `required`.
    pub required: Vec<String>,

    /// `items`.
    pub items: Option<Items>,
    /// `additionalItems`.
    pub additional_items: Option<Additional>,
    /// `properties`. There are many, and a node is large: it stays where it is while the map is made.
    pub properties: BTreeMap<String, Box<Schema>>,
    /// `additionalProperties`.
    pub additional_properties: Option<Additional>,
    /// `patternProperties`.
    pub pattern_properties: BTreeMap<String, Schema>,
    /// `definitions`.
    pub definitions: BTreeMap<String, Schema>,
    /// `dependencies`.
    pub dependencies: BTreeMap<String, Dependency>,

    /// `allOf`.
    pub all_of: Vec<Schema>,
    /// `anyOf`.
    pub any_of: Vec<Schema>,
    /// `oneOf`.
    pub one_of: Vec<Schema>,
    /// `not`.
    pub not: Option<Box<Schema>>,

    /// `x-kubernetes-preserve-unknown-fields`; the explicit `false` is not allowed.
    pub preserve_unknown_fields: Option<bool>,
    /// `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-list-type`.
    pub list_type: Option<String>,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`.
    pub map_type: Option<String>,
    /// `x-kubernetes-validations`.
    pub validations: Vec<Rule>,
}

/// `items`: one schema for all elements, or one for each place.
#[derive(Clone, Debug, PartialEq)]
pub enum Items {
    /// That of all elements.
    All(Box<Schema>),
    /// Those of the first elements, in order; not allowed in structural schemas.
    Each(Vec<Schema>),
}

/// `additionalProperties` and `additionalItems`: whether others are allowed, or what they look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Additional {
    /// Whether there may be any.
    Allowed(bool),
    /// What they look like.
    Schema(Box<Schema>),
}

/// `dependencies`: what the presence of a property asks of the object.
#[derive(Clone, Debug, PartialEq)]
pub enum Dependency {
    /// A schema that the object satisfies.
    Schema(Box<Schema>),
    /// Other properties that are there.
    Properties(Vec<String>),
}

/// `externalDocs`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExternalDocs {
    /// What is found there.
    pub description: String,
    /// The address.
    pub url: String,
}

/// One rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rule {
    /// The expression.
    pub rule: String,
    /// What is said of a value that breaks the rule; empty for a sentence made of the rule.
    pub message: String,
    /// An expression that makes that sentence; empty without one.
    pub message_expression: String,
    /// Reason of the error.
    pub reason: Option<String>,
    /// Path below the node that the error names; empty for the node itself.
    pub field_path: String,
    /// Whether the rule runs without an old value, too, and sees it as an optional.
    pub optional_old_self: Option<bool>,
}

impl Schema {
    /// Returns the tree of a value that has the type of a schema in definitions, as decoding makes it.
    /// Members that are unknown or of a wrong type are passed over.
    ///
    /// Recursion is as deep as the value, which no reader lets exceed
    /// [`DEPTH_MAX`](crate::values::json::DEPTH_MAX).
    pub fn read(value: &Value) -> Schema {
        let mut schema = Schema::default();
        for (name, value) in value.as_object().into_iter().flat_map(Object::iter) {
            schema.keyword(name, value);
        }
        schema
    }

    /// Returns whether unknown fields are kept.
    pub fn preserves_unknown_fields(&self) -> bool {
        self.preserve_unknown_fields == Some(true)
    }

    /// Returns whether the schema of an object describes its kind, its version and both names in its metadata
    /// itself.
    pub fn describes_object(&self) -> bool {
        let is_text = |schema: &Schema, names: [&str; 2]| {
            let text = |name: &str| schema.properties.get(name).is_some_and(|part| part.kind == "string");
            names.into_iter().all(text)
        };
        let metadata = self.properties.get("metadata").filter(|metadata| metadata.kind == "object");
        is_text(self, ["kind", "apiVersion"])
            && metadata.is_some_and(|metadata| is_text(metadata, ["name", "generateName"]))
    }

    /// Returns the schema by which rules know a member. Kind, version and metadata of an object are known by
    /// what all objects have, which of metadata is the names, unless the schema describes them.
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
            "default" => self.default = given(value),
            "example" => self.example = given(value),
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
                // `x-<word>-<extension>`: the definition's type knows one word only.
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
            "validations" => self.validations = elements(value).iter().map(Rule::read).collect(),
            _ => {}
        }
    }
}

impl Rule {
    fn read(value: &Value) -> Rule {
        let member = |name| value.str_at(&[name]).to_owned();
        Rule {
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

fn given(value: &Value) -> Option<Value> {
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
    use crate::testing::object;

    fn read(text: &str) -> Schema {
        Schema::read(&Value::Object(object(text)))
    }

    #[test]
    fn every_keyword_has_its_place() {
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
                let rule = Rule { rule: "r".to_owned(), reason: Some("x".to_owned()), ..Rule::default() };
                s.validations = vec![Rule { optional_old_self: Some(false), ..rule }];
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
    fn rules_know_objects_by_what_all_have_unless_the_schema_describes_it() {
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
    fn members_of_a_wrong_type_are_passed_over() {
        let text = r#"{"type":1,"items":1,"properties":[],"not":[],"maximum":"1","maxItems":1.5,"enum":{},
            "additionalProperties":null,"allOf":{},"required":"a","x-kubernetes-validations":1,"default":null}"#;
        assert_eq!(read(text), Schema::default());
    }
}
