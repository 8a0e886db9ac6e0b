use crate::environment::{Environment, Origin};
use crate::library::{Version, standard};
use crate::types::{Primitive, Type, TypeProvider};
use std::sync::Arc;

struct Host;

impl TypeProvider for Host {
    fn has_type(&self, name: &str) -> bool {
        name == "Pod"
    }

    fn field_type(&self, _: &str, field: &str) -> Option<Type> {
        (field == "name").then_some(Type::String)
    }
}

fn environment(version: Version, origin: Origin) -> Environment {
    Environment::new(&[standard::library()], version, origin)
        .with_types(Arc::new(Host))
        .with_variable("i", Type::Int)
        .with_variable("s", Type::String)
        .with_variable("d", Type::Dyn)
        .with_variable("l", Type::list(Type::Int))
        .with_variable("m", Type::map(Type::String, Type::Bool))
        .with_variable("w", Type::Wrapper(Primitive::Int))
        .with_variable("pod", Type::object("Pod"))
        .with_variable("a.b", Type::Int)
}

fn latest() -> Environment {
    environment(Version::new(1, 35), Origin::New)
}

/// Returns the type, or the error messages.
fn check(text: &str, environment: &Environment) -> String {
    match environment.compile(text) {
        Ok(checked) => checked.result_type().to_string(),
        Err(error) => {
            error.issues().iter().map(|issue| issue.message.as_str()).collect::<Vec<_>>().join("; ")
        }
    }
}

#[test]
fn valid_expressions_have_the_expected_types() {
    let environment = latest();
    for (text, expected) in [
        ("i + 1", "int"),
        ("i + d", "int"),
        ("d + d", "dyn"),
        ("[]", "list(dyn)"),
        ("[] + l", "list(int)"),
        ("{'a': [1u]}", "map(string, list(uint))"),
        ("[w, 1]", "list(wrapper(int))"),
        ("m['a'] ? 1 : w", "int"),
        ("l.map(x, [x])", "list(list(int))"),
        ("m.map(k, k)", "list(string)"),
        ("l.transformMap(i, v, 'x')", "map(int, string)"),
        ("m[?'a']", "optional_type(bool)"),
        ("m.?a.orValue(true)", "bool"),
        ("optional.of(l)[0]", "optional_type(int)"),
        ("optional.none()", "optional_type(dyn)"),
        ("optional.of(1).optMap(x, 'a')", "optional_type(string)"),
        ("type(i)", "type(int)"),
        ("int", "type(int)"),
        ("pod.name", "string"),
        ("has(pod.name)", "bool"),
        ("Pod{name: 'x'}", "Pod"),
        ("pod == null", "bool"),
        ("a.b + 1", "int"),
        (".i", "int"),
        ("i < 1.5", "bool"),
        ("d.x.y[1]", "dyn"),
        ("google.protobuf.Int64Value{value: 1}", "wrapper(int)"),
        ("timestamp('2020-01-01T00:00:00Z') - duration('1s')", "timestamp"),
    ] {
        assert_eq!(check(text, &environment), expected, "{text}");
    }
}

#[test]
fn type_errors_have_the_expected_texts() {
    let environment = latest();
    for (text, expected) in [
        ("i + s", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("s.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("x.y.z", "undeclared reference to 'x' (in container '')"),
        (
            "f(x)",
            "undeclared reference to 'f' (in container ''); undeclared reference to 'x' (in container '')",
        ),
        ("i && true", "expected type 'bool' but found 'int'"),
        ("[1, 'a', 2u]", "expected type 'int' but found 'string'"),
        (
            "{1: 1, 'a': 'b'}",
            "expected type 'int' but found 'string'; expected type 'int' but found 'string'",
        ),
        ("i == null", "found no matching overload for '_==_' applied to '(int, null)'"),
        ("i.foo", "type 'int' does not support field selection"),
        ("pod.foo", "undefined field 'foo'"),
        ("Pod{name: 1}", "expected type of field 'name' is 'string' but provided type is 'int'"),
        ("i{}", "'int' is not a type"),
        ("int{}", "'int' is not a message type"),
        (
            "s.all(c, true)",
            "expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("[?i]", "expected type 'optional_type(int)' but found 'int'"),
        ("duration('x')", "invalid duration argument"),
        ("timestamp('x')", "invalid timestamp argument"),
        ("s.matches('(')", "invalid matches argument"),
        ("l.map(x, x).map(x, y)", "undeclared reference to 'y' (in container '')"),
        ("l.all(x, true) && x", "undeclared reference to 'x' (in container '')"),
    ] {
        assert_eq!(check(text, &environment), expected, "{text}");
    }
}

#[test]
fn older_versions_lack_newer_functions_and_stored_expressions_may_use_all() {
    for (text, since) in [
        ("1 < 1.5", Version::new(1, 28)),
        ("optional.of(1)", Version::new(1, 28)),
        ("[?optional.of(1)]", Version::new(1, 28)),
        ("l.all(i, v, true)", Version::new(1, 32)),
        ("size(l)", Version::FIRST),
    ] {
        for minor in [0, 27, 28, 31, 32, 35] {
            let version = Version::new(1, minor);
            let new = environment(version, Origin::New).compile(text);
            assert_eq!(new.is_ok(), version >= since, "{text} in {version:?}");
            assert!(
                environment(version, Origin::Stored).compile(text).is_ok(),
                "{text}, stored, in {version:?}"
            );
        }
    }
    let before = environment(Version::new(1, 28), Origin::New);
    assert_eq!(check("duration('x')", &before), "duration", "constants were not checked then");
}

#[test]
fn types_that_double_in_size_with_every_call_become_dynamic() {
    let text = format!("[1]{}", ".map(a, {a: a})".repeat(60));
    assert!(check(&text, &latest()).contains("dyn"));
}
