//! Field paths in the syntax of the history endpoints: `spec.replicas`, `metadata.annotations["a.b/c"]`,
//! `spec.containers[0].image`.

use serde_json::Value;

/// A path from the root of an object to one of its fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldPath(Vec<PathStep>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum PathStep {
    Member(String),
    Item(usize),
}

impl FieldPath {
    /// Returns the value at the path, or `None` if the object has no value there.
    pub fn value_in<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(object, |value, step| match step {
            PathStep::Member(name) => value.get(name),
            PathStep::Item(index) => value.get(index),
        })
    }
}

/// Parses a path. A dot before the first name is accepted, as in JSONPath.
///
/// # Errors
/// The text is not a valid path.
pub fn field_path(text: &str) -> Result<FieldPath, String> {
    let wrong = || "must be a field path such as spec.replicas or metadata.annotations[\"a.b/c\"]".to_owned();
    let mut steps = Vec::new();
    let mut rest = text.strip_prefix('.').unwrap_or(text);
    let mut is_first = true;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = bracketed(inner).ok_or_else(wrong)?;
            steps.push(step);
            rest = after;
        } else {
            let names = if is_first { rest } else { rest.strip_prefix('.').ok_or_else(wrong)? };
            let end = names.find(['.', '[']).unwrap_or(names.len());
            if end == 0 {
                return Err(wrong());
            }
            steps.push(PathStep::Member(names[..end].to_owned()));
            rest = &names[end..];
        }
        is_first = false;
    }
    if steps.is_empty() { Err(wrong()) } else { Ok(FieldPath(steps)) }
}

/// Parses an index or a quoted name, including the closing bracket.
fn bracketed(text: &str) -> Option<(PathStep, &str)> {
    if text.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let name = names.next()?.ok()?;
        let rest = text[names.byte_offset()..].strip_prefix(']')?;
        return Some((PathStep::Member(name), rest));
    }
    if let Some(quoted) = text.strip_prefix('\'') {
        let (name, rest) = quoted.split_once("']")?;
        return Some((PathStep::Member(name.to_owned()), rest));
    }
    let (index, rest) = text.split_once(']')?;
    Some((PathStep::Item(index.parse().ok()?), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn history_field_paths_resolve_to_fields() {
        let object = json!({
            "spec": {"replicas": 3, "containers": [{"image": "a"}, {"image": "b"}]},
            "metadata": {"annotations": {"a.b/c": "x", "q\"]": "y"}},
        });
        for (path, want) in [
            ("spec.replicas", json!(3)),
            (".spec.replicas", json!(3)),
            ("spec.containers[1].image", json!("b")),
            ("metadata.annotations[\"a.b/c\"]", json!("x")),
            ("metadata.annotations['a.b/c']", json!("x")),
            ("metadata.annotations[\"q\\\"]\"]", json!("y")),
            ("[\"spec\"].replicas", json!(3)),
            ("spec.nothing", json!(null)),
            ("spec.containers[7]", json!(null)),
        ] {
            let found = field_path(path).unwrap().value_in(&object).cloned().unwrap_or_default();
            assert_eq!(found, want, "{path}");
        }
        for path in ["", ".", "a..b", "a[", "a[x]", "a[\"b\"", "a[-1]", "a.[0]"] {
            assert!(field_path(path).is_err(), "{path}");
        }
    }
}
