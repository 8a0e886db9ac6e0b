//! The configuration file of the server: YAML or JSON of kind `ServerConfiguration`, whose members have the names of the
//! flags (docs/reference/configuration.md).
//!
//! The file is read strictly: unknown names, duplicate names, and values of a wrong type are errors. All errors are
//! reported together, each with its line.

use std::path::Path;

use values::json::Value;
use values::yaml::{self, YamlError};

use super::{Field, FlagValues, Origin, SourceError, field_named, unknown};
use crate::host::files;

/// The kind of the file.
pub const KIND: &str = "ServerConfiguration";

/// The version of the kind.
pub const API_VERSION: &str = "apiserver.config.cluster.io/v1";

/// Reads the values of flags from a configuration file.
///
/// # Errors
/// The file cannot be read or has errors. The list has all errors.
pub fn read_file(path: &Path, fields: &[Field]) -> Result<Vec<FlagValues>, Vec<SourceError>> {
    let bytes = files::read(path).map_err(|error| {
        let why = format!("the file cannot be read: {error}");
        vec![fault(path, 0, "config", &path.display().to_string(), &why, "the path of a file (YAML)")]
    })?;
    parse(path, &bytes, fields)
}

/// Parses the contents of a configuration file.
pub(super) fn parse(
    path: &Path,
    bytes: &[u8],
    fields: &[Field],
) -> Result<Vec<FlagValues>, Vec<SourceError>> {
    let text = String::from_utf8_lossy(bytes);
    let document = yaml::parse(bytes).map_err(|error| vec![not_yaml(path, &error)])?;
    let mut errors: Vec<SourceError> =
        document.duplicates.iter().map(|message| twice(path, message)).collect();
    let Value::Object(members) = &document.value else {
        let accepted = format!("a mapping with apiVersion: {API_VERSION}, kind: {KIND} and names of flags");
        errors.push(fault(path, 1, "", "", "the file is not a mapping", &accepted));
        return Err(errors);
    };
    let mut given = Vec::new();
    for (name, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match members.get(name) {
            Some(Value::String(value)) if value == want => {}
            Some(value) => {
                let line = line_of(&text, name);
                errors.push(fault(path, line, name, &value_text(value), "the file has another type", want));
            }
            None => errors.push(fault(path, 1, name, "", "the member is missing", want)),
        }
    }
    for (name, value) in members.iter().filter(|(name, _)| !matches!(*name, "apiVersion" | "kind")) {
        let line = line_of(&text, name);
        if name == "config" {
            let why = "a configuration file cannot name another one";
            errors.push(fault(
                path,
                line,
                name,
                &value_text(value),
                why,
                "the flag --config on the command line",
            ));
            continue;
        }
        let Some(field) = field_named(fields, name) else {
            let (why, accepted) = unknown(fields, name);
            errors.push(fault(path, line, name, "", &why, &accepted));
            continue;
        };
        match texts(field, value) {
            Ok(values) => {
                let origin = Origin::File { path: path.to_owned(), line };
                given.push(FlagValues { flag: name.to_owned(), values, origin });
            }
            Err(why) => errors.push(fault(path, line, name, &value_text(value), &why, &field.accepted())),
        }
    }
    if errors.is_empty() {
        return Ok(given);
    }
    errors.sort_by(|a, b| a.origin.cmp(&b.origin));
    Err(errors)
}

fn fault(path: &Path, line: usize, field: &str, value: &str, why: &str, accepted: &str) -> SourceError {
    SourceError {
        origin: Origin::File { path: path.to_owned(), line },
        field: field.to_owned(),
        value: value.to_owned(),
        why: why.to_owned(),
        accepted: accepted.to_owned(),
    }
}

fn not_yaml(path: &Path, error: &YamlError) -> SourceError {
    let (line, why) = match error {
        YamlError::Syntax { line, what } => (*line, what.clone()),
        error => (0, error.to_string()),
    };
    fault(
        path,
        line,
        "",
        "",
        &format!("the file is not YAML: {why}"),
        "YAML, with a name and a value on each line",
    )
}

/// Converts the YAML parser's message for a duplicate name: `line 4: key "a" already set in map`.
fn twice(path: &Path, message: &str) -> SourceError {
    let rest = message.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
    let (line, rest) = rest.unwrap_or(("0", message));
    let name = rest.split('"').nth(1).unwrap_or_default();
    fault(
        path,
        line.parse().unwrap_or(0),
        name,
        "",
        "the name occurs twice",
        "each name once; a list as [a, b]",
    )
}

/// Returns the line of a member of the outermost mapping, or 0 if the line is unknown. A name at the beginning of a
/// line is preferred, because members of nested mappings are indented.
fn line_of(text: &str, name: &str) -> usize {
    let begins = |line: &str| {
        let line = line.trim_start_matches(['"', '\'']);
        let rest = line.strip_prefix(name).map(|rest| rest.trim_start_matches(['"', '\'']).trim_start());
        rest.is_some_and(|rest| rest.starts_with(':'))
    };
    let inside = |line: &str| line.split(['{', ',']).any(|part| begins(part.trim_start()));
    let at = text.lines().position(begins).or_else(|| text.lines().position(inside));
    at.map_or(0, |at| at + 1)
}

/// Converts a value into the texts that it would have on a command line.
fn texts(field: &Field, value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Null => Err("the member has no value".to_owned()),
        Value::Array(items) if field.is_list() => {
            let items: Vec<String> = items
                .iter()
                .map(|item| scalar(item).ok_or("a list has only simple values"))
                .collect::<Result<_, _>>()?;
            Ok(match (items.is_empty(), field.is_repeatable) {
                (true, _) => vec![String::new()],
                (false, true) => items,
                (false, false) => vec![items.join(",")],
            })
        }
        Value::Array(_) => Err("the flag has one value, not a list".to_owned()),
        Value::Object(members) if field.has_pairs() => {
            let pair = |(name, value): (&str, &Value)| {
                scalar(value).map(|value| format!("{name}={value}")).ok_or("a pair has a simple value")
            };
            let pairs: Vec<String> = members.iter().map(pair).collect::<Result<_, _>>()?;
            Ok(vec![pairs.join(",")])
        }
        Value::Object(_) => Err("the flag has one value, not a mapping".to_owned()),
        value => match (scalar(value), field.kind.as_str()) {
            (Some(text), "BOOL") if !matches!(value, Value::Bool(_)) => {
                Err(format!("{} is not a Boolean of YAML", go::quote(&text)))
            }
            (Some(text), _) => Ok(vec![text]),
            (None, _) => Err("the value is not simple".to_owned()),
        },
    }
}

/// Returns the text of a value, or `None` if the value is a list or a mapping.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Number(_) => Some(value_text(value)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Formats a value for a message: a string without quotes, any other value as JSON.
fn value_text(value: &Value) -> String {
    if let Value::String(text) = value {
        return text.clone();
    }
    let mut text = Vec::new();
    values::json::write(value, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
