//! Tests how the work of each function grows with the size of its arguments.
//!
//! Costs equal the costs of the reference, and limit the work of a policy. But a cost limit bounds the time
//! only if the time grows no faster than the cost, or no faster than the size of the arguments. If the time
//! grows at all, the evaluation must count its steps; otherwise nothing could interrupt it.

use std::time::{Duration, Instant};

use crate::environment::{Environment, Origin};
use crate::error::EvalErrorKind;
use crate::evaluation::{Activation, Evaluation, Limits, Program};
use crate::library::{Library, Version, extensions, standard};
use crate::types::Type;
use crate::value::{List, Octets, OwnedMap, Value};

/// The two argument sizes that are compared.
const SIZES: [i64; 2] = [10, 10_000];

/// Tolerance: an evaluation may take this many times the allowed growth, because the machine may be busy and
/// small evaluations are mostly overhead. Quadratic work grows a thousand times as fast as linear work.
const MARGIN: f64 = 20.0;

/// Times below this limit cannot be measured exactly.
const MEASURABLE: Duration = Duration::from_micros(3);

/// The part of an argument that an expression reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Work {
    /// The expression visits the whole argument.
    Visits,
    /// The expression reads a bounded part of the argument, or only its size.
    Looks,
}
use Work::{Looks, Visits};

/// Expressions that cover every function with arguments of variable size. `l` is a list of numbers, `t` of
/// texts, `ll` of lists, `o` of optionals; `m` and `r` are equal maps in opposite order; `s`, `d` (digits)
/// and `w` (words) are texts, `b` is bytes.
const EXPRESSIONS: &[(&str, Work)] = &[
    // Operators and the standard library.
    ("m == r", Visits),
    ("m != r", Visits),
    ("[m] == [r]", Visits),
    ("{'a': m} == {'a': r}", Visits),
    ("optional.of(m) == optional.of(r)", Visits),
    ("optional.ofNonZeroValue(m) == optional.of(r)", Visits),
    ("l == l.map(x, x)", Visits),
    ("s == s + ''", Visits),
    ("b == b + b''", Visits),
    ("s + s != s", Visits),
    ("b + b != b", Visits),
    ("s < s + 'a' && s <= s && s + 'a' > s && s >= s", Visits),
    ("size(l + l) > 0", Looks),
    ("-1 in l", Visits),
    ("m in [r]", Visits),
    ("'k7' in m", Looks),
    ("m.all(k, k in r)", Visits),
    ("m.all(k, m[k] == r[k])", Visits),
    ("m.all(k, r[?k].hasValue())", Visits),
    ("m.all(k, v, r[k] == v)", Visits),
    ("m.exists(k, v, v < 0)", Visits),
    ("l.exists_one(x, x == 3)", Visits),
    ("l.existsOne(i, x, x == i)", Visits),
    ("l.filter(x, x > 3) == l", Visits),
    ("l.map(x, x > 3, x) == l", Visits),
    ("l.transformList(i, x, x) == l", Visits),
    ("l.transformMap(i, x, x)[0] == 0", Visits),
    ("m.transformMap(k, v, v) == r", Visits),
    ("t.transformMapEntry(i, x, {x: i}) == m", Visits),
    ("l.transformMapEntry(i, x, {[x]: i}) == {}", Visits),
    ("size(l) + size(t) + size(m) + size(s) + size(b)", Looks),
    ("l.size() + t.size() + m.size() + s.size() + b.size()", Looks),
    ("l[5] + m['k5'] + l[?5].value() + m[?'k5'].orValue(0)", Looks),
    ("optional.of(l).or(optional.none()).value()", Looks),
    ("l.first().value() + l.last().value()", Looks),
    ("optional.unwrap(o) == l", Visits),
    ("o.unwrapOpt() == l", Visits),
    ("dyn(l) == type(l)", Looks),
    ("s.contains('ba') || s.startsWith(s) && s.endsWith(s)", Visits),
    ("s.matches('^a*b$')", Visits),
    ("s.matches(w)", Visits),
    ("bytes(s) == b && string(b) == s", Visits),
    ("string(1) == s || string(1.5) == s || int(d) == 1 || false", Looks),
    ("uint(d) == 1u || true", Looks),
    ("double(d) > 1.0 || true", Looks),
    ("bool(s) || true", Looks),
    ("duration(d) == duration('1s') || true", Looks),
    ("timestamp(d) == timestamp(0) || true", Looks),
    // Text functions.
    ("s.charAt(n - 1)", Visits),
    ("s.indexOf('b') + s.indexOf('b', 3)", Visits),
    ("s.lastIndexOf('c') + s.lastIndexOf('c', n - 1)", Visits),
    ("s.lowerAscii() + s.upperAscii() + s.trim()", Visits),
    ("s.substring(n - 1) + s.substring(1, n - 1)", Visits),
    ("s.replace('a', 'c') + s.replace('', 'c', 5)", Visits),
    ("s.split('') == s.split('a', 3)", Visits),
    ("w.split(' ')", Visits),
    ("t.join() + t.join(', ')", Visits),
    ("'%s'.format([l])", Visits),
    ("'%s %s'.format([m, ll])", Visits),
    ("'%x %s'.format([s, b])", Visits),
    ("strings.quote(s)", Visits),
    ("w.find('x') + w.find('[0-9]+$')", Visits),
    ("w.findAll('[0-9]+')", Visits),
    ("w.findAll('[0-9]+', 100000)", Visits),
    // List functions.
    ("l.isSorted()", Looks),
    ("l.sort().isSorted()", Visits),
    ("t.sort().isSorted()", Visits),
    ("l.sortBy(x, -x)", Visits),
    ("l.sum() + l.max() + l.min()", Visits),
    ("l.indexOf(-1) + l.lastIndexOf(-1)", Visits),
    ("ll.indexOf([-1])", Visits),
    ("l.slice(1, n - 1)", Visits),
    ("ll.flatten() == l", Visits),
    ("ll.flatten(3) == l", Visits),
    ("lists.range(n)", Visits),
    ("l.reverse()", Visits),
    ("l.distinct()", Looks),
    ("m.map(k, m[k]).distinct()", Visits),
    // The first two calls are refused, because the comparisons would cost too much.
    ("sets.contains(l, l)", Looks),
    ("sets.equivalent(l, l)", Looks),
    ("sets.intersects(l, [-1])", Visits),
    // Values that are parsed from text.
    ("isURL(s)", Looks),
    ("url('https://h/' + s).getEscapedPath()", Visits),
    ("url('https://' + s.replace('a', 'h') + '/').getHost()", Visits),
    (
        "url('https://' + s).getHostname() + url('https://h:1/' + s).getPort() + url('https://' + s).getScheme()",
        Visits,
    ),
    ("url('https://h/?' + w.replace(' ', '&')).getQuery()", Visits),
    ("isQuantity(d)", Looks),
    ("quantity(d).isInteger() && quantity(d).isGreaterThan(quantity('1')) || true", Looks),
    ("quantity(d).isInteger() || sign(quantity(d)) == 1 || quantity(d).asApproximateFloat() > 1.0", Looks),
    ("quantity(d).add(quantity(d)).sub(quantity(d)).compareTo(quantity(d))", Looks),
    ("quantity(d).isLessThan(quantity('1')) || quantity(d).asInteger() > 0", Looks),
    ("isIP(s) || isIP(d) || ip.isCanonical('1.1.1.1') || ip(d).family() == 4", Looks),
    ("isCIDR(s) || cidr('10.0.0.0/8').containsIP(s)", Looks),
    ("cidr('10.0.0.0/8').containsCIDR(s)", Looks),
    ("isSemver(d) || isSemver(d, true)", Looks),
    ("semver('1.0.0-' + w.replace(' ', '.')).compareTo(semver('1.0.0-' + w.replace(' ', '.'))) == 0", Visits),
    ("semver('v1.0.' + d, true).isLessThan(semver('1.0.0'))", Looks),
    ("format.dns1123Label().validate(s).hasValue()", Looks),
    ("format.dns1123Subdomain().validate(s).hasValue()", Looks),
    ("format.qualifiedName().validate(s).hasValue() || format.labelValue().validate(s).hasValue()", Looks),
    ("format.uri().validate(s).hasValue() || format.uuid().validate(s).hasValue()", Looks),
    ("format.byte().validate(s).hasValue() || format.date().validate(s).hasValue()", Looks),
    ("format.datetime().validate(s).hasValue()", Looks),
    ("format.named(s).hasValue()", Looks),
];

fn libraries() -> Vec<Library> {
    let mut libraries = vec![standard::library()];
    libraries.extend(extensions());
    libraries
}

fn environment() -> Environment {
    Environment::new(&libraries(), Version::new(1, 35), Origin::New)
        .with_variable("n", Type::Int)
        .with_variable("l", Type::list(Type::Int))
        .with_variable("t", Type::list(Type::String))
        .with_variable("ll", Type::list(Type::list(Type::Int)))
        .with_variable("o", Type::list(Type::optional(Type::Int)))
        .with_variable("m", Type::map(Type::String, Type::Int))
        .with_variable("r", Type::map(Type::String, Type::Int))
        .with_variable("s", Type::String)
        .with_variable("d", Type::String)
        .with_variable("w", Type::String)
        .with_variable("b", Type::Bytes)
}

fn variables(size: i64) -> Vec<(String, Value<'static>)> {
    let texts = || (0..size).map(|at| Value::string(format!("k{at}")));
    let map = |keys: &mut dyn Iterator<Item = i64>| {
        Value::map(keys.map(|at| (Value::string(format!("k{at}")), Value::Int(at))).collect::<OwnedMap<'_>>())
    };
    let repeated = |text: &str| Value::string(text.repeat(size as usize));
    let list = |elements: &mut dyn Iterator<Item = Value<'static>>| Value::list(elements.collect::<Vec<_>>());
    let named = [
        ("n", Value::Int(size)),
        ("l", list(&mut (0..size).map(Value::Int))),
        ("t", list(&mut texts())),
        ("ll", list(&mut (0..size).map(|at| Value::list(vec![Value::Int(at)])))),
        ("o", list(&mut (0..size).map(|at| Value::some(Value::Int(at))))),
        ("m", map(&mut (0..size))),
        ("r", map(&mut (0..size).rev())),
        ("s", repeated("a")),
        ("d", repeated("7")),
        ("w", repeated("12 ")),
        ("b", Value::Bytes(Octets::Shared(vec![b'a'; size as usize].into()))),
    ];
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn program(expression: &str) -> Program {
    let environment = environment();
    let checked = environment.compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    Program::new(&checked, &environment).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// Returns an evaluation, and the shortest time of several runs.
fn measured<'v>(program: &Program, variables: &impl Activation<'v>) -> (Evaluation<'v>, Duration) {
    let run = || {
        let began = Instant::now();
        let evaluation = program.evaluate(variables, &Limits::NONE);
        (evaluation, began.elapsed())
    };
    (0..3).map(|_| run()).min_by_key(|(_, took)| *took).unwrap()
}

#[test]
fn evaluation_time_grows_no_faster_than_cost_or_input_size() {
    let [small, large] = SIZES.map(variables);
    let mut faults = Vec::new();
    for (expression, _) in EXPRESSIONS {
        let program = program(expression);
        let fault = || {
            let ((few, few_took), (many, many_took)) =
                (measured(&program, &small), measured(&program, &large));
            let size = SIZES[1] as f64 / SIZES[0] as f64;
            let allowed = size.max(many.cost as f64 / few.cost.max(1) as f64) * MARGIN;
            let ratio = many_took.as_secs_f64() / few_took.max(MEASURABLE).as_secs_f64();
            let growth = format!("{few_took:?} → {many_took:?}, cost {} → {}", few.cost, many.cost);
            (ratio > allowed).then_some(growth)
        };
        // Other processes may delay all runs of a measurement, so only a repeated fault counts.
        let repeated: Vec<String> = (0..5).map_while(|_| fault()).collect();
        if repeated.len() == 5 {
            faults.push(format!("{expression}: {}", repeated.join("; ")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_growing_function_counts_steps_and_can_be_interrupted() {
    let large = variables(SIZES[1]);
    let mut faults = Vec::new();
    for (expression, work) in EXPRESSIONS {
        let program = program(expression);
        let whole = program.evaluate(&large, &Limits::NONE);
        if *work == Visits && whole.steps < SIZES[1] as u64 / 100 {
            faults.push(format!("{expression}: {} steps", whole.steps));
        }
        let stopped = program.evaluate(&large, &Limits { cost: u64::MAX, interrupted: &|| true });
        let is_interrupted =
            stopped.result.as_ref().is_err_and(|error| error.kind == EvalErrorKind::Interrupted);
        // The interruption callback runs every thousand steps.
        if is_interrupted != (whole.steps >= 1000) && !expression.contains("matches(w)") {
            faults.push(format!("{expression}: {} steps, interrupted: {is_interrupted}", whole.steps));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_call_that_costs_more_than_is_left_is_not_computed() {
    let large = variables(SIZES[1]);
    for expression in
        ["l.sort()", "sets.contains(l, l)", "l.distinct()", "-1 in l", "s.matches(w)", "t.sort()"]
    {
        let got = program(expression).evaluate(&large, &Limits::cost(1_000));
        let error = got.result.unwrap_err();
        assert_eq!(error.kind, EvalErrorKind::CostLimit, "{expression}");
        assert!(got.steps < 100, "{expression}: {} steps", got.steps);
    }
}

#[test]
fn lists_of_billions_of_elements_are_too_large_or_interrupted() {
    let mut list = List::Shared((0..10).map(Value::Int).collect());
    let mut empty = List::Shared((0..10).map(|_| Value::list(Vec::new())).collect());
    for _ in 0..30 {
        list = List::concat(&list, &list).unwrap();
        empty = List::concat(&empty, &empty).unwrap();
    }
    let variables = vec![("l".to_owned(), Value::List(list)), ("ll".to_owned(), Value::List(empty))];
    for expression in [
        "l.sum()",
        "ll.indexOf([1])",
        "l.reverse()",
        "l.slice(0, 9000000)",
        "l.distinct()",
        "-1 in l",
        "ll.flatten(0)",
    ] {
        let got = program(expression).evaluate(&variables, &Limits::cost(1_000_000));
        let kind = got.result.map(|_| ()).map_err(|error| error.kind);
        assert_eq!(kind, Err(EvalErrorKind::CostLimit), "{expression}");
    }
    let interrupted = Limits { cost: u64::MAX, interrupted: &|| true };
    for expression in ["l == l + l.slice(0, 0)", "l.map(x, x)", "'%s'.format([ll])", "ll.exists(x, x == [1])"]
    {
        let got = program(expression).evaluate(&variables, &interrupted);
        let kind = got.result.map(|_| ()).map_err(|error| error.kind);
        assert_eq!(kind, Err(EvalErrorKind::Interrupted), "{expression}");
        assert!(got.steps < 20_000, "{expression}: {} steps", got.steps);
    }
}

#[test]
fn the_expressions_of_the_growth_table_are_valid() {
    let environment = environment();
    let faults: Vec<String> = EXPRESSIONS
        .iter()
        .filter_map(|(expression, _)| environment.compile(expression).err().map(|error| error.to_string()))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_function_with_a_sized_argument_is_in_the_growth_table() {
    let has_size = |of: &Type| {
        matches!(of, Type::String | Type::Bytes | Type::List(_) | Type::Map(_) | Type::Dyn | Type::Param(_))
    };
    /// Functions of macros and operators, with the text by which an expression calls the function.
    const SHOWN: &[(&str, &str)] = &[
        ("@in", " in "),
        ("_in_", " in "),
        ("in", " in "),
        ("_[_]", "["),
        ("_[?_]", "[?"),
        ("_?._", "[?"),
        ("@sortByAssociatedKeys", "sortBy("),
        ("@not_strictly_false", "all("),
        ("__not_strictly_false__", "all("),
        ("cel.@mapInsert", "transformMap("),
        ("_?_:_", "all("),
        ("_+_", " + "),
        ("_==_", " == "),
        ("_!=_", " != "),
        ("_<_", " < "),
        ("_<=_", " <= "),
        ("_>_", " > "),
        ("_>=_", " >= "),
        ("_-_", "-"),
    ];
    /// Functions whose arguments are always short, and functions that call the host.
    const APART: &[&str] = &[
        // Functions with a time zone, which is looked up in a table.
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "getMinutes",
        "getMonth",
        "getSeconds",
        // The authorizer.
        "path",
        "group",
        "serviceAccount",
        "resource",
        "subresource",
        "namespace",
        "name",
        "check",
        "errored",
        "error",
        "allowed",
        "reason",
        "fieldSelector",
        "labelSelector",
    ];
    let mut missing = Vec::new();
    for function in libraries().iter().flat_map(|library| &library.functions) {
        if !function.overloads.iter().any(|overload| overload.params.iter().any(has_size))
            || APART.contains(&function.name)
        {
            continue;
        }
        let shown =
            SHOWN.iter().find(|(name, _)| *name == function.name).map(|(_, shown)| (*shown).to_owned());
        let shown = shown.unwrap_or_else(|| format!("{}(", function.name));
        if !EXPRESSIONS.iter().any(|(expression, _)| expression.contains(&shown)) {
            missing.push(function.name);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
