//! The scale of a custom object: numbers and a selector at paths that the definition declares.

use types::schema::table::ScalePaths;
use values::field::FieldError;
use values::json::{Object, Value, go_print};

/// Reason why a path of a scale cannot be read or written.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(".{path} accessor error: {found} is of the type {kind}, expected {expected}")]
pub struct AccessError {
    path: String,
    found: String,
    kind: &'static str,
    expected: &'static str,
}

/// Returns the steps of a JSON path.
pub fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

/// Returns the integer at a path; `None` if the path does not exist.
///
/// # Errors
/// Fails if the value is not an integer.
pub fn count(object: &Object, path: &str) -> Result<Option<i64>, AccessError> {
    match at(object, path)? {
        None => Ok(None),
        Some(Value::Int(count)) => Ok(Some(*count)),
        Some(other) => Err(access_error(path, other, "int64")),
    }
}

/// Returns the string at a path; `None` if the path does not exist.
///
/// # Errors
/// Fails if the value is not a string.
pub fn text<'o>(object: &'o Object, path: &str) -> Result<Option<&'o str>, AccessError> {
    match at(object, path)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(access_error(path, other, "string")),
    }
}

/// Sets the number at a path, and creates the missing objects on the path.
///
/// # Errors
/// Fails if a value on the path is not an object.
pub fn set_count(object: &mut Object, path: &str, count: i64) -> Result<(), AccessError> {
    at(object, path)?; // fails if a value on the path is not an object
    let (way, name) = match path.rsplit_once('.') {
        Some((way, name)) => (way, name),
        None => ("", path),
    };
    let mut object = object;
    for step in steps(way).filter(|step| !step.is_empty()) {
        object = object.object_entry(step.to_owned());
    }
    object.insert(name.to_owned(), Value::Int(count));
    Ok(())
}

/// Returns the errors of the values of a scale. A write through `/status` does not write the desired number,
/// so that number is not checked.
pub(super) fn errors(paths: &ScalePaths, object: &Object, is_status: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for path in (!is_status).then_some(&paths.spec).into_iter().chain([&paths.status]) {
        let invalid = |count: i64, detail: String| FieldError::invalid(&**path, &Value::Int(count), detail);
        match count(object, path) {
            Err(error) => errors.push(invalid(0, error.to_string())),
            Ok(Some(count)) if count < 0 => {
                errors.push(invalid(count, "should be a non-negative integer".to_owned()));
            }
            Ok(Some(count)) if count > i64::from(i32::MAX) => {
                errors.push(invalid(count, format!("should be less than or equal to {}", i32::MAX)));
            }
            Ok(_) => {}
        }
    }
    if let Some(path) = &paths.selector
        && let Err(error) = text(object, path)
    {
        errors.push(FieldError::invalid(&**path, &Value::String(String::new()), error.to_string()));
    }
    errors
}

fn at<'o>(object: &'o Object, path: &str) -> Result<Option<&'o Value>, AccessError> {
    let mut steps = steps(path);
    let Some(mut value) = steps.next().and_then(|first| object.get(first)) else { return Ok(None) };
    for step in steps {
        match value {
            Value::Object(members) => match members.get(step) {
                Some(below) => value = below,
                None => return Ok(None),
            },
            other => return Err(access_error(path, other, "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

fn access_error(path: &str, found: &Value, expected: &'static str) -> AccessError {
    let path = steps(path).collect::<Vec<_>>().join(".");
    AccessError { path, found: go_print(found), kind: found.go_type(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::{object, object_text};

    #[test]
    fn scale_values_are_read_and_written_at_their_paths() {
        let mut there = object(r#"{"spec":{"replicas":3,"deep":{"n":"x"},"map":{"b":[1,null],"a":true}}}"#);
        assert_eq!(count(&there, ".spec.replicas"), Ok(Some(3)));
        assert_eq!(count(&there, ".spec.other"), Ok(None));
        assert_eq!(count(&there, ".status.replicas"), Ok(None));
        assert_eq!(text(&there, ".spec.deep.n"), Ok(Some("x")));
        for (path, want) in [
            (".spec.deep.n", ".spec.deep.n accessor error: x is of the type string, expected int64"),
            (
                ".spec.replicas.n",
                ".spec.replicas.n accessor error: 3 is of the type int64, expected map[string]interface{}",
            ),
            (
                ".spec.map",
                ".spec.map accessor error: map[a:true b:[1 <nil>]] is of the type map[string]interface {}, expected int64",
            ),
        ] {
            assert_eq!(count(&there, path).unwrap_err().to_string(), want);
        }
        set_count(&mut there, ".spec.deep.m.n", 4).unwrap();
        assert!(set_count(&mut there, ".spec.replicas.n", 4).is_err());
        assert_eq!(
            object_text(&there),
            r#"{"spec":{"replicas":3,"deep":{"n":"x","m":{"n":4}},"map":{"b":[1,null],"a":true}}}"#
        );
    }

    #[test]
    fn replica_counts_of_a_scale_must_be_in_range() {
        let paths = ScalePaths { spec: ".s.n".into(), status: ".t.n".into(), selector: Some(".t.l".into()) };
        for (text, is_status, want) in [
            (r#"{"s":{"n":1},"t":{"n":2,"l":"a=b"}}"#, false, ""),
            (r#"{"s":{"n":-1}}"#, true, ""),
            (r#"{"s":{"n":-1}}"#, false, ".s.n: Invalid value: -1: should be a non-negative integer"),
            (
                r#"{"t":{"n":2147483648,"l":1}}"#,
                false,
                ".t.n: Invalid value: 2147483648: should be less than or equal to 2147483647; \
                 .t.l: Invalid value: \"\": .t.l accessor error: 1 is of the type int64, expected string",
            ),
        ] {
            let found: Vec<_> =
                errors(&paths, &object(text), is_status).iter().map(ToString::to_string).collect();
            assert_eq!(found.join("; "), want, "{text}");
        }
    }
}
