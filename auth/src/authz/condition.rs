//! CEL conditions that select the requests for a webhook authorizer. The conditions read the
//! SubjectAccessReview of a request (docs/api/authorization.md#match-conditions-of-authorizers).

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cel::environment::{Environment, Origin};
use cel::evaluation::Program;
use cel::library::{Library, Version, extensions, standard};
use cel::types::{Type, TypeProvider};
use cel::value::map::OwnedMap;
use cel::value::{Text, Value};
use serde_json::{Map, Value as Json};

use crate::expression_fault::ExpressionFault;

/// Compatibility version, which determines the functions that expressions may use.
const VERSION: Version = Version::new(1, 35);

/// Cost limit of one condition, which corresponds to about 0.1 s.
const COST_MAX: u64 = 1_000_000;

/// Time limit of one condition, in addition to the cost limit.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The environment in which conditions are compiled.
static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let libraries: Vec<Library> = [standard::library()].into_iter().chain(extensions()).collect();
    Environment::new(&libraries, VERSION, Origin::New)
        .with_types(Arc::new(Types))
        .with_variable("request", Type::object(SPEC))
});

const SPEC: &str = "kubernetes.SubjectAccessReviewSpec";
const RESOURCE: &str = "kubernetes.ResourceAttributes";
const NON_RESOURCE: &str = "kubernetes.NonResourceAttributes";
const FIELD_SELECTOR: &str = "kubernetes.FieldSelectorAttributes";
const LABEL_SELECTOR: &str = "kubernetes.LabelSelectorAttributes";
const REQUIREMENT: &str = "kubernetes.SelectorRequirement";

/// The types of the variables in conditions.
struct Types;

impl TypeProvider for Types {
    fn has_type(&self, name: &str) -> bool {
        [SPEC, RESOURCE, NON_RESOURCE, FIELD_SELECTOR, LABEL_SELECTOR, REQUIREMENT].contains(&name)
    }

    fn field_type(&self, name: &str, field: &str) -> Option<Type> {
        let texts = || Type::list(Type::String);
        Some(match (name, field) {
            (SPEC, "resourceAttributes") => Type::object(RESOURCE),
            (SPEC, "nonResourceAttributes") => Type::object(NON_RESOURCE),
            (SPEC, "user" | "uid") => Type::String,
            (SPEC, "groups") => texts(),
            (SPEC, "extra") => Type::map(Type::String, texts()),
            (RESOURCE, "namespace" | "verb" | "group" | "version" | "resource" | "subresource" | "name") => {
                Type::String
            }
            (RESOURCE, "fieldSelector") => Type::object(FIELD_SELECTOR),
            (RESOURCE, "labelSelector") => Type::object(LABEL_SELECTOR),
            (NON_RESOURCE, "path" | "verb") => Type::String,
            (FIELD_SELECTOR | LABEL_SELECTOR, "rawSelector") => Type::String,
            (FIELD_SELECTOR | LABEL_SELECTOR, "requirements") => Type::list(Type::object(REQUIREMENT)),
            (REQUIREMENT, "key" | "operator") => Type::String,
            (REQUIREMENT, "values") => texts(),
            _ => return None,
        })
    }
}

/// Compiled conditions. Without conditions, every request matches.
#[derive(Default)]
pub struct Conditions(Vec<(String, Program)>);

/// Compiles one condition.
///
/// # Errors
/// Fails if the expression is invalid, or if its result is not a Boolean.
pub(super) fn compile(text: &str) -> Result<Program, ExpressionFault> {
    let failed =
        |error: &dyn std::fmt::Display| ExpressionFault::Text(format!("compilation failed: {error}"));
    let checked = ENVIRONMENT.compile(text).map_err(|error| failed(&error))?;
    let found = checked.result_type();
    if !matches!(found, Type::Bool) {
        return Err(ExpressionFault::Text(format!("must evaluate to bool but got {}", found.declared())));
    }
    Program::new(&checked, &ENVIRONMENT).map_err(|error| ExpressionFault::Program(error.to_string()))
}

impl Conditions {
    /// Compiles all conditions.
    ///
    /// # Errors
    /// Returns the error of the first invalid condition.
    pub fn new(texts: &[String]) -> Result<Conditions, String> {
        let programs = texts.iter().map(|text| {
            let program = compile(text).map_err(|fault| fault.to_string())?;
            Ok((text.clone(), program))
        });
        programs.collect::<Result<_, String>>().map(Conditions)
    }

    /// Returns whether all conditions are true for the spec of a review. If a condition is false, the result
    /// is false, even if the evaluation of other conditions fails.
    ///
    /// # Errors
    /// Fails if no condition is false and the evaluation of at least one condition fails.
    pub fn hold(&self, spec: &Map<String, Json>) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let mut errors = Vec::new();
        for (text, program) in &self.0 {
            let variables = vec![("request".to_owned(), request(spec))];
            match program.evaluate_for(&variables, COST_MAX, TIME_MAX).result {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Ok(false),
                Ok(_) => errors.push(format!("cel evaluation error: expression '{text}' is not a condition")),
                Err(error) => {
                    errors.push(format!(
                        "cel evaluation error: expression '{text}' resulted in error: {error}"
                    ));
                }
            }
        }
        go::join_errors(&errors).map_or(Ok(true), Err)
    }
}

/// Converts the spec of a review to a map. An absent string or list becomes empty. Absent request attributes,
/// selectors and members of selectors stay absent.
fn request(spec: &Map<String, Json>) -> Value<'_> {
    let mut request = OwnedMap::default();
    put_texts(&mut request, spec, &["user", "uid"]);
    put(&mut request, "groups", texts(spec.get("groups")));
    let mut extra = OwnedMap::default();
    for (key, values) in spec.get("extra").and_then(Json::as_object).into_iter().flatten() {
        put(&mut extra, key, texts(Some(values)));
    }
    put(&mut request, "extra", Value::map(extra));
    if let Some(given) = spec.get("resourceAttributes").and_then(Json::as_object) {
        let names = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
        let mut attributes = OwnedMap::default();
        put_texts(&mut attributes, given, &names);
        for name in ["fieldSelector", "labelSelector"] {
            if let Some(given) = given.get(name).and_then(Json::as_object)
                && let Some(selector) = selector(given)
            {
                put(&mut attributes, name, selector);
            }
        }
        put(&mut request, "resourceAttributes", Value::map(attributes));
    }
    if let Some(given) = spec.get("nonResourceAttributes").and_then(Json::as_object) {
        let mut attributes = OwnedMap::default();
        put_texts(&mut attributes, given, &["path", "verb"]);
        put(&mut request, "nonResourceAttributes", Value::map(attributes));
    }
    Value::map(request)
}

/// Converts a selector that has a raw text or requirements. A selector without both counts as absent.
fn selector(given: &Map<String, Json>) -> Option<Value<'_>> {
    let mut selector = OwnedMap::default();
    if given.get("rawSelector").and_then(Json::as_str).is_some_and(|raw| !raw.is_empty()) {
        put_texts(&mut selector, given, &["rawSelector"]);
        return Some(Value::map(selector));
    }
    let requirements = given.get("requirements").and_then(Json::as_array).into_iter().flatten();
    let requirements: Vec<Value<'_>> = requirements
        .filter_map(Json::as_object)
        .map(|given| {
            let mut requirement = OwnedMap::default();
            put_texts(&mut requirement, given, &["key", "operator"]);
            put(&mut requirement, "values", texts(given.get("values")));
            Value::map(requirement)
        })
        .collect();
    if requirements.is_empty() {
        return None;
    }
    put(&mut selector, "requirements", Value::list(requirements));
    Some(Value::map(selector))
}

fn put<'v>(map: &mut OwnedMap<'v>, name: &'v str, value: Value<'v>) {
    map.insert(Value::String(Text::Borrowed(name)), value);
}

fn put_texts<'v>(map: &mut OwnedMap<'v>, members: &'v Map<String, Json>, names: &[&'static str]) {
    for name in names {
        let text = members.get(*name).and_then(Json::as_str).unwrap_or_default();
        put(map, name, Value::String(Text::Borrowed(text)));
    }
}

fn texts(list: Option<&Json>) -> Value<'_> {
    let items = list.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    Value::list(items.map(|text| Value::String(Text::Borrowed(text))).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn match_conditions_are_evaluated_on_the_access_review() {
        let spec = json!({
            "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "guarded"},
            "user": "jane", "groups": ["dev"],
        });
        for (texts, want) in [
            (&["request.user == 'jane'"][..], Ok(true)),
            (&["request.user == 'joe'"], Ok(false)),
            (&["has(request.resourceAttributes)", "!has(request.nonResourceAttributes)"], Ok(true)),
            (&["request.resourceAttributes.subresource == ''"], Ok(true)),
            (&["'dev' in request.groups"], Ok(true)),
            (&["request.nonResourceAttributes.path == '/'", "false"], Ok(false)),
        ] {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let got = Conditions::new(&texts).unwrap().hold(spec.as_object().unwrap());
            assert_eq!(got, want, "{texts:?}");
        }
        let ten = format!("[{}]", ["0"; 10].join(","));
        let seven_deep = (0..7).fold("false".to_owned(), |inner, _| format!("{ten}.exists(x, {inner})"));
        let costly = Conditions::new(&[seven_deep]).unwrap();
        let error = costly.hold(spec.as_object().unwrap()).unwrap_err();
        assert!(error.ends_with("operation cancelled: actual cost limit exceeded"), "{error}");
        let failing = Conditions::new(&["request.nonResourceAttributes.path == '/'".to_owned()]).unwrap();
        let error = failing.hold(spec.as_object().unwrap()).unwrap_err();
        assert!(error.starts_with("cel evaluation error: expression 'request.non"), "{error}");
    }

    #[test]
    fn an_invalid_match_condition_is_refused_with_a_reason() {
        for (text, want) in [
            ("'a'", "must evaluate to bool but got string"),
            ("request", "must evaluate to bool but got kubernetes.SubjectAccessReviewSpec"),
            ("null", "must evaluate to bool but got null_type"),
            ("[true]", "must evaluate to bool but got list(bool)"),
            ("request.foo == 'x'", "compilation failed: ERROR: <input>:1:8: undefined field 'foo'"),
            (
                "request.resourceAttributes.fieldSelector.requirements",
                "must evaluate to bool but got list(kubernetes.SelectorRequirement)",
            ),
            ("int('x') == 1", "program instantiation failed: type conversion error from 'string' to 'int'"),
        ] {
            let error = compile(text).map(drop).unwrap_err().to_string();
            assert!(error.starts_with(want), "{text}: {error}");
        }
    }
}
