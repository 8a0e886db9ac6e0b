//! Tolerations of pods: whether one toleration covers another, and the merge of two lists of tolerations.

use values::json::{Object, Value};

/// Returns the taint of a node that is not ready, in the domain of the naming profile.
pub fn not_ready(domain: &str) -> String {
    format!("node.{domain}/not-ready")
}

/// Returns a toleration that matches every taint with this key and effect.
pub fn exists(key: &str, effect: &'static str) -> Object {
    Object::from_iter([
        ("key".into(), key.into()),
        ("operator".into(), "Exists".into()),
        ("effect".into(), effect.into()),
    ])
}

fn text<'t>(toleration: &'t Value, name: &str) -> &'t str {
    toleration.str_at(&[name])
}

/// Returns whether both tolerations are equal, regardless of the order of their members.
fn is_same(a: &Value, b: &Value) -> bool {
    ["key", "operator", "value", "effect"].iter().all(|name| text(a, name) == text(b, name))
        && a.get("tolerationSeconds") == b.get("tolerationSeconds")
}

/// Returns whether `wide` tolerates everything that `narrow` tolerates.
pub fn covers(wide: &Value, narrow: &Value) -> bool {
    if is_same(wide, narrow) {
        return true;
    }
    let exists = text(wide, "operator") == "Exists";
    let every_key = text(wide, "key").is_empty() && exists;
    if text(wide, "key") != text(narrow, "key") && !every_key {
        return false;
    }
    let effect = text(wide, "effect");
    if !effect.is_empty() && effect != text(narrow, "effect") {
        return false;
    }
    if effect == "NoExecute"
        && let Some(longest) = wide.get("tolerationSeconds").and_then(Value::as_i64)
        && narrow.get("tolerationSeconds").and_then(Value::as_i64).is_none_or(|seconds| seconds > longest)
    {
        return false;
    }
    match text(wide, "operator") {
        "Equal" | "" => text(narrow, "operator") == "Equal" && text(wide, "value") == text(narrow, "value"),
        _ => exists,
    }
}

/// Merges two lists and drops every toleration that another toleration covers.
pub fn merged(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut kept: Vec<Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let is_covered = kept.iter().any(|other| covers(other, toleration))
            || all[at + 1..].iter().any(|other| !is_same(other, toleration) && covers(other, toleration));
        if !is_covered {
            kept.push((*toleration).clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    fn list(text: &str) -> Vec<Value> {
        parse(text.as_bytes()).unwrap().as_array().unwrap().to_vec()
    }

    #[test]
    fn merged_tolerations_omit_those_that_another_toleration_covers() {
        let (a, all) = (r#"{"key":"a","operator":"Exists"}"#, r#"{"operator":"Exists"}"#);
        let equal = r#"{"key":"a","operator":"Equal","value":"v"}"#;
        let brief = r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}"#;
        let long = r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":9}"#;
        for (first, second, want) in [
            (a, a, vec![a]),
            (a, equal, vec![a]),
            (equal, a, vec![a]),
            (all, brief, vec![all]),
            (brief, long, vec![long]),
            (long, brief, vec![long]),
            (brief, equal, vec![brief, equal]),
        ] {
            let got = merged(&list(&format!("[{first}]")), &list(&format!("[{second}]")));
            assert_eq!(got, list(&format!("[{}]", want.join(","))), "{first} {second}");
        }
    }
}
