//! Evaluates `crd` lines: expressions and rules (`x-kubernetes-validations`) on the schemas in a file next to the
//! table.
//!
//! A rule is compiled at its position in the schema, validated with its whole definition as a write would be,
//! and evaluated on objects under the conditions that the line names.

use std::path::Path;

use cel::cost::estimate;
use cel::evaluation::{Limits, Program};
use cel::identifier::{escape, unescape};
use objects::custom::definition::rules::{MessageExpression, RuleCompiler, RuleError, StoredExpressions};
use objects::custom::field_path;
use objects::custom::resource;
use objects::custom::rules::value::{ValueType, object as value_of};
use objects::custom::rules::{Compiler, OBJECT_COST_MAX, Rules, Scope, Terms};
use objects::custom::schema::{Additional, Items, Schema, SchemaRule};
use serde_json::{Value as Json, json};
use types::schema::decode::decode;
use types::schema::handle::Ref;
use types::schema::make::ResourceMaker;
use types::schema::registry::Registry;
use types::schema::table::{Message, ResourceTable, Scope as ResourceScope};
use values::naming::KUBERNETES;

use crate::json::from_value;
use crate::policy::{object, tree};

/// Cost limit of an evaluation.
const COST_MAX: u64 = 1_000_000;

/// The schemas that all lines share.
pub struct Fixture {
    schemas: Json,
    registry: Registry,
}

impl Fixture {
    /// Reads the schemas next to a table.
    pub fn next_to(table: &Path) -> std::io::Result<Fixture> {
        let text = std::fs::read_to_string(table.with_file_name("schemas.json"))?;
        Ok(Fixture { schemas: serde_json::from_str(&text)?, registry: Registry::new(&KUBERNETES) })
    }

    /// Returns the output fields of a line; `None` for unknown operations.
    pub fn answer(&self, row: &Json) -> Option<Json> {
        let text = row["expr"].as_str().unwrap_or_default();
        match row["op"].as_str()? {
            "escape" => Some(json!({ "result": optional(escape(text)) })),
            "unescape" => Some(json!({ "result": optional(unescape(text)) })),
            "expr" => self.expression(row),
            "rule" => self.rule(row),
            "validate" => self.validate(row, false),
            "validateRatcheting" => self.validate(row, true),
            _ => None,
        }
    }

    fn schema(&self, row: &Json) -> Json {
        self.schemas[row["schema"].as_str().unwrap_or_default()].clone()
    }

    fn expression(&self, row: &Json) -> Option<Json> {
        let schema = Schema::read(&tree(&self.schema(row)));
        let steps = steps(row);
        let node = at(&schema, &steps)?;
        let declared = declared_at(&schema, &steps)?;
        let Some(scope) = Scope::from_schema(declared, steps.is_empty() || node.embedded_resource) else {
            return Some(json!({ "error": "no type" }));
        };
        let environment = scope.environment(false, &SchemaRule::default());
        let checked = match environment.compile(row["expr"].as_str().unwrap_or_default()) {
            Ok(checked) => checked,
            Err(error) => return Some(json!({ "error": error.to_string() })),
        };
        let cost = estimate(&checked, scope.sizes());
        let of = checked.result_type().declared().to_string();
        let mut out = json!({ "type": of, "estMin": cost.min, "estMax": cost.max });
        let program = match Program::new(&checked, environment) {
            Ok(program) => program,
            Err(error) => {
                out["error"] = format!("program instantiation failed: {error}").into();
                return Some(out);
            }
        };
        let table = table(&schema)?;
        let given = |name: &str| row["vars"].get(name).map(tree);
        let trees: Vec<_> =
            ["self", "oldSelf"].iter().filter_map(|name| Some((*name, given(name)?))).collect();
        let mut variables = Vec::new();
        for (name, tree) in &trees {
            let value = match (place(&table.message, &steps), tree.as_object()) {
                (Some(place), _) => place.value(tree),
                (None, Some(members)) => value_of(&table.message, members),
                (None, None) => return None,
            };
            variables.push(((*name).to_owned(), value));
        }
        let evaluation = program.evaluate(&variables, &Limits::cost(COST_MAX));
        out["cost"] = evaluation.cost.into();
        match evaluation.result {
            Ok(value) => out["result"] = plain(from_value(&value)),
            Err(error) => out["runtimeError"] = error.to_string().into(),
        }
        Some(out)
    }

    fn rule(&self, row: &Json) -> Option<Json> {
        let with_rule = self.with_rule(row)?;
        let schema = Schema::read(&tree(&with_rule));
        let steps = steps(row);
        let node = at(&schema, &steps)?;
        let mut out = json!({});
        let is_object = steps.is_empty() || node.embedded_resource;
        let declared = declared_at(&schema, &steps)?;
        match Compiler.compile(&node.validations, declared, is_object, &StoredExpressions::default()) {
            Err(_) => out["error"] = "failed to convert to declType for CEL validation rules".into(),
            Ok(compiled) => {
                // The rule of the line is the last one.
                let (compiled, rule) = (compiled.last()?, node.validations.last()?);
                match &compiled.error {
                    Some(RuleError::Invalid(text) | RuleError::Required(text)) => {
                        out["error"] = text.as_str().into();
                    }
                    None => {
                        out["estMax"] = compiled.cost.into();
                        out["maxCardinality"] = compiled.cardinality.into();
                    }
                }
                match &compiled.message {
                    Some(MessageExpression::Cost(cost)) => out["msgEstMax"] = (*cost).into(),
                    Some(MessageExpression::Refused(text)) => out["msgError"] = text.as_str().into(),
                    None => {}
                }
                out["usesOldSelf"] = compiled.uses_old_self.into();
                if compiled.error.is_none()
                    && let Ok(found) = field_path::resolve(&rule.field_path, node, true)
                {
                    out["normalizedFieldPath"] = found.text.into();
                }
            }
        }
        let errors = self.definition_errors(&with_rule)?;
        out["valid"] = errors.is_empty().into();
        out["apiErrors"] = errors.into();
        Some(out)
    }

    /// Returns the schema of the line with its rule added.
    fn with_rule(&self, row: &Json) -> Option<Json> {
        let mut schema = self.schema(row);
        let mut node = &mut schema;
        for step in steps(row) {
            node = match step {
                Step::Property(name) => node.get_mut("properties")?.get_mut(&name)?,
                Step::Items => node.get_mut("items")?,
                Step::Values => node.get_mut("additionalProperties")?,
            };
        }
        let rules = node.as_object_mut()?.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        rules.as_array_mut()?.push(row["rule"].clone());
        Some(schema)
    }

    /// Returns the field errors of creating a definition with this schema.
    fn definition_errors(&self, schema: &Json) -> Option<Vec<String>> {
        let resource = self.registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
        let definition = json!({
            "metadata": { "name": "things.example.com" },
            "spec": {
                "group": "example.com",
                "names": { "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
                "scope": "Namespaced",
                "conversion": { "strategy": "None" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
                }],
            },
            "status": { "storedVersions": ["v1"] },
        });
        let decoded = match decode(&resource.table.message, definition.to_string().as_bytes()) {
            Ok(decoded) => decoded.object,
            Err(error) => return Some(vec![error.to_string()]),
        };
        let errors = objects::validation::create(
            &resource.table,
            objects::validation::Settings::new(&KUBERNETES),
            &decoded,
        );
        Some(errors.iter().map(ToString::to_string).collect())
    }

    fn validate(&self, row: &Json, ratchets: bool) -> Option<Json> {
        let schema = Schema::read(&tree(&self.with_rule(row)?));
        let table = table(&schema)?;
        let read = |name: &str| {
            row["vars"].get(name).map(|given| {
                let decoded = decode(&table.message, given.to_string().as_bytes());
                decoded.map_or_else(|_| object(given), |decoded| decoded.object)
            })
        };
        let (new, old) = (read("object")?, read("oldObject"));
        let budget = row["budget"].as_u64().unwrap_or(OBJECT_COST_MAX);
        let mut out = json!({ "valid": true });
        let Some(rules) = Rules::from_schema(&schema) else { return Some(out) };
        let verdict = rules.evaluate_with(Terms { budget, ratchets }, &table.message, &new, old.as_ref());
        out["valid"] = verdict.errors.is_empty().into();
        out["errors"] = verdict.errors.iter().map(ToString::to_string).collect();
        out["warnings"] = verdict.warnings.into();
        if let Some(cost) = verdict.cost {
            out["cost"] = cost.into();
        }
        Some(out)
    }
}

/// Returns a resource table for objects with this schema.
fn table(schema: &Schema) -> Option<Ref<ResourceTable>> {
    let made = resource::object("Thing", schema).ok()?;
    let maker = ResourceMaker::new("example.com", "v1", "things", ResourceScope::Namespaced, made).ok()?;
    Some(maker.make(&KUBERNETES).table.clone())
}

/// A step of the path to a rule in the schema.
enum Step {
    Property(String),
    Items,
    Values,
}

/// Parses a path: `a.b` for properties, `[]` for elements, `{}` for values of maps.
fn steps(row: &Json) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in row["path"].as_str().unwrap_or_default().split('.').filter(|part| !part.is_empty()) {
        let end = part.find(['[', '{']).unwrap_or(part.len());
        let (name, mut rest) = part.split_at(end);
        steps.push(Step::Property(name.to_owned()));
        while rest.len() >= 2 {
            steps.push(if rest.starts_with('[') { Step::Items } else { Step::Values });
            rest = &rest[2..];
        }
    }
    steps
}

fn at<'s>(schema: &'s Schema, steps: &[Step]) -> Option<&'s Schema> {
    steps.iter().try_fold(schema, |schema, step| match (step, &schema.items, &schema.additional_properties) {
        (Step::Property(name), ..) => schema.properties.get(name).map(|property| &**property),
        (Step::Items, Some(Items::All(item)), _) => Some(&**item),
        (Step::Values, _, Some(Additional::Schema(value))) => Some(&**value),
        _ => None,
    })
}

/// Returns the schema that determines which fields a rule can access.
fn declared_at<'s>(schema: &'s Schema, steps: &[Step]) -> Option<&'s Schema> {
    let mut is_object = true;
    steps.iter().try_fold(schema, |schema, step| {
        let below = match step {
            Step::Property(name) => schema.declared_member(is_object, name),
            step => at(schema, std::slice::from_ref(step)),
        };
        is_object = below.is_some_and(|below| below.embedded_resource);
        below
    })
}

/// Returns the type information of a value at that path; `None` for the object itself.
fn place<'t>(message: &'t Message, steps: &[Step]) -> Option<ValueType<'t>> {
    let (first, others) = steps.split_first()?;
    let Step::Property(name) = first else { return None };
    others.iter().try_fold(ValueType::of_field(message, name)?, |place, step| match step {
        Step::Property(name) => place.field(name),
        Step::Items => place.items(),
        Step::Values => place.values(),
    })
}

fn optional(text: Option<String>) -> Json {
    text.map_or_else(|| json!({ "optional": [] }), Json::String)
}

/// Converts tagged objects of a result to plain objects, as in the reference.
fn plain(shown: Json) -> Json {
    match shown {
        Json::Array(items) => items.into_iter().map(plain).collect(),
        Json::Object(members) if members.len() == 1 && members.contains_key("object") => {
            plain(members["object"].clone())
        }
        Json::Object(members) => members.into_iter().map(|(name, value)| (name, plain(value))).collect(),
        other => other,
    }
}
