//! Type checks of an applied configuration: known fields, scalars of the right type, and distinguishable
//! elements (docs/api/apply.md#type-errors-of-a-configuration). All errors are collected. The texts of the errors are
//! the same as in the reference server.

use super::typed::{OwnershipType, Primitive, item_element};
use types::schema::table::{ListType, Message};
use values::cancellation;
use values::field::{ERROR_BYTES_MAX, ERRORS_MAX, Element, go_quote};
use values::json::plain_number;
use values::json::{Object, Value, go_print};

/// A type error with its path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TypeError {
    path: String,
    message: String,
}

impl TypeError {
    /// Creates an error at the current path.
    pub fn new(message: impl Into<String>) -> Self {
        TypeError { path: String::new(), message: message.into() }
    }

    /// Prepends one step to the path of the error.
    #[must_use]
    pub fn within(self, element: Element<'_>) -> Self {
        TypeError { path: format!("{element}{}", self.path), ..self }
    }
}

impl std::fmt::Display for TypeError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// Joins errors into one text. A single error stays unchanged; several errors are written one per line.
pub fn join(errors: &[TypeError]) -> String {
    match errors {
        [error] => error.to_string(),
        errors => {
            let mut text = "errors:".to_owned();
            for error in errors {
                text.push_str("\n  ");
                text.push_str(&error.to_string());
            }
            text
        }
    }
}

/// Collected errors, limited to [`ERRORS_MAX`] and [`ERROR_BYTES_MAX`].
#[derive(Default)]
struct Errors {
    found: Vec<TypeError>,
    /// Total length of the error texts in bytes.
    bytes: usize,
}

impl Errors {
    fn push(&mut self, error: TypeError) {
        if !self.is_enough() {
            self.bytes += error.path.len() + error.message.len();
            self.found.push(error);
        }
    }

    fn is_enough(&self) -> bool {
        self.found.len() >= ERRORS_MAX || self.bytes >= ERROR_BYTES_MAX
    }
}

/// Returns the type errors of `object` against `message`.
pub fn check(message: &Message, object: &Object) -> Vec<TypeError> {
    find_errors(message, object, Checked::Configuration)
}

fn find_errors(message: &Message, object: &Object, checked: Checked) -> Vec<TypeError> {
    let mut errors = Errors::default();
    members(OwnershipType::of_message(message), object, checked, &mut errors);
    errors.found
}

/// Returns the type errors of an object that expressions produced, in which `null` is an ordinary value.
pub fn check_computed(message: &Message, object: &Object) -> Vec<TypeError> {
    find_errors(message, object, Checked::Computed)
}

/// Returns the type errors of a stored object. The schema may be newer than the object, so repeated elements
/// are permitted. A field that the schema no longer declares is dropped when the object is read, so the field
/// is not an error.
pub fn check_live(message: &Message, object: &Object) -> Vec<TypeError> {
    find_errors(message, object, Checked::Live)
}

/// Origin of the object that is checked.
#[derive(Clone, Copy, PartialEq)]
enum Checked {
    /// The configuration of a request.
    Configuration,
    /// An object that expressions produced.
    Computed,
    /// An object from the store.
    Live,
}

fn value(of: OwnershipType<'_>, value: &Value, checked: Checked, errors: &mut Errors) {
    cancellation::step();
    let mut wrong = |expected: &str| {
        errors.push(TypeError::new(format!("expected {expected}, got &{{{}}}", go_text(value))));
    };
    match (of.for_value(value), value) {
        (OwnershipType::Scalar(Primitive::Numeric), Value::Null) if checked == Checked::Computed => {
            errors.push(TypeError::new("expected numeric (int or float), got structpb.NullValue"));
        }
        (OwnershipType::Scalar(Primitive::Text), Value::Null) if checked == Checked::Computed => {
            errors.push(TypeError::new("expected string, got &value.valueUnstructured{Value:0}"));
        }
        (OwnershipType::Scalar(Primitive::Boolean), Value::Null) if checked == Checked::Computed => {
            errors.push(TypeError::new("expected boolean, got &{NULL_VALUE}"));
        }
        (OwnershipType::Struct { .. } | OwnershipType::Map { .. }, Value::Null)
            if checked == Checked::Computed =>
        {
            errors.push(TypeError::new("expected map, got &{NULL_VALUE}"));
        }
        (OwnershipType::List { .. }, Value::Null) if checked == Checked::Computed => {
            errors.push(TypeError::new("expected list, got &{NULL_VALUE}"));
        }
        (_, Value::Null) => {}
        (OwnershipType::Scalar(primitive), value) => scalar(primitive, value, errors),
        (
            OwnershipType::Struct { .. } | OwnershipType::Map { .. } | OwnershipType::Deduced,
            Value::Object(object),
        ) => {
            members(of, object, checked, errors);
        }
        (OwnershipType::Struct { .. } | OwnershipType::Map { .. } | OwnershipType::Deduced, _) => {
            wrong("map")
        }
        (OwnershipType::List { item, list }, Value::Array(values)) => {
            let mut seen: Vec<Element<'_>> = Vec::with_capacity(values.len());
            for (at, item_value) in values.iter().enumerate() {
                if errors.is_enough() {
                    return;
                }
                let element = match list {
                    ListType::Atomic => Element::Index(i64::try_from(at).unwrap_or(i64::MAX)),
                    _ => match item_element(item, list, item_value) {
                        Ok(element) => element,
                        Err(error) => {
                            errors.push(TypeError::new(format!("element {at}: {error}")));
                            return;
                        }
                    },
                };
                below(&element, errors, |errors| {
                    self::value(OwnershipType::of_kind(item), item_value, checked, errors)
                });
                seen.push(element);
            }
            if *list != ListType::Atomic && checked != Checked::Live {
                repeated(seen, errors);
            }
        }
        (OwnershipType::List { .. }, _) => wrong("list"),
    }
}

/// Reports elements that occur more than once in a list.
fn repeated(mut seen: Vec<Element<'_>>, errors: &mut Errors) {
    seen.sort();
    for pair in seen.windows(2).filter(|pair| pair[0] == pair[1]) {
        errors.push(TypeError::new(format!("duplicate entries for key {}", pair[1])));
    }
}

fn members(of: OwnershipType<'_>, object: &Object, checked: Checked, errors: &mut Errors) {
    for (name, member) in object.iter() {
        let element = Element::field(name);
        let Some(of) = of.step(&element) else {
            if checked == Checked::Live {
                continue;
            }
            errors.push(TypeError::new("field not declared in schema").within(element));
            return; // upstream stops at the first error of this struct
        };
        below(&element, errors, |errors| value(of, member, checked, errors));
    }
}

/// Collects the errors of the value at `element` and prepends the step to their paths.
fn below(element: &Element<'_>, errors: &mut Errors, collect: impl FnOnce(&mut Errors)) {
    if errors.is_enough() {
        return;
    }
    let mut inner = Errors::default();
    collect(&mut inner);
    inner.found.into_iter().for_each(|error| errors.push(error.within(element.clone())));
}

fn scalar(primitive: Primitive, value: &Value, errors: &mut Errors) {
    let text = match (primitive, value) {
        (Primitive::Numeric, Value::Int(_) | Value::Float(_))
        | (Primitive::Text, Value::String(_))
        | (Primitive::Boolean, Value::Bool(_))
        | (Primitive::Any, Value::Int(_) | Value::Float(_) | Value::String(_) | Value::Bool(_))
        | (Primitive::Whole, _) => return,
        (Primitive::Numeric, value) => format!("expected numeric (int or float), got {}", value.go_type()),
        (Primitive::Text, value) => {
            format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value))
        }
        (Primitive::Boolean, value) => format!("expected boolean, got &{{{}}}", go_text(value)),
        (Primitive::Any, value) => format!("expected any scalar, got &{{{}}}", go_text(value)),
    };
    errors.push(TypeError::new(text));
}

/// Formats a value like Go's `%v`.
fn go_text(value: &Value) -> String {
    go_print(&read_back(value))
}

/// Returns the value after a round trip through the JSON of the reference server: `value` is written as JSON and read
/// back. Floats without a fraction become integers.
fn read_back(value: &Value) -> Value {
    match value {
        Value::Float(number) => plain_number(*number),
        Value::Array(items) => Value::Array(items.iter().map(read_back).collect()),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.to_owned().into(), read_back(value)));
            members.collect::<Object>().into()
        }
        other => other.clone(),
    }
}

/// Formats a value like Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let mut members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}:{}", go_quote(name), go_syntax(value)))
                .collect();
            members.sort_unstable();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        Value::Null => "interface {}(nil)".to_owned(),
        scalar => go_text(scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::builtin;
    use values::json::parse;
    use values::naming::KUBERNETES;

    #[test]
    fn type_errors_have_the_reference_servers_texts() {
        for (config, want) in [
            (r#"{"spec":{"replicas":3,"template":{"spec":{"containers":[]}}}}"#, ""),
            (r#"{"spec":{"foo":1}}"#, ".spec.foo: field not declared in schema"),
            (r#"{"spec":{"replicas":"3"}}"#, ".spec.replicas: expected numeric (int or float), got string"),
            (
                r#"{"metadata":{"labels":{"a":1}},"spec":{"paused":"x"}}"#,
                "errors:\n  .metadata.labels.a: expected string, got &value.valueUnstructured{Value:1}\n  \
                 .spec.paused: expected boolean, got &{x}",
            ),
            (r#"{"spec":[]}"#, ".spec: expected map, got &{[]}"),
            (
                r#"{"metadata":{"labels":{"a":{"b":[null,1e6]}}},"spec":{"paused":[1234567.5]}}"#,
                "errors:\n  .metadata.labels.a: expected string, got &value.valueUnstructured{Value:map[string]interface \
                 {}{\"b\":[]interface {}{interface {}(nil), 1000000}}}\n  .spec.paused: expected boolean, got \
                 &{[1.2345675e+06]}",
            ),
            (
                r#"{"spec":{"template":{"spec":{"containers":{"a":1}}}}}"#,
                ".spec.template.spec.containers: expected list, got &{map[a:1]}",
            ),
            (
                r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80},{"containerPort":80,"protocol":"TCP"}]}]}}}}"#,
                r#".spec.template.spec.containers[name="a"].ports: duplicate entries for key [containerPort=80,protocol="TCP"]"#,
            ),
            (
                r#"{"spec":{"template":{"spec":{"containers":[null]}}}}"#,
                ".spec.template.spec.containers: element 0: associative list with keys may not have a null element",
            ),
            (
                r#"{"metadata":{"finalizers":["a",["b"]]}}"#,
                ".metadata.finalizers: element 1: not supported: associative list with lists as elements",
            ),
            (
                r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":{}}}}]}}}}"#,
                r#".spec.template.spec.containers[name="a"].resources.limits.cpu: expected any scalar, got &{map[]}"#,
            ),
            (
                r#"{"spec":{"template":{"spec":{"tolerations":[1]}}}}"#,
                ".spec.template.spec.tolerations[0]: expected map, got &{1}",
            ),
            // The decoder reports these errors instead.
            (r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":{"a":1},"maxUnavailable":[1]}}}}"#, ""),
        ] {
            let message = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
            let config = parse(config.as_bytes()).unwrap();
            let errors = check(message, config.as_object().unwrap());
            let got = if errors.is_empty() { String::new() } else { join(&errors) };
            assert_eq!(got, want);
        }
    }

    #[test]
    fn check_live_accepts_unknown_fields_but_no_values_of_another_type() {
        let message = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
        for (live, want) in [
            (r#"{"spec":{"foo":1,"replicas":3}}"#, ""),
            (r#"{"metadata":{"finalizers":["a","a"]}}"#, ""),
            (
                r#"{"spec":{"foo":1,"replicas":"3"}}"#,
                ".spec.replicas: expected numeric (int or float), got string",
            ),
        ] {
            let live = parse(live.as_bytes()).unwrap();
            let errors = check_live(message, live.as_object().unwrap());
            assert_eq!(if errors.is_empty() { String::new() } else { join(&errors) }, want);
        }
    }
}
