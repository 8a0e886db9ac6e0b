//! CEL expressions that read the variable `claims` or `user`. The expressions are compiled when the
//! configuration is read, and evaluated for every token.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cel::ast::{CheckedAst, Name, NodeId, NodeKind};
use cel::environment::{Environment, Origin};
use cel::evaluation::Program;
use cel::library::{Library, Version, extensions, standard};
use cel::types::{Type, TypeProvider};
use cel::value::map::OwnedMap;
use cel::value::object::{Object, OwnedObject};
use cel::value::{Text, Value};
use serde_json::Value as Json;

use super::claims::TokenClaims;
use crate::expression_fault::ExpressionFault;
use crate::identity::User;

/// Compatibility version, which determines the functions that expressions may use.
const VERSION: Version = Version::new(1, 35);

/// Cost limit of one evaluation.
const COST_MAX: u64 = 1_000_000;

/// Time limit of one evaluation, in addition to the cost limit.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Name of the type of the variable `user`.
const USER: &str = "kubernetes.UserInfo";

/// Name of the type of the variable `claims`.
const CLAIMS_TYPE: &str = "kubernetes.claims";

/// The environment of expressions that read `claims`.
static CLAIMS: LazyLock<Environment> =
    LazyLock::new(|| base().with_variable("claims", Type::map(Type::String, Type::Any)));

static USERS: LazyLock<Environment> =
    LazyLock::new(|| base().with_types(Arc::new(UserType)).with_variable("user", Type::object(USER)));

fn base() -> Environment {
    let libraries: Vec<Library> = [standard::library()].into_iter().chain(extensions()).collect();
    Environment::new(&libraries, VERSION, Origin::New)
}

struct UserType;

impl TypeProvider for UserType {
    fn has_type(&self, name: &str) -> bool {
        name == USER
    }

    fn field_type(&self, name: &str, field: &str) -> Option<Type> {
        match field {
            _ if name != USER => None,
            "username" | "uid" => Some(Type::String),
            "groups" => Some(Type::list(Type::String)),
            "extra" => Some(Type::map(Type::String, Type::list(Type::String))),
            _ => None,
        }
    }
}

/// A compiled expression that reads `claims` or `user`.
pub struct Expression {
    /// Source text of the expression.
    pub text: String,
    program: Program,
    checked: CheckedAst,
}

impl Expression {
    /// Compiles an expression that reads `claims`.
    ///
    /// # Errors
    /// Returns the reason why the expression is invalid.
    pub fn of_claims(text: &str) -> Result<Expression, ExpressionFault> {
        Expression::compile(text, &CLAIMS, None)
    }

    /// Compiles a condition that reads `claims`.
    ///
    /// # Errors
    /// Returns the reason why the expression is invalid.
    pub fn condition_of_claims(text: &str) -> Result<Expression, ExpressionFault> {
        Expression::compile(text, &CLAIMS, Some(&Type::Bool))
    }

    /// Compiles a condition that reads `user`.
    ///
    /// # Errors
    /// Returns the reason why the expression is invalid.
    pub fn condition_of_user(text: &str) -> Result<Expression, ExpressionFault> {
        Expression::compile(text, &USERS, Some(&Type::Bool))
    }

    /// Compiles an expression whose result must have the type `expected`. As in kube-apiserver, the type is
    /// checked before constant subexpressions are evaluated. If the type check and an evaluation would fail,
    /// only the type error is reported.
    fn compile(
        text: &str,
        environment: &Environment,
        expected: Option<&Type>,
    ) -> Result<Expression, ExpressionFault> {
        let checked = environment
            .compile(text)
            .map_err(|error| ExpressionFault::Text(format!("compilation failed: {error}")))?;
        if let Some(expected) = expected
            && checked.result_type() != expected
        {
            return Err(ExpressionFault::Text(format!("must evaluate to {}", expected.declared())));
        }
        let program = Program::new(&checked, environment)
            .map_err(|error| ExpressionFault::Program(error.to_string()))?;
        Ok(Expression { text: text.to_owned(), program, checked })
    }

    /// Returns the type of the result.
    pub fn result_type(&self) -> &Type {
        self.checked.result_type()
    }

    /// Returns whether the expression reads the member `name` of `claims`.
    pub(super) fn selects_claim(&self, name: &str) -> bool {
        let is_claims =
            |id: NodeId| matches!(self.checked.ast.kind(id), NodeKind::Ident(ident) if &**ident == "claims");
        let is_name = |id: &NodeId| {
            use cel::ast::Constant::String as Text;
            matches!(self.checked.ast.kind(*id), NodeKind::Literal(Text(text)) if &**text == name)
        };
        self.checked.ast.nodes.iter().any(|node| match &node.kind {
            NodeKind::Select { operand, field, .. } => &**field == name && is_claims(*operand),
            NodeKind::Call { function, args, .. } if &**function == "_?._" => {
                args.first().is_some_and(|operand| is_claims(*operand)) && args.get(1).is_some_and(is_name)
            }
            _ => false,
        })
    }

    /// Evaluates the expression with these claims.
    ///
    /// # Errors
    /// Fails if the evaluation fails or exceeds a limit.
    pub fn on_claims<'c>(&self, claims: &'c TokenClaims) -> Result<Value<'c>, String> {
        let fields = claims.iter().map(|(name, value)| (name.as_str().into(), value_of(value))).collect();
        self.evaluate(vec![("claims".to_owned(), lazy(CLAIMS_TYPE, fields))])
    }

    /// Evaluates the expression with this user.
    ///
    /// # Errors
    /// Fails if the evaluation fails or exceeds a limit.
    pub fn on_user<'u>(&self, user: &'u User) -> Result<Value<'u>, String> {
        self.evaluate(vec![("user".to_owned(), value_of_user(user))])
    }

    fn evaluate<'v>(&self, variables: Vec<(String, Value<'v>)>) -> Result<Value<'v>, String> {
        let evaluation = self.program.evaluate_for(&variables, COST_MAX, TIME_MAX);
        evaluation.result.map_err(|error| format!("expression '{}' resulted in error: {error}", self.text))
    }
}

/// Functions whose results kube-apiserver does not accept as a list of strings, because their Go type is
/// different.
const TEXT_LISTS: [&str; 2] = ["split", "findAll"];

impl Expression {
    /// Converts the result of the expression, a string or a list of strings, to a list of strings. Empty
    /// strings are left out, and null gives an empty list. Like kube-apiserver, this function refuses a list
    /// that is directly the result of a [`TEXT_LISTS`] function. Otherwise a configuration would accept
    /// tokens that kube-apiserver refuses.
    ///
    /// # Errors
    /// Fails if the result has another type.
    pub(super) fn texts(&self, value: &Value<'_>) -> Result<Vec<String>, String> {
        let is_split = matches!(value, Value::List(_)) && self.splits(self.checked.ast.root);
        if is_split { Err(OTHER.to_owned()) } else { texts(value) }
    }

    /// Returns whether the result of a node comes from a [`TEXT_LISTS`] function.
    fn splits(&self, id: NodeId) -> bool {
        match self.checked.ast.kind(id) {
            NodeKind::Call { function, .. } if TEXT_LISTS.contains(&&**function) => true,
            NodeKind::Call { function, args, .. } if &**function == "_?_:_" => {
                args.iter().skip(1).all(|branch| self.splits(*branch))
            }
            _ => false,
        }
    }
}

const OTHER: &str = "expression must return a string or a list of strings";

fn texts(value: &Value<'_>) -> Result<Vec<String>, String> {
    let texts: Vec<String> = match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.to_string()],
        Value::List(list) => {
            let all = list.iter().map(|item| match item {
                Value::String(text) => Ok(text.to_string()),
                _ => Err(OTHER),
            });
            all.collect::<Result<_, _>>()?
        }
        _ => return Err(OTHER.to_owned()),
    };
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// Converts JSON to a value. As in kube-apiserver, all numbers become floating point numbers. The JSON parser
/// limits the depth of the recursion.
fn value_of(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => borrowed(text),
        Json::Array(items) => Value::list(items.iter().map(value_of).collect::<Vec<_>>()),
        Json::Object(members) => map_of(members),
    }
}

fn map_of(members: &TokenClaims) -> Value<'_> {
    let mut map = OwnedMap::default();
    for (name, value) in members {
        map.insert(borrowed(name), value_of(value));
    }
    Value::map(map)
}

fn borrowed(text: &str) -> Value<'_> {
    Value::String(Text::Borrowed(text))
}

fn list_of(texts: &[String]) -> Value<'_> {
    Value::list(texts.iter().map(|text| borrowed(text)).collect::<Vec<_>>())
}

fn lazy<'v>(type_name: &str, fields: Vec<(Name, Value<'v>)>) -> Value<'v> {
    let object = OwnedObject { type_name: type_name.into(), fields, is_lazy: true };
    Value::Object(Object::Shared(Arc::new(object)))
}

fn value_of_user(user: &User) -> Value<'_> {
    let mut extra = OwnedMap::default();
    for (key, values) in &user.extra {
        extra.insert(borrowed(key), list_of(values));
    }
    let fields = vec![
        ("username".into(), borrowed(&user.name)),
        ("uid".into(), borrowed(&user.uid)),
        ("groups".into(), list_of(&user.groups)),
        ("extra".into(), Value::map(extra.with_identifiers())),
    ];
    lazy(USER, fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn display(result: Result<Value<'_>, String>) -> String {
        match result {
            Ok(Value::Bool(flag)) => flag.to_string(),
            Ok(Value::String(text)) => text.to_string(),
            Ok(other) => format!("{other:?}"),
            Err(why) => why.split_once("resulted in error: ").map_or(why.clone(), |(_, why)| why.to_owned()),
        }
    }

    #[test]
    fn claim_names_are_escaped_as_identifiers_and_macros_visit_claim_values() {
        let claims = serde_json::json!({"sub": "s", "a.b": "dotted", "n": 5});
        let claims = claims.as_object().unwrap();
        for (text, want) in [
            ("claims.sub", "s"),
            ("claims.a__dot__b", "dotted"),
            ("claims['a.b']", "dotted"),
            ("claims['a__dot__b']", "dotted"),
            ("claims['__b__']", "no such key: __b__"),
            ("has(claims.missing)", "false"),
            ("claims.?missing.orValue('d')", "d"),
            ("'sub' in claims", "no such overload"),
            ("claims.size() > 0", "no such overload: size"),
            ("claims == claims", "true"),
            ("claims == {'sub': 's'}", "no such overload"),
            ("claims.exists(value, value == 'dotted')", "true"),
            ("claims.exists(value, value == 'sub')", "false"),
            ("claims.exists(value, dyn(value) == 5.0)", "true"),
        ] {
            let expression = Expression::of_claims(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(display(expression.on_claims(claims)), want, "{text}");
        }
    }

    #[test]
    fn extra_values_are_selected_by_escaped_names_and_listed_by_their_keys() {
        let mut user = User::new("jane", ["g"]);
        user.extra.insert("example.com/a".to_owned(), vec!["x".to_owned()]);
        for (text, want) in [
            ("user.extra.example__dot__com__slash__a[0]", "x"),
            ("user.extra['example.com/a'][0]", "x"),
            ("'example__dot__com__slash__a' in user.extra", "false"),
            ("user.extra.all(key, key == 'example.com/a')", "true"),
            ("user.username", "jane"),
            ("has(user.uid)", "true"),
        ] {
            let expression =
                Expression::compile(text, &USERS, None).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(display(expression.on_user(&user)), want, "{text}");
        }
    }
}
