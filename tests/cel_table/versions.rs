//! Evaluates lines about a function: finds the first compatibility version at which the function compiles, in new and
//! in stored expressions.

use serde_json::{Value as Json, json};

use crate::base;

/// Minor versions of the compatibility versions in the tables, in addition to 1.0.
const VERSIONS: std::ops::RangeInclusive<u32> = 27..=36;

/// Returns the output fields of a line.
pub fn answer(row: &Json) -> Json {
    let compiles = |version: &str, is_stored: bool| {
        let mut row = row.clone();
        row["version"] = version.into();
        row["stored"] = is_stored.into();
        let environment = base::environment(&row);
        environment
            .compile(&base::expression(&row))
            .is_ok_and(|checked| cel::evaluation::Program::new(&checked, &environment).is_ok())
    };
    let mut versions = vec!["1.0".to_owned()];
    versions.extend(VERSIONS.map(|minor| format!("1.{minor}")));
    let mut rule = json!({ "function": row["rule"]["function"] });
    for (name, is_stored) in [("newExpressions", false), ("storedExpressions", true)] {
        let works: Vec<bool> = versions.iter().map(|version| compiles(version, is_stored)).collect();
        let first = works.iter().position(|works| *works);
        rule[name] = first.map_or("never", |first| versions[first].as_str()).into();
        let until = first.and_then(|first| {
            works[first..].iter().position(|works| !works).map(|gone| versions[first + gone - 1].clone())
        });
        if let Some(until) = until {
            rule[format!("{name}Until")] = until.into();
        }
    }
    json!({ "rule": rule })
}
