//! Expressions: parse, check, estimate, evaluate.

use std::sync::LazyLock;

use cel::ast::NodeKind;
use cel::cost::{SizeEstimate, SizeHints, estimate};
use cel::environment::{Environment, Origin};
use cel::evaluation::{Limits, Program};
use cel::library::{Version, extensions, standard};
use cel::parser::parse;
use cel::source::Source;
use cel::types::Type;
use cel::unparse::{outline, unparse};
use cel::value::{OwnedMap, Value};

/// Cost limit of an evaluation: some milliseconds.
const COST_MAX: u64 = 20_000;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let mut libraries = vec![standard::library()];
    libraries.extend(extensions());
    Environment::new(&libraries, Version::new(1, 35), Origin::New)
        .with_variable("i", Type::Int)
        .with_variable("s", Type::String)
        .with_variable("l", Type::list(Type::Int))
        .with_variable("m", Type::map(Type::String, Type::Dyn))
        .with_variable("d", Type::Dyn)
});

/// Maximum number of readings after which the written form of a tree is stable.
const READINGS_MAX: usize = 3;

struct Unknown;

impl SizeHints for Unknown {
    fn size(&self, _: &[&str]) -> Option<SizeEstimate> {
        None
    }
}

/// Compiles and evaluates a text. A tree that is written and read again repeatedly must reach a stable text, and a
/// repeated evaluation must have the same cost and outcome.
pub fn expressions(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let environment = &*ENVIRONMENT;
    let ast = match parse(&Source::new(&*text), environment.syntax()) {
        Ok(ast) => ast,
        Err(error) => {
            assert!(!error.issues().is_empty(), "a refusal says why");
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for (index, node) in ast.nodes.iter().enumerate() {
        if let NodeKind::Call { args, .. } = &node.kind {
            assert!(args.iter().all(|arg| arg.index() < index), "operands come before their operator");
        }
    }
    assert!(!outline(&ast).is_empty());
    let written = unparse(&ast);
    // Some texts of the reference cannot be read back: doubles with an exponent, operators within has(). The
    // reference also writes the negation of a negative number as two signs, which cancel out when they are
    // read, so the text becomes stable only after some readings.
    let mut text = written.clone();
    for round in 0.. {
        let Ok(again) = parse(&Source::new(text.as_str()), environment.syntax()) else { break };
        let next = unparse(&again);
        if next == text {
            break;
        }
        assert!(round < READINGS_MAX, "{written} becomes {text} and {next}");
        text = next;
    }
    let Ok(checked) = cel::checker::check(ast, environment) else { return };
    let cost = estimate(&checked, &Unknown);
    // For a comparison with an empty URL, the reference estimates the lower limit 1 and the upper limit 0.
    assert!(cost.min <= cost.max || written.contains("url(\"\")"), "{written}");
    let Ok(program) = Program::new(&checked, environment) else { return };
    let mut map = OwnedMap::default();
    map.insert(Value::string("a"), Value::list(vec![Value::Null, Value::Double(0.5)]));
    let map = Value::map(map);
    let variables = [
        ("i", Value::Int(-7)),
        ("s", Value::string("h\u{e9}llo 10.0.0.1")),
        ("l", Value::list((0..5).map(Value::Int).collect::<Vec<_>>())),
        ("m", map.clone()),
        ("d", map),
    ];
    let first = program.evaluate(&variables, &Limits::cost(COST_MAX));
    let second = program.evaluate(&variables, &Limits::cost(COST_MAX));
    assert_eq!(first.cost, second.cost, "{written}");
    assert_eq!(first.result.is_ok(), second.result.is_ok(), "{written}");
}
