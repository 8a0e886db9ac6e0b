//! Evaluates the rules of a schema for an object.
//!
//! ```text
//! node with rules ─► each rule: program(self, oldSelf) ─► cost off the budget ─► error, with the rule's own message
//!       └─► nodes below, along the parts of the object
//! ```
//!
//! Nodes that have no rules in or below them are left out. Programs are compiled when a node is first
//! reached. The old value is the value at the same location in the stored object. For an element of a keyed
//! list, the old value is the element with the same keys. Elements of other lists have no old value. The
//! evaluation ends if the budget is exhausted.

use std::cell::OnceCell;
use std::sync::{Arc, OnceLock};

use cel::evaluation::{Activation, Program};
use cel::value::Value;

use super::compile::{RulePrograms, Scope};
use super::declaration::Declaration;
use super::value::{self, ValueType};
use crate::custom::field_path;
use crate::custom::lookup::{Keyed, MemberLookup};
use crate::custom::path::ValuePath;
use crate::custom::schema::{Additional, Items, Schema, SchemaRule};
use crate::custom::unchanged::Unchanged;
use crate::expression::json::json_value;
use crate::expression::run;
use types::schema::table::{Kind, ListType, Message};
use values::cancellation;
use values::field::{ERRORS_MAX, FieldError, FieldErrorKind, is_enough};
use values::json::{self, Object};

/// Maximum total cost of all rules for one object.
pub const OBJECT_COST_MAX: u64 = 10_000_000;

/// Maximum number of evaluations for one object. The limit is needed because a constant rule has no cost but
/// takes time.
const EVALUATIONS_MAX: u64 = 10_000_000;

/// Maximum length in bytes of a message that a rule produces.
const MESSAGE_BYTES_MAX: usize = 5120;

/// The validation rules of the objects of one schema.
#[derive(Debug)]
pub struct Rules(Node);

#[derive(Debug)]
struct Node {
    /// JSON type of the node, for errors that do not contain the value.
    kind: String,
    rules: Vec<SchemaRule>,
    /// For each rule, the path below the node to which its errors refer.
    paths: Vec<String>,
    scope: Option<Declaration>,
    /// Names of the members that rules can access; `None` if the schema of the rules also declares the
    /// values.
    members: Option<Box<[String]>>,
    programs: OnceLock<Vec<Compiled>>,
    properties: Vec<(String, Node)>,
    items: Option<Box<Node>>,
    values: Option<Box<Node>>,
    all_of: Vec<Node>,
}

/// Result of compiling a rule.
#[derive(Debug)]
enum Compiled {
    /// The rule is empty.
    Nothing,
    Refused(String),
    Ready(RulePrograms),
}

impl Rules {
    /// Returns the rules in a schema of objects; `None` if the schema has no rules.
    pub fn from_schema(schema: &Schema) -> Option<Arc<Rules>> {
        Node::from_schema(schema, schema, schema, true).map(|root| Arc::new(Rules(root)))
    }

    /// Evaluates the rules for an object of type `message`. Errors at values that are unchanged from `old`
    /// are warnings.
    pub fn evaluate(&self, message: &Message, new: &Object, old: Option<&Object>) -> Verdict {
        self.evaluate_with(Terms::default(), message, new, old)
    }

    /// Evaluates the rules under the given terms.
    pub fn evaluate_with(
        &self,
        terms: Terms,
        message: &Message,
        new: &Object,
        old: Option<&Object>,
    ) -> Verdict {
        let mut run = Run::new(terms);
        run.update = old.map(|old| (message, old, new));
        let is_exhausted = run.root(&self.0, message, new, old).is_err();
        let cost = (!is_exhausted).then_some(terms.budget - run.left);
        Verdict { errors: run.errors, warnings: run.warnings, cost }
    }
}

/// Evaluates the rules of a schema for any value; `None` if there are no rules.
pub fn evaluate_value(
    schema: &Schema,
    is_object: bool,
    place: ValueType<'_>,
    new: &json::Value,
    old: Option<&json::Value>,
    budget: u64,
) -> Option<Verdict> {
    let node = Node::from_schema(schema, schema, schema, is_object)?;
    let terms = Terms { budget, ratchets: false };
    let mut run = Run::new(terms);
    let is_exhausted = run.node(&node, place, new, old, Location::ROOT).is_err();
    let cost = (!is_exhausted).then_some(budget - run.left);
    Some(Verdict { errors: run.errors, warnings: run.warnings, cost })
}

/// Terms of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Maximum total cost of all rules.
    pub budget: u64,
    /// Whether errors at unchanged values are only warnings.
    pub ratchets: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { budget: OBJECT_COST_MAX, ratchets: true }
    }
}

/// Result of evaluating the rules for an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Reasons why the object is refused.
    pub errors: Vec<FieldError>,
    /// Warnings for the writer.
    pub warnings: Vec<String>,
    /// Total cost of the rules; `None` if a limit ended the evaluation.
    pub cost: Option<u64>,
}

impl Node {
    /// Returns the rules in `rules`. `schema` describes the values, and rules access the values by
    /// `declared`.
    fn from_schema(rules: &Schema, schema: &Schema, declared: &Schema, is_object: bool) -> Option<Node> {
        let below = |rules: &Schema, schema: &Schema, declared: &Schema| {
            Node::from_schema(rules, schema, declared, schema.embedded_resource)
        };
        let property = |name: &String, part: &Schema| {
            below(part, schema.properties.get(name)?, declared.declared_member(is_object, name)?)
        };
        let properties: Vec<(String, Node)> = rules
            .properties
            .iter()
            .filter_map(|(name, part)| Some((name.clone(), property(name, part)?)))
            .collect();
        let items = match (&rules.items, &schema.items, &declared.items) {
            (Some(Items::All(part)), Some(Items::All(item)), Some(Items::All(declared))) => {
                below(part, item, declared).map(Box::new)
            }
            _ => None,
        };
        let values = match (
            &rules.additional_properties,
            &schema.additional_properties,
            &declared.additional_properties,
        ) {
            (
                Some(Additional::Schema(part)),
                Some(Additional::Schema(value)),
                Some(Additional::Schema(declared)),
            ) => below(part, value, declared).map(Box::new),
            _ => None,
        };
        let all_of: Vec<Node> = rules
            .all_of
            .iter()
            .filter_map(|part| Node::from_schema(part, schema, declared, is_object))
            .collect();
        let is_empty = rules.validations.is_empty()
            && properties.is_empty()
            && items.is_none()
            && values.is_none()
            && all_of.is_empty();
        if is_empty {
            return None;
        }
        let path = |rule: &SchemaRule| match &*rule.field_path {
            "" => String::new(),
            path => {
                field_path::resolve(path, schema, true).map_or_else(|_| String::new(), |found| found.text)
            }
        };
        let has_rules = !rules.validations.is_empty();
        Some(Node {
            kind: schema.kind.clone(),
            paths: rules.validations.iter().map(path).collect(),
            rules: rules.validations.clone(),
            scope: has_rules.then(|| Declaration::from_schema(declared, is_object)).flatten(),
            members: (has_rules && !std::ptr::eq(schema, declared))
                .then(|| schema.properties.keys().cloned().collect()),
            programs: OnceLock::new(),
            properties,
            items,
            values,
            all_of,
        })
    }

    /// Returns a value of the node as the rules read it.
    fn value<'v>(&self, place: ValueType<'v>, value: &'v json::Value) -> Value<'v> {
        let (Some(names), json::Value::Object(members)) = (&self.members, value) else {
            return place.value(value);
        };
        let member = |name: &String| Some((Value::string(name.as_str()), json_value(members.get(name)?)));
        Value::map(names.iter().filter_map(member).collect())
    }

    /// Returns the error for a value whose rules could not be evaluated.
    fn failed(&self, path: &ValuePath<'_>, detail: String) -> FieldError {
        FieldError::invalid(format!("{path:#}"), &self.kind.as_str().into(), detail)
    }

    /// Returns the variables of message expressions. The old value is never an optional there. The variable
    /// of the old value exists only if some rule of the node reads the old value.
    fn message_variables<'v>(&self, values: &RuleValues<'v>) -> Variables<'v> {
        let speaks = |compiled: &Compiled| matches!(compiled, Compiled::Ready(ready) if ready.uses_old_self);
        let old = values.before.clone().filter(|_| self.programs().iter().any(speaks));
        Variables { own: values.own.clone(), old }
    }

    fn programs(&self) -> &[Compiled] {
        self.programs.get_or_init(|| {
            let Some(declaration) = &self.scope else { return Vec::new() };
            let scope = Scope::new(declaration.clone());
            self.rules
                .iter()
                .map(|rule| match rule.rule.trim() {
                    "" => Compiled::Nothing,
                    _ => scope.programs(rule).map_or_else(Compiled::Refused, Compiled::Ready),
                })
                .collect()
        })
    }
}

/// A value and its old value, as the rules read them.
struct RuleValues<'v> {
    own: Value<'v>,
    before: Option<Value<'v>>,
    /// The value for error messages; `None` if messages do not contain the value.
    reported: Option<&'v json::Value>,
    /// The value and the values that contain it; `None` for the object itself.
    around: Option<&'v Around<'v>>,
}

/// A value and the values that contain it.
struct Around<'v> {
    value: &'v json::Value,
    above: Option<&'v Around<'v>>,
}

/// Location of a value.
#[derive(Clone, Copy)]
struct Location<'p> {
    path: &'p ValuePath<'p>,
    /// The values that contain the value.
    above: Option<&'p Around<'p>>,
}

impl Location<'_> {
    const ROOT: Location<'static> = Location { path: &ValuePath::Root, above: None };
}

/// The budget is used up, so no further rule may be evaluated.
struct Exhausted;

struct Run<'r> {
    terms: Terms,
    /// Remaining budget.
    left: u64,
    evaluations: u64,
    /// The type of the object, the stored object and the new object.
    update: Option<(&'r Message, &'r Object, &'r Object)>,
    /// Unchanged values, computed by the first query.
    unchanged: OnceCell<Unchanged>,
    errors: Vec<FieldError>,
    warnings: Vec<String>,
}

/// The variables of a rule.
struct Variables<'v> {
    own: Value<'v>,
    old: Option<Value<'v>>,
}

impl<'v> Activation<'v> for Variables<'v> {
    fn variable(&self, name: &str) -> Option<Value<'v>> {
        match name {
            "self" => Some(self.own.clone()),
            "oldSelf" => self.old.clone(),
            _ => None,
        }
    }
}

impl Run<'_> {
    fn new(terms: Terms) -> Self {
        Run {
            terms,
            left: terms.budget,
            evaluations: 0,
            update: None,
            unchanged: OnceCell::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Returns whether a value, or a value that contains it, equals the corresponding value of the stored
    /// object.
    fn is_as_before(&self, around: Option<&Around<'_>>) -> bool {
        let Some((message, old, new)) = self.update else { return false };
        let unchanged = self.unchanged.get_or_init(|| Unchanged::of_object(message, old, new));
        std::iter::successors(around, |around| around.above).any(|around| unchanged.has(around.value))
    }

    /// Evaluates all rules for an object.
    fn root(
        &mut self,
        node: &Node,
        message: &Message,
        new: &Object,
        old: Option<&Object>,
    ) -> Result<(), Exhausted> {
        let values = RuleValues {
            own: value::object(message, new),
            before: old.map(|old| value::object(message, old)),
            reported: None,
            around: None,
        };
        self.rules(node, &values, &ValuePath::Root)?;
        for part in &node.all_of {
            self.root(part, message, new, old)?;
        }
        self.members(node, message, new, old, Location::ROOT)
    }

    /// Evaluates the rules of a node and of the nodes below it.
    fn node(
        &mut self,
        node: &Node,
        place: ValueType<'_>,
        new: &json::Value,
        old: Option<&json::Value>,
        location: Location<'_>,
    ) -> Result<(), Exhausted> {
        cancellation::step();
        if new.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        let path = location.path;
        let around = &Around { value: new, above: location.above };
        if !node.rules.is_empty() {
            let own = node.value(place, new);
            let before = old.map(|old| node.value(place, old));
            let is_reported = !matches!(new, json::Value::Object(_) | json::Value::Array(_));
            let values =
                RuleValues { own, before, reported: is_reported.then_some(new), around: Some(around) };
            self.rules(node, &values, path)?;
        }
        for part in &node.all_of {
            self.node(part, place, new, old, location)?;
        }
        match (new, place.kind) {
            (json::Value::Array(items), Kind::List(list)) => {
                let Some(below) = &node.items else { return Ok(()) };
                let old = match (&list.merge, old.and_then(json::Value::as_array)) {
                    (ListType::Map(keys), Some(old)) => Some(Keyed::new(keys, old)),
                    _ => None,
                };
                let item = ValueType::for_kind(&list.item.kind, list.item.limits.as_deref());
                for (at, value) in items.iter().enumerate() {
                    let old = old.as_ref().and_then(|old| old.get(value));
                    self.node(
                        below,
                        item,
                        value,
                        old,
                        Location { path: &path.index(at), above: Some(around) },
                    )?;
                }
            }
            (json::Value::Object(members), kind) => {
                let old = old.and_then(json::Value::as_object);
                match (kind, &node.values) {
                    (Kind::Map(map), Some(below)) => {
                        let place = ValueType::for_kind(&map.value.kind, map.value.limits.as_deref());
                        let old = old.map(|old| MemberLookup::new(old, members.len()));
                        for (key, value) in members.iter() {
                            let old = old.as_ref().and_then(|old| old.get(key));
                            self.node(
                                below,
                                place,
                                value,
                                old,
                                Location { path: &path.key(key), above: Some(around) },
                            )?;
                        }
                    }
                    (Kind::Message(message), _) => {
                        self.members(node, message, members, old, Location { path, above: Some(around) })?;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Evaluates the rules of the members of a struct.
    fn members(
        &mut self,
        node: &Node,
        message: &Message,
        new: &Object,
        old: Option<&Object>,
        location: Location<'_>,
    ) -> Result<(), Exhausted> {
        let new = MemberLookup::new(new, node.properties.len());
        let old = old.map(|old| MemberLookup::new(old, node.properties.len()));
        for (name, below) in &node.properties {
            let (Some(value), Some(field)) = (new.get(name), message.field(name)) else { continue };
            let place = ValueType::for_kind(&field.kind, field.limits.as_deref());
            let old = old.as_ref().and_then(|old| old.get(name));
            let path = &location.path.child(name);
            self.node(below, place, value, old, Location { path, above: location.above })?;
        }
        Ok(())
    }

    /// Evaluates the rules of a node.
    fn rules(&mut self, node: &Node, values: &RuleValues<'_>, path: &ValuePath<'_>) -> Result<(), Exhausted> {
        if node.rules.is_empty() || node.scope.is_none() {
            return Ok(());
        }
        if self.left == 0 {
            self.errors.push(node.failed(path, OUT_OF_BUDGET.to_owned()));
            return Err(Exhausted);
        }
        for (at, compiled) in node.programs().iter().enumerate() {
            if is_enough(&self.errors) {
                return Err(Exhausted);
            }
            match compiled {
                Compiled::Nothing => {}
                Compiled::Refused(error) => {
                    self.errors.push(node.failed(path, format!("rule compile error: {error}")));
                }
                Compiled::Ready(ready) => self.rule(node, at, ready, values, path)?,
            }
        }
        Ok(())
    }

    /// Evaluates one compiled rule of a node.
    fn rule(
        &mut self,
        node: &Node,
        at: usize,
        ready: &RulePrograms,
        values: &RuleValues<'_>,
        path: &ValuePath<'_>,
    ) -> Result<(), Exhausted> {
        let RuleValues { own, before, reported, around } = values;
        let rule = &node.rules[at];
        let is_optional = rule.optional_old_self == Some(true);
        if ready.uses_old_self && before.is_none() && !is_optional {
            return Ok(());
        }
        let old = match (before, is_optional) {
            (None, true) => Some(Value::Optional(None)),
            (Some(before), true) => Some(Value::some(before.clone())),
            (before, false) => before.clone(),
        };
        self.evaluations += 1;
        if self.evaluations > EVALUATIONS_MAX {
            self.errors.push(node.failed(path, OUT_OF_BUDGET.to_owned()));
            return Err(Exhausted);
        }
        let evaluated = run(&ready.rule, &Variables { own: own.clone(), old });
        if evaluated.cost > self.left {
            self.errors.push(node.failed(path, OUT_OF_BUDGET.to_owned()));
            return Err(Exhausted);
        }
        self.left -= evaluated.cost;
        match evaluated.result {
            Ok(Value::Bool(true)) => return Ok(()),
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                self.errors.push(node.failed(path, evaluation_failure(rule, &text)));
                return if text.starts_with(COST_EXCEEDED) { Err(Exhausted) } else { Ok(()) };
            }
        }
        let refers_to = match (node.paths[at].as_str(), path.to_string()) {
            ("", _) => format!("{path:#}"),
            (below, own) if own.is_empty() => below.to_owned(),
            (below, _) => format!("{path:#}.{below}"),
        };
        let message = match &ready.message {
            None => None,
            Some(program) => match self.message(program, rule, &node.message_variables(values)) {
                Ok(message) => message,
                Err(detail) => {
                    self.errors.push(FieldError::invalid(refers_to, &node.kind.as_str().into(), detail));
                    return Err(Exhausted);
                }
            },
        };
        let detail = message.unwrap_or_else(|| match rule.message.trim() {
            "" => format!("failed rule: {}", rule.rule.trim()),
            message => message.to_owned(),
        });
        let error = broken(rule, refers_to, *reported, detail);
        if self.terms.ratchets && !ready.uses_old_self && self.is_as_before(*around) {
            if self.warnings.len() < ERRORS_MAX {
                self.warnings.push(error.to_string());
            }
        } else {
            self.errors.push(error);
        }
        Ok(())
    }

    /// Returns the result of the message expression; `None` if the result is not a valid message.
    fn message(
        &mut self,
        program: &Program,
        rule: &SchemaRule,
        variables: &Variables<'_>,
    ) -> Result<Option<String>, String> {
        let evaluated = run(program, variables);
        if evaluated.cost > self.left {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further \
                        validation rules will be run"
                .to_owned());
        }
        self.left -= evaluated.cost;
        match evaluated.result {
            Ok(Value::String(text)) => {
                let text = text.trim();
                let is_message = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
                Ok(is_message.then(|| text.to_owned()))
            }
            Ok(_) => Ok(None),
            Err(error) if error.to_string().starts_with(COST_EXCEEDED) => Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {}",
                values::field::go_quote(&rule.message_expression)
            )),
            Err(_) => Ok(None),
        }
    }
}

/// Prefix of the error of an expression whose cost exceeds the limit of one evaluation.
const COST_EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Returns the error text for a rule whose evaluation failed with the error `text`.
fn evaluation_failure(rule: &SchemaRule, text: &str) -> String {
    let message = rule.message.trim();
    let rule_text = if rule.message.is_empty() { rule.rule.trim() } else { message };
    if text.starts_with("no such overload") {
        format!(
            "'{text}': call arguments did not match a supported operator, function or macro signature for rule: \
             {rule_text}"
        )
    } else if text.starts_with(COST_EXCEEDED) {
        format!(
            "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {rule_text}"
        )
    } else {
        format!("{text} evaluating rule: {rule_text}")
    }
}

/// Returns the error of a violated rule. The error does not contain objects and lists.
fn broken(rule: &SchemaRule, path: String, value: Option<&json::Value>, detail: String) -> FieldError {
    let with_value =
        |error: FieldError| if value.is_some() { error } else { FieldError { value: None, ..error } };
    let value = value.unwrap_or(&json::Value::Null);
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
        Some("FieldValueRequired") => FieldError::required(path, detail),
        Some("FieldValueDuplicate") => with_value(FieldError::duplicate(path, value)),
        _ => FieldError {
            kind: FieldErrorKind::Invalid,
            ..with_value(FieldError::invalid(path, value, detail))
        },
    }
}

#[cfg(test)]
#[path = "run_test.rs"]
mod tests;
