//! Tests expressions with their values and costs, through parser, checker, planner and evaluator.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::environment::{Environment, Origin};
use crate::error::EvalErrorKind;
use crate::evaluation::{Activation, Evaluation, Limits, Program, Steps};
use crate::library::{Version, extensions, standard};
use crate::types::Type;
use crate::value::{HostList, HostMap, HostRef, List, Map, OwnedMap, Text, Value, View};

fn environment() -> Environment {
    let mut libraries = vec![standard::library()];
    libraries.extend(extensions());
    Environment::new(&libraries, Version::new(1, 35), Origin::New)
        .with_variable("x", Type::Int)
        .with_variable("s", Type::String)
        .with_variable("l", Type::list(Type::Int))
        .with_variable("m", Type::map(Type::String, Type::Int))
        .with_variable("d", Type::Dyn)
}

fn program(expression: &str) -> Program {
    let environment = environment();
    let checked = environment.compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    Program::new(&checked, &environment).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

fn variables() -> Vec<(String, Value<'static>)> {
    let map = |entries: &[(&str, Value<'static>)]| -> Value<'static> {
        Value::map(
            entries.iter().map(|(key, value)| (Value::string(*key), value.clone())).collect::<OwnedMap<'_>>(),
        )
    };
    let numbers = || Value::list((1..=3).map(Value::Int).collect::<Vec<_>>());
    vec![
        ("x".into(), Value::Int(7)),
        ("s".into(), Value::string("héllo")),
        ("l".into(), numbers()),
        ("m".into(), map(&[("a", Value::Int(1)), ("b", Value::Int(2))])),
        ("d".into(), map(&[("a", Value::Int(1)), ("b", numbers()), ("n", Value::Null)])),
    ]
}

fn evaluate(expression: &str) -> Evaluation<'static> {
    program(expression).evaluate(&variables(), &Limits::cost(1_000_000))
}

/// Formats a value as an expression would write it, or the text of the error.
fn show(result: &Result<Value<'_>, crate::error::EvalError>) -> String {
    match result {
        Err(error) => format!("error: {error}"),
        Ok(value) => show_value(value),
    }
}

fn show_value(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Uint(u) => format!("{u}u"),
        Value::String(text) => format!("{:?}", &**text),
        Value::List(list) => {
            let elements: Vec<_> = list.iter().map(|element| show_value(&element)).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Map(map) => {
            let entries: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", show_value(&key), show_value(&value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(value)) => format!("some({})", show_value(value)),
        other => crate::value::describe::describe(other),
    }
}

#[test]
fn every_use_of_a_variable_that_cannot_be_read_is_an_error() {
    for expression in ["x != 1 || x != 2", "x != 1 && x != 2", "[1, 2].exists(i, x != i)", "x == x"] {
        let fault = Value::fault(crate::error::EvalError::new("malformed date"));
        let evaluation = program(expression).evaluate(&[("x", fault)], &Limits::cost(1_000));
        assert_eq!(show(&evaluation.result), "error: malformed date", "{expression}");
    }
}

#[test]
fn expressions_have_values_and_costs() {
    let mut wrong = Vec::new();
    for (expression, result, cost) in [
        // Variables and path steps cost 1 each; literals of constants and conversions are folded.
        ("x", "7", 1),
        ("m.a + m['b']", "3", 5),
        ("d.b[1]", "2", 3),
        ("[1, 2, 3][dyn(1.0)]", "2", 2),
        ("int('5') + 1", "6", 1),
        ("2 in [1, 2]", "true", 0),
        ("x in [1, 2]", "false", 1),
        ("1 in l", "true", 4),
        // A branch that is a plain variable costs nothing; other branches cost their evaluation.
        ("x > 5 ? x : 0", "7", 2),
        ("x > 5 ? x + 1 : 0", "8", 4),
        ("(x > 5 ? m : {'a': 9}).a", "1", 3),
        ("has(d.a)", "true", 1),
        ("has(d.a.b)", "false", 2),
        ("has(d.b.c)", "error: unsupported index type 'string' in list", 2),
        // Sizes count if values are read completely.
        ("s + s == s", "false", 5),
        ("s.contains('l')", "true", 2),
        ("s.matches('h.*o')", "true", 2),
        ("dyn(x).matches('a')", "error: no such overload", 3),
        ("dyn(x).matches(s)", "error: no such overload: matches", 5),
        ("[l, l] == [l, l]", "true", 25),
        // Errors are results that other operands can absorb.
        ("1 / 0 == 1 || true", "true", 2),
        ("true || 1 / 0 == 1", "true", 0),
        ("1 / 0 == 1 && true", "error: division by zero", 2),
        ("[0, 1, 2].exists(e, 10 / e > 4)", "true", 18),
        ("[0, 1, 2].all(e, 10 / e > 0)", "error: division by zero", 19),
        ("[0, 1, 2].map(e, 10 / e)", "error: division by zero", 43),
        ("[0, 1, 2].filter(e, 10 / e > 5)", "error: division by zero", 23),
        // Loops extend their lists and maps in place.
        ("l.map(e, e * 2)", "[2, 4, 6]", 44),
        ("l.filter(e, e > 1)", "[2, 3]", 34),
        ("l.exists_one(e, e > 2)", "true", 11),
        ("l.transformMap(i, e, e * i)", "{0: 0, 1: 2, 2: 6}", 20),
        ("l.transformMapEntry(i, e, {e: i})", "{1: 0, 2: 1, 3: 2}", 104),
        ("[1, 1].transformMapEntry(i, v, {v: i})", "error: insert failed: key 1 already exists", 69),
        ("[1, 2].transformMap(i, v, v / (v - 1))", "error: division by zero", 9),
        ("dyn(null).exists(c, true)", "error: got 'types.Null', expected iterable type", 0),
        // Optional values.
        ("d.?a.?b", "none", 2),
        ("d.?b[0]", "some(1)", 3),
        ("{?'a': d.?a, ?'z': d.?z}", "{\"a\": 1}", 33),
        ("[?d.?a, ?d.?z]", "[1]", 13),
        ("optional.none().orValue(1 / 0)", "error: division by zero", 2),
        ("optional.of(1).optMap(y, y + 1)", "some(2)", 7),
        ("optional.of(1).optMap(y, 5)", "some(5)", 3),
        ("optional.of(s) == optional.of(s)", "true", 5),
        // Error texts.
        ("d.zz", "error: no such key: zz", 2),
        ("l[3]", "error: index out of bounds: 3", 2),
        ("[1][dyn(1.5)]", "error: unsupported index value 1.5 in list", 2),
        ("dyn(true) + dyn(true)", "error: no such overload: _+_", 1),
        ("dyn('a') - dyn('b')", "error: no such overload", 1),
        ("dyn([1]) < dyn([2])", "error: no such overload: _<_", 1),
        ("double('NaN') < 1.0", "error: NaN values cannot be ordered", 1),
        ("dyn(quantity('1')) == dyn(1)", "error: no such overload", 3),
        ("dyn(quantity('1')) != dyn(1)", "true", 3),
    ] {
        let got = evaluate(expression);
        let got = (show(&got.result), got.cost);
        if got != (result.to_string(), cost) {
            wrong.push(format!("{expression}: {got:?}, not {result:?} for {cost}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_constant_subexpression_that_fails_makes_the_program_fail() {
    for (expression, message) in [
        ("int(dyn('x')) + x", "type conversion error from 'string' to 'int'"),
        ("bytes(dyn(1))", "no such overload: bytes(int)"),
        ("uint(-1)", "unsigned integer overflow"),
        ("[1][dyn(null)]", "invalid qualifier type: types.Null"),
        ("s.matches(string(dyn('(')))", "error parsing regexp: missing closing ): `(`"),
    ] {
        let environment = environment();
        let checked = environment.compile(expression).unwrap();
        let error = Program::new(&checked, &environment).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), message, "{expression}");
    }
}

#[test]
fn an_evaluation_stops_when_it_has_cost_more_than_the_limit() {
    let program = program("[1, 2, 3].all(a, [1, 2, 3].all(b, [1, 2, 3].all(c, a + b + c > 0)))");
    let whole = program.evaluate(&variables(), &Limits::NONE);
    assert_eq!(show(&whole.result), "true");
    for limit in 0..whole.cost {
        let got = program.evaluate(&variables(), &Limits::cost(limit));
        let error = got.result.unwrap_err();
        assert_eq!(error.kind, EvalErrorKind::CostLimit, "limit {limit}");
        assert_eq!(error.to_string(), "operation cancelled: actual cost limit exceeded");
        assert_eq!(got.cost, limit + 1, "each step of this expression costs 1");
    }
    assert!(program.evaluate(&variables(), &Limits::cost(whole.cost)).result.is_ok());
}

#[test]
fn an_interrupted_evaluation_stops_within_100_iterations() {
    let calls = AtomicUsize::new(0);
    let interrupted = || calls.fetch_add(1, Ordering::Relaxed) >= 2;
    let limits = Limits { cost: u64::MAX, interrupted: &interrupted };
    let numbers = Value::list((0..10_000).map(Value::Int).collect::<Vec<_>>());
    let got = program("l.exists(e, 1 / e < 0 || 'a' == 'b')").evaluate(&[("l", numbers)], &limits);
    let error = got.result.unwrap_err();
    assert_eq!(error.kind, EvalErrorKind::Interrupted);
    // A later element cannot absorb an interruption, and fewer than 300 of the 10 000 elements were visited.
    assert!(got.cost < 300 * 12, "{}", got.cost);
}

#[test]
fn bytes_as_a_map_key_end_the_evaluation_with_an_error() {
    let environment = environment();
    let make = |text: &str| Program::new(&environment.compile(text).unwrap(), &environment);
    // A constant map is computed when the program is created.
    let error = make("true || {dyn(b'a'): 1} == {}").unwrap_err();
    assert_eq!(error.kind, EvalErrorKind::Unhashable);
    // No later operand absorbs this error, unlike other errors.
    for text in ["{dyn(b'a'): l} == {} || true", "l.transformMapEntry(i, e, {dyn(b'a'): e}) == {} || true"] {
        let got = make(text).unwrap().evaluate(&variables(), &Limits::cost(1_000));
        assert_eq!(got.result.unwrap_err(), crate::error::EvalError::unhashable(), "{text}");
    }
    assert!(
        make("{dyn(l): 1} == {} || true")
            .unwrap()
            .evaluate(&variables(), &Limits::cost(1_000))
            .result
            .is_ok()
    );
}

#[test]
fn comparing_large_lists_can_be_interrupted() {
    let limits = Limits { cost: u64::MAX, interrupted: &|| true };
    let doubled = (0..12).fold(String::from("optional.of(l)"), |text, _| format!("{text}.optMap(a, a + a)"));
    let expression = format!("{doubled}.value() == {doubled}.value()");
    let got = program(&expression).evaluate(&variables(), &limits);
    assert_eq!(got.result.unwrap_err().kind, EvalErrorKind::Interrupted);
}

/// Runs `expression` on the stack of a worker thread (2 MiB). Returns its result, or the error if it does not
/// compile.
fn on_small_stack(expression: String) -> String {
    let run = move || {
        let environment = environment();
        let checked = environment.compile(&expression).map_err(|error| error.to_string())?;
        let program = Program::new(&checked, &environment).map_err(|error| error.to_string())?;
        Ok(show(&program.evaluate(&variables(), &Limits::cost(1_000_000)).result))
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    thread.join().unwrap().unwrap_or_else(|error: String| error)
}

#[test]
fn the_deepest_expressions_fit_the_stack() {
    let nested = |open: &str, middle: &str, close: &str, count: usize| {
        format!("{}{middle}{}", open.repeat(count), close.repeat(count))
    };
    for (expression, result) in [
        (format!("size({})", nested("[", "x", "]", 240)), "1"),
        (format!("size({})", nested("[1].map(a, ", "x", ")", 120)), "1"),
        (nested("-(", "x", ")", 240), "7"),
        (nested("true ? (", "x", ") : 0", 120), "7"),
        (format!("x{}", " + 1".repeat(200)), "207"),
        (format!("size([x]{})", ".map(a, [a])".repeat(240)), "1"),
        (format!("d{}", ".a".repeat(200)), "error: no such key: a"),
    ] {
        assert_eq!(on_small_stack(expression.clone()), result, "{expression}");
    }
}

#[test]
fn chained_loops_cannot_nest_a_value_without_bound() {
    let wrapped = format!("{}a{}", "[".repeat(100), "]".repeat(100));
    let chain = |loops: usize| format!("size([x]{})", format!(".map(a, {wrapped})").repeat(loops));
    assert_eq!(on_small_stack(chain(5)), "1");
    assert_eq!(on_small_stack(chain(50)), "value nesting exceeds limit: 1000");
}

/// Variables that count how often they are read.
struct Counting(Cell<usize>);

impl<'v> Activation<'v> for Counting {
    fn variable(&self, _: &str) -> Option<Value<'v>> {
        self.0.set(self.0.get() + 1);
        Some(Value::Int(7))
    }
}

#[test]
fn a_variable_is_read_once_and_only_when_it_is_needed() {
    for (expression, reads) in [("x + x + x", 1), ("true || x == 1", 0), ("x == 0 && l == [1]", 1)] {
        let activation = Counting(Cell::new(0));
        program(expression).evaluate(&activation, &Limits::NONE);
        assert_eq!(activation.0.get(), reads, "{expression}");
    }
}

/// A set: its order does not matter to `==`, and `+` adds missing elements.
#[derive(Debug)]
struct Set(Vec<i64>);

impl HostList for Set {
    fn len<'v>(&'v self, _: View<'v>) -> usize {
        self.0.len()
    }

    fn get<'v>(&'v self, _: View<'v>, index: usize) -> Value<'v> {
        Value::Int(self.0[index])
    }

    fn equals<'v>(
        &'v self,
        _: View<'v>,
        other: &List<'v>,
        _: &Steps<'_>,
    ) -> Option<Result<bool, crate::error::EvalError>> {
        let has = |own: &i64| other.iter().any(|element| matches!(element, Value::Int(int) if int == *own));
        Some(Ok(self.0.len() == other.len() && self.0.iter().all(has)))
    }

    fn concat<'v>(
        &'v self,
        _: View<'v>,
        other: &List<'v>,
    ) -> Option<Result<List<'v>, crate::error::EvalError>> {
        let mut merged: Vec<_> = self.0.iter().map(|int| Value::Int(*int)).collect();
        merged.extend(other.iter().filter(|value| !matches!(value, Value::Int(int) if self.0.contains(int))));
        Some(Ok(List::Shared(merged.into())))
    }
}

/// A map of the host.
#[derive(Debug)]
struct Ports(Vec<(String, i64)>);

impl HostMap for Ports {
    fn len<'v>(&'v self, _: View<'v>) -> usize {
        self.0.len()
    }

    fn get<'v>(&'v self, _: View<'v>, key: &str) -> Option<Value<'v>> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, port)| Value::Int(*port))
    }

    fn value_at<'v>(&'v self, _: View<'v>, index: usize) -> Option<Value<'v>> {
        Some(Value::Int(self.0.get(index)?.1))
    }

    fn key_at<'v>(&'v self, _: View<'v>, index: usize) -> &'v str {
        &self.0[index].0
    }
}

#[test]
fn host_data_is_read_without_copies() {
    let set = Set(vec![3, 1, 2]);
    let ports = Ports(vec![("http".into(), 80), ("https".into(), 443)]);
    let variables = [
        ("l", Value::List(List::Host(HostRef { node: &set, view: None }))),
        ("m", Value::Map(Map::Host(HostRef { node: &ports, view: None }))),
        ("s", Value::String(Text::Borrowed("http"))),
    ];
    for (expression, result) in [
        ("l == [1, 2, 3]", "true"),
        ("l + [3, 4]", "[3, 1, 2, 4]"),
        ("l.map(e, e * 2)", "[6, 2, 4]"),
        ("2 in l", "true"),
        ("m[s]", "80"),
        ("m.https", "443"),
        ("s in m", "true"),
        ("m.map(name, name)", "[\"http\", \"https\"]"),
        ("m.exists(name, port, name == 'https' && port == 443)", "true"),
        ("m == {'https': 443, 'http': 80}", "true"),
        ("m.ftp", "error: no such key: ftp"),
        ("size(l) + size(m)", "5"),
    ] {
        let got = program(expression).evaluate(&variables, &Limits::NONE);
        assert_eq!(show(&got.result), result, "{expression}");
    }
}
