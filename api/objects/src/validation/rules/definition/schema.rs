//! Checks the content of a schema, node by node: keywords, list and map types, and validation rules.
//!
//! ```text
//! node ─► keywords ─► nodes below ─► list and map types ─► rules: syntax ─► (no error here or below) compiled, costed
//! ```
//!
//! The errors of compiled rules follow all other errors, as in the reference server.

use hashbrown::HashSet;

use super::cost::{Cardinality, TotalCost};
use super::extension_names::ExtensionNames;
use super::list_keys::{TYPES, key_errors, set_error};
use super::structural::{self, item};
use super::{Options, cost, internal};
use crate::custom::definition::rules::RuleCompiler;
use crate::custom::field_path;
use crate::custom::schema::{Additional, Dependency, Items, Schema, SchemaRule};
use crate::validation::path::FieldPath;
use values::field::{FieldError, is_enough};
use values::json::Value;

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Context of a node, determined by the nodes above it.
#[derive(Clone, Copy)]
struct Scope<'p> {
    /// Reason why the node must not have a default; `None` if a default is permitted.
    no_defaults: Option<NoDefaults<'p>>,
    /// Whether the node is at or below kind, version or metadata of an object.
    inside_metadata: bool,
    /// Path of the first schema above the node whose old and new values cannot be matched.
    uncorrelatable: Option<&'p FieldPath<'p>>,
    /// Number of values of the node that an object can have; `None` if the rules are not compiled.
    cardinality: Option<Cardinality>,
    /// Schema by which rules access the node; `None` if rules cannot access the node.
    declared: Option<&'p Schema>,
}

/// Location at which defaults are not permitted.
#[derive(Clone, Copy)]
enum NoDefaults<'p> {
    TopLevel(&'p str),
    ValuesInMetadata,
}

/// Checks a schema at a path. Rules are compiled if `compiles` is true, which requires a structural schema.
pub(super) fn errors(
    schema: &Schema,
    path: &FieldPath,
    words: &ExtensionNames,
    options: &Options,
    compiles: bool,
) -> Vec<FieldError> {
    let compiler = options.compiler.filter(|_| compiles);
    let mut check = Check {
        words,
        options,
        compiler,
        errors: Vec::new(),
        rule_errors: Vec::new(),
        total: TotalCost::default(),
    };
    let scope = Scope {
        no_defaults: None,
        inside_metadata: false,
        uncorrelatable: None,
        cardinality: compiler.map(|_| Cardinality::ONE),
        declared: Some(schema),
    };
    check.node(schema, path, scope, true);
    let Check { mut errors, rule_errors, total, .. } = check;
    errors.extend(rule_errors);
    errors.extend(total.errors(path, words));
    errors
}

struct Check<'c> {
    words: &'c ExtensionNames,
    options: &'c Options,
    compiler: Option<&'static dyn RuleCompiler>,
    errors: Vec<FieldError>,
    /// Errors of the compiled rules.
    rule_errors: Vec<FieldError>,
    /// Total cost of the compiled rules.
    total: TotalCost,
}

impl Check<'_> {
    fn required(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn invalid(&mut self, path: FieldPath, value: impl Into<Value>, detail: impl Into<String>) {
        self.errors.push(FieldError::invalid(path, &value.into(), detail));
    }

    fn forbidden(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    fn not_supported(&mut self, path: FieldPath, value: &str, supported: &[&str]) {
        self.errors.push(FieldError::not_supported(path, &value.into(), supported));
    }

    fn node(&mut self, schema: &Schema, path: &FieldPath, scope: Scope, is_root: bool) {
        if is_enough(&self.errors) {
            return;
        }
        let before = self.errors.len();
        self.keywords(schema, path, scope);
        self.values_of_maps(schema, path, scope);
        self.properties(schema, path, scope, is_root);
        self.logic(schema, path, scope);
        self.elements(schema, path, scope);
        if schema.preserve_unknown_fields == Some(false) {
            let place = path.child(&self.words.preserve_unknown_fields);
            self.invalid(place, false, "must be true or undefined");
        }
        self.map_type(schema, path);
        self.list_type(schema, path);
        self.keyed_list(schema, path);
        if self.options.checks_keys {
            self.errors.extend(key_errors(schema, path, self.words));
        }
        let rules = path.child(&self.words.validations);
        for (at, rule) in schema.validations.iter().enumerate() {
            self.rule(rule, schema, &rules.index(at));
        }
        if self.errors.len() == before && !schema.validations.is_empty() {
            self.compile(schema, &rules, scope, is_root);
        }
    }

    /// Checks for keywords that are forbidden in all schemas or at this node.
    fn keywords(&mut self, schema: &Schema, path: &FieldPath, scope: Scope) {
        let kind = schema.kind.as_str();
        if self.options.checks_types && !kind.is_empty() && !TYPES.contains(&kind) {
            self.not_supported(path.child("type"), kind, &TYPES);
        }
        if let (Some(_), Some(why)) = (&schema.default, scope.no_defaults) {
            let detail = match why {
                NoDefaults::TopLevel(name) => format!("must not be set in top-level {name}"),
                NoDefaults::ValuesInMetadata => {
                    "must not be set inside additionalProperties applying to object metadata".to_owned()
                }
            };
            self.forbidden(path.child("default"), detail);
        }
        for (name, is_set) in [
            ("id", !schema.id.is_empty()),
            ("additionalItems", schema.additional_items.is_some()),
            ("patternProperties", !schema.pattern_properties.is_empty()),
            ("definitions", !schema.definitions.is_empty()),
            ("dependencies", !schema.dependencies.is_empty()),
            ("$ref", schema.reference.is_some()),
        ] {
            if is_set {
                self.forbidden(path.child(name), format!("{name} is not supported"));
            }
        }
        if kind == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            self.forbidden(path.child("type"), detail);
        }
        if matches!(&schema.items, Some(Items::Each(items)) if !items.is_empty()) {
            self.forbidden(path.child("items"), "items must be a schema object and not an array");
        }
        if scope.inside_metadata && schema.embedded_resource {
            let place = path.child(&self.words.embedded_resource);
            self.forbidden(place, "must not be used inside of resource meta");
        }
        if schema.unique_items {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(path.child("uniqueItems"), detail);
        }
    }

    fn values_of_maps(&mut self, schema: &Schema, path: &FieldPath, scope: Scope) {
        let Some(additional) = &schema.additional_properties else { return };
        let place = path.child("additionalProperties");
        if !schema.properties.is_empty() && *additional != Additional::Allowed(true) {
            self.forbidden(place, "additionalProperties and properties are mutual exclusive");
        }
        if let Additional::Schema(inner) = additional {
            let cardinality = cost::below(scope.cardinality, schema);
            let declared = scope.declared.and_then(values);
            let mut below = Scope { cardinality, declared, ..scope };
            if scope.inside_metadata {
                below.no_defaults = Some(NoDefaults::ValuesInMetadata);
            }
            self.node(inner, &place, below, false);
        }
    }

    fn properties(&mut self, schema: &Schema, path: &FieldPath, scope: Scope, is_root: bool) {
        let properties = path.child("properties");
        for (name, property) in &schema.properties {
            let is_object = is_root || schema.embedded_resource;
            let declared = scope.declared.and_then(|declared| declared.declared_member(is_object, name));
            let cardinality = cost::below(scope.cardinality, schema);
            let mut below = Scope { cardinality, declared, ..scope };
            if !matches!(schema.map_type.as_deref(), None | Some("granular" | "atomic")) {
                below.uncorrelatable = below.uncorrelatable.or(Some(path));
            }
            let is_meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
            if is_meta && is_object {
                below.inside_metadata = true;
                if is_root {
                    below.no_defaults = Some(NoDefaults::TopLevel(name));
                }
            }
            self.node(property, &properties.key(name), below, false);
        }
    }

    /// Checks schemas inside logical keywords. The rules in such schemas are not compiled.
    fn logic(&mut self, schema: &Schema, path: &FieldPath, scope: Scope) {
        let scope = Scope { cardinality: None, ..scope };
        if let Some(inner) = &schema.not {
            self.node(inner, &path.child("not"), scope, false);
        }
        for (name, list) in [("allOf", &schema.all_of), ("oneOf", &schema.one_of), ("anyOf", &schema.any_of)]
        {
            let place = path.child(name);
            for (at, inner) in list.iter().enumerate() {
                self.node(inner, &place.index(at), scope, false);
            }
        }
        let definitions = path.child("definitions");
        for (name, inner) in &schema.definitions {
            self.node(inner, &definitions.key(name), scope, false);
        }
        let dependencies = path.child("dependencies");
        for (name, dependency) in &schema.dependencies {
            if let Dependency::Schema(inner) = dependency {
                self.node(inner, &dependencies.key(name), scope, false);
            }
        }
    }

    fn elements(&mut self, schema: &Schema, path: &FieldPath, scope: Scope) {
        let cardinality = cost::below(scope.cardinality, schema);
        let declared = scope.declared.and_then(item);
        let mut below = Scope { cardinality, declared, ..scope };
        if schema.list_type.as_deref() != Some("map") {
            below.uncorrelatable = below.uncorrelatable.or(Some(path));
        }
        let place = path.child("items");
        match &schema.items {
            Some(Items::All(inner)) => self.node(inner, &place, below, false),
            Some(Items::Each(items)) => {
                for (at, inner) in items.iter().enumerate() {
                    self.node(inner, &place.index(at), below, false);
                }
            }
            None => {}
        }
    }

    /// Checks that a schema with an extension has the type that the extension requires.
    fn must_be(&mut self, kind: &str, extension: &str, schema: &Schema, path: &FieldPath) {
        let detail = format!("must be {kind} if {extension} is specified");
        let place = path.child("type");
        if schema.kind.is_empty() {
            self.required(place, detail);
        } else {
            self.invalid(place, schema.kind.as_str(), detail);
        }
    }

    fn map_type(&mut self, schema: &Schema, path: &FieldPath) {
        let Some(map_type) = schema.map_type.as_deref() else { return };
        let words = self.words;
        if schema.kind != "object" {
            self.must_be("object", &words.map_type, schema, path);
        }
        let supported = ["atomic", "granular"];
        if !supported.contains(&map_type) {
            self.not_supported(path.child(&words.map_type), map_type, &supported);
        }
    }

    fn list_type(&mut self, schema: &Schema, path: &FieldPath) {
        let words = self.words;
        let list_type = schema.list_type.as_deref();
        if let Some(list_type) = list_type {
            if schema.kind != "array" {
                self.must_be("array", &words.list_type, schema, path);
            } else if self.options.checks_sets && list_type == "set" {
                self.errors.extend(set_error(schema, path, words));
            }
            let supported = ["atomic", "set", "map"];
            if !supported.contains(&list_type) {
                self.not_supported(path.child(&words.list_type), list_type, &supported);
            }
        }
        if !schema.list_map_keys.is_empty() && list_type != Some("map") {
            let detail = format!("must be map if {} is non-empty", words.list_map_keys);
            let place = path.child(&words.list_type);
            match list_type {
                None => self.required(place, detail),
                Some(other) => self.invalid(place, other, detail),
            }
        }
    }

    /// Checks that a keyed list has keys, and that its elements have the key fields.
    fn keyed_list(&mut self, schema: &Schema, path: &FieldPath) {
        if schema.list_type.as_deref() != Some("map") {
            return;
        }
        let words = self.words;
        let (items, keys) = (path.child("items"), path.child(&words.list_map_keys));
        if schema.list_map_keys.is_empty() {
            self.required(keys, format!("must not be empty if {} is map", words.list_type));
        }
        let item = match &schema.items {
            None => {
                return self.required(items, format!("must have a schema if {} is map", words.list_type));
            }
            Some(all @ Items::Each(_)) => {
                let detail = format!("must only have a single schema if {} is map", words.list_type);
                return self.invalid(items, internal::items(all), detail);
            }
            Some(Items::All(item)) => item,
        };
        if item.kind != "object" {
            let detail = format!("must be object if parent array's {} is map", words.list_type);
            return self.invalid(items.child("type"), item.kind.as_str(), detail);
        }
        let mut seen = HashSet::new();
        for key in &schema.list_map_keys {
            if is_enough(&self.errors) {
                return;
            }
            let all = || internal::texts(&schema.list_map_keys);
            match item.properties.get(key) {
                Some(property) if matches!(property.kind.as_str(), "array" | "object") => {
                    let detail =
                        format!("must be a scalar type if parent array's {} is map", words.list_type);
                    let properties = items.child("properties");
                    let place = properties.key(key);
                    self.invalid(place.child("type"), item.kind.as_str(), detail);
                }
                Some(_) => {}
                None => self.invalid(keys, all(), "entries must all be names of item properties"),
            }
            if !seen.insert(key) {
                self.invalid(keys, all(), "must not contain duplicate entries");
            }
        }
    }

    /// Checks the syntax of a rule.
    fn rule(&mut self, rule: &SchemaRule, schema: &Schema, path: &FieldPath) {
        if is_enough(&self.errors) {
            return;
        }
        let message = rule.message.trim();
        let place = path.child("message");
        if rule.rule.trim().is_empty() {
            self.required(path.child("rule"), "rule is not specified");
        } else if !rule.message.is_empty() && message.is_empty() {
            self.invalid(place, rule.message.as_str(), "must be non-empty if specified");
        } else if has_line_breaks(message) {
            self.invalid(place, rule.message.as_str(), "must not contain line breaks");
        } else if has_line_breaks(rule.rule.trim()) && message.is_empty() {
            self.required(place, "message must be specified if rule contains line breaks");
        }
        if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.required(path.child("messageExpression"), detail);
        }
        if let Some(reason) = rule.reason.as_deref()
            && !REASONS.contains(&reason)
        {
            self.not_supported(path.child("reason"), reason, &REASONS);
        }
        if rule.field_path.is_empty() {
            return;
        }
        let (place, target) = (path.child("fieldPath"), rule.field_path.as_str());
        if target.trim().is_empty() {
            self.invalid(place, target, "must be non-empty if specified");
        }
        if has_line_breaks(target) {
            self.invalid(place, target, "must not contain line breaks");
        }
        if field_path::resolve(target, schema, true).is_err()
            && structural::obstacle(schema, self.words).is_none()
        {
            self.invalid(place, target, "must be a valid path");
        }
    }

    /// Compiles the rules of a node and adds their cost.
    fn compile(&mut self, schema: &Schema, path: &FieldPath, scope: Scope, is_root: bool) {
        let (Some(compiler), Some(cardinality), Some(declared)) =
            (self.compiler, scope.cardinality, scope.declared)
        else {
            return;
        };
        let is_object = is_root || schema.embedded_resource;
        let rules = &schema.validations;
        let compiled = match compiler.compile(rules, declared, is_object, &self.options.stored) {
            Ok(compiled) => compiled,
            Err(error) => {
                let detail = format!(
                    "internal error: failed to construct type information for {} rules: {error}",
                    self.words.validations
                );
                return self.rule_errors.push(FieldError::internal(path, detail));
            }
        };
        for (at, (rule, compiled)) in schema.validations.iter().zip(compiled).enumerate() {
            if is_enough(&self.rule_errors) {
                return;
            }
            let place = path.index(at);
            let in_context = cost::RuleInContext {
                rule,
                compiled: &compiled,
                cardinality,
                limits_each: !self.options.keeps_costs,
                uncorrelatable: scope.uncorrelatable,
            };
            in_context.errors(&place, &mut self.total, &mut self.rule_errors);
        }
    }
}

/// Returns the schema of the values of a map, if there is one.
fn values(schema: &Schema) -> Option<&Schema> {
    match &schema.additional_properties {
        Some(Additional::Schema(value)) => Some(value),
        _ => None,
    }
}

fn has_line_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

#[cfg(test)]
#[path = "schema_test.rs"]
mod tests;
