//! Evaluates `base` lines: compiles an expression in an environment with the variables of the line, estimates its
//! cost, and evaluates it.

use cel::cost::{SizeEstimate, SizeHints, estimate};
use cel::environment::{Environment, Origin};
use cel::error::EvalErrorKind;
use cel::evaluation::{Limits, Program};
use cel::library::{Version, extensions, standard};
use cel::parser::parse;
use cel::source::Source;
use cel::unparse::{outline, unparse};
use serde_json::{Value as Json, json};

use crate::json;

/// Cost limit of an evaluation.
const COST_MAX: u64 = 1_000_000;

/// Returns the output fields of a line.
pub fn answer(row: &Json) -> Json {
    let text = expression(row);
    let environment = environment(row);
    let mut out = json!({});
    let ast = match parse(&Source::new(text.as_str()), environment.syntax()) {
        Ok(ast) => ast,
        Err(error) => {
            out["error"] = error.to_string().into();
            return out;
        }
    };
    let unparsed = unparse(&ast);
    if unparsed != text {
        out["unparsed"] = unparsed.into();
    }
    out["ast"] = outline(&ast).into();
    let checked = match cel::checker::check(ast, &environment) {
        Ok(checked) => checked,
        Err(error) => {
            out["error"] = error.to_string().into();
            return out;
        }
    };
    out["type"] = checked.result_type().declared().to_string().into();
    let cost = estimate(&checked, &Hints(&row["sizes"]));
    out["estMin"] = cost.min.into();
    out["estMax"] = cost.max.into();
    let program = match Program::new(&checked, &environment) {
        Ok(program) => program,
        // The reference implementation panics here. The table of the reference implementation has an error at run
        // time for this line.
        Err(error) if error.kind == EvalErrorKind::Unhashable => {
            out["runtimeError"] = format!("panic: {error}").into();
            return out;
        }
        Err(error) => {
            out["error"] = format!("program instantiation failed: {error}").into();
            return out;
        }
    };
    if environment.variable("authorizer").is_some() {
        // The table has no results of these expressions.
        return out;
    }
    let empty = serde_json::Map::new();
    let variables: Vec<_> = row["vars"]
        .as_object()
        .unwrap_or(&empty)
        .iter()
        .map(|(name, value)| (name.clone(), json::to_value(value)))
        .collect();
    let evaluation = program.evaluate(&variables, &Limits::cost(COST_MAX));
    out["cost"] = evaluation.cost.into();
    match evaluation.result {
        Ok(value) => out["result"] = json::from_value(&value),
        Err(error) => out["runtimeError"] = error.to_string().into(),
    }
    out
}

/// Returns the expression of a line. The line contains the expression or a rule to generate it.
pub fn expression(row: &Json) -> String {
    let Some(generated) = row.get("gen") else { return row["expr"].as_str().unwrap_or_default().to_owned() };
    let part = |name: &str| generated[name].as_str().unwrap_or_default();
    let n = generated["n"].as_u64().unwrap_or_default() as usize;
    [&part("prefix").repeat(n), part("mid"), &part("suffix").repeat(n)].concat()
}

/// Returns the environment of a line, with its variables.
pub fn environment(row: &Json) -> Environment {
    let version = row["version"].as_str().unwrap_or("1.35");
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    let version = Version::new(major.parse().unwrap_or(1), minor.parse().unwrap_or(0));
    let origin = if row["stored"] == true { Origin::Stored } else { Origin::New };
    let mut libraries = vec![standard::library()];
    libraries.extend(extensions());
    let mut environment = Environment::new(&libraries, version, origin);
    for (name, declared) in row["decls"].as_object().into_iter().flatten() {
        if let Some(declared) = declared.as_str().and_then(json::to_type) {
            environment = environment.with_variable(name, declared);
        }
    }
    environment
}

/// The size estimates that a line gives for paths.
struct Hints<'r>(&'r Json);

impl SizeHints for Hints<'_> {
    fn size(&self, path: &[&str]) -> Option<SizeEstimate> {
        let size = self.0.get(path.join("."))?;
        Some(SizeEstimate { min: size[0].as_u64()?, max: size[1].as_u64()? })
    }
}
