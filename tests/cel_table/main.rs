//! Evaluates the inputs of a CEL table, and prints one JSON object per line on standard output.
//!
//! `cel-table FILE.jsonl` reads only the input fields of each line, and skips lines with unknown operations.

mod auth;
mod base;
mod crd;
mod json;
mod policy;
mod versions;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: cel-table FILE.jsonl");
        return ExitCode::FAILURE;
    };
    match std::fs::read_to_string(&path).and_then(|text| answer(Path::new(&path), &text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(path: &Path, text: &str) -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut policies = None;
    let mut definitions = None;
    let mut configurations = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let row: serde_json::Value = serde_json::from_str(line)?;
        let mut answer = match (row["env"].as_str(), row["op"].as_str()) {
            (Some("base"), None) if row["rule"]["function"].is_string() => versions::answer(&row),
            (Some("base"), None) => base::answer(&row),
            (Some("policy"), Some(_)) => {
                if policies.is_none() {
                    policies = Some(policy::Fixture::next_to(path)?);
                }
                match policies.as_ref().and_then(|policies| policies.answer(&row)) {
                    Some(answer) => answer,
                    None => continue,
                }
            }
            (Some("crd"), Some(_)) => {
                if definitions.is_none() {
                    definitions = Some(crd::Fixture::next_to(path)?);
                }
                match definitions.as_ref().and_then(|definitions| definitions.answer(&row)) {
                    Some(answer) => answer,
                    None => continue,
                }
            }
            (Some("authn" | "authz"), Some(_)) => {
                if configurations.is_none() {
                    configurations = Some(auth::Fixture::next_to(path)?);
                }
                match configurations.as_ref().and_then(|configurations| configurations.answer(&row)) {
                    Some(answer) => answer,
                    None => continue,
                }
            }
            _ => continue,
        };
        answer["id"] = row["id"].clone();
        writeln!(out, "{answer}")?;
    }
    out.flush()
}
