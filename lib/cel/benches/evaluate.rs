//! Benchmarks of the evaluation of planned expressions.
//!
//! Each benchmark measures one evaluation of a rule from a real policy. The values of the variables are
//! small, and the benchmark owns them. Parsing, checking and planning are not measured, because they happen
//! once per expression. The host's access to its objects is not measured either.

use std::hint::black_box;

use cel::environment::{Environment, Origin};
use cel::evaluation::{Limits, Program};
use cel::library::{Version, extensions, standard};
use cel::types::Type;
use cel::value::{OwnedMap, Value};
use criterion::{Criterion, criterion_group, criterion_main};

fn map(entries: &[(&str, Value<'static>)]) -> Value<'static> {
    let entries = entries.iter().map(|(key, value)| (Value::string(*key), value.clone()));
    Value::map(entries.collect::<OwnedMap<'_>>())
}

fn evaluate(c: &mut Criterion) {
    let mut libraries = vec![standard::library()];
    libraries.extend(extensions());
    let environment = Environment::new(&libraries, Version::new(1, 35), Origin::New)
        .with_variable("self", Type::Dyn)
        .with_variable("names", Type::list(Type::String));
    let names: Vec<_> = (0..100).map(|i| Value::string(format!("name-{i}"))).collect();
    let variables = [
        (
            "self",
            map(&[
                ("replicas", Value::Int(3)),
                ("spec", map(&[("min", Value::Int(1)), ("max", Value::Int(9))])),
            ]),
        ),
        ("names", Value::list(names)),
    ];
    let mut group = c.benchmark_group("evaluate");
    for expression in [
        "self.replicas >= self.spec.min && self.replicas <= self.spec.max",
        "has(self.paused) ? self.paused : false",
        "names.all(n, n.startsWith('name-'))",
        "names.map(n, n + 'x').size() == 100",
        "names.exists(n, n.matches('^name-9[0-9]$'))",
    ] {
        let checked = environment.compile(expression).expect("a valid expression");
        let program = Program::new(&checked, &environment).expect("a program");
        group.bench_function(expression, |b| {
            b.iter(|| black_box(program.evaluate(black_box(&variables), &Limits::cost(1_000_000))));
        });
    }
    group.finish();
}

criterion_group!(benches, evaluate);
criterion_main!(benches);
