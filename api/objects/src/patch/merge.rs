//! Merge patch (RFC 7386, docs/api/patches.md#merge-patch): objects are merged, `null` deletes a member, and
//! any other value replaces the old value.
//!
//! If the patch changes or adds an object, the members of the result are sorted by name. Like the reference
//! server, this module also removes `null` members from the objects in a new list, except if the list
//! replaces an object. The RFC does not require the removal.
//!
//! The cost is proportional to the sum of both sizes. The result is never deeper than the deeper of the two
//! documents, so the depth limit of the parser also limits the recursion.

use super::members::OpenMembers;
use super::{Status, Value};
use values::cancellation;
use values::json::Object;

/// Error text for a document that is not a patch.
pub(super) const INVALID: &str = "Invalid JSON Patch";

/// Accepts a document that can be a merge patch: an object or, without strict reporting, an array. An
/// array replaces the whole document, and the decoder then refuses the result.
pub(super) fn check(patch: Value, strict_reporting: bool) -> Result<Value, Status> {
    match patch {
        Value::Object(_) => Ok(patch),
        Value::Null => Err(Status::bad_request(INVALID)),
        other if strict_reporting => Err(Status::bad_request(format!(
            "error decoding patch: {}",
            go::json::unfit(other.go_kind(), go::json::MAP)
        ))),
        Value::Array(_) => Ok(patch),
        _ => Err(Status::bad_request(INVALID)),
    }
}

/// Applies the patch to a document.
pub(super) fn apply(original: Value, patch: Value) -> Value {
    match patch {
        Value::Object(_) => merged(original, patch),
        mut list => {
            prune(&mut list);
            list
        }
    }
}

/// Returns `current` with the merge patch `change` applied.
fn merged(current: Value, change: Value) -> Value {
    cancellation::step();
    match (current, change) {
        (Value::Object(current), Value::Object(change)) => merge_members(current, change).into(),
        (Value::Object(_), change) => change,
        (_, mut change) => {
            prune(&mut change);
            change
        }
    }
}

fn merge_members(original: Object, patch: Object) -> Object {
    let mut members = OpenMembers::open(original, patch.len());
    for (name, mut change) in patch.into_members() {
        if change.is_null() {
            members.take(&name);
            continue;
        }
        match members.get_mut(&name) {
            Some(slot) if !slot.is_null() => *slot = merged(std::mem::take(slot), change),
            _ => {
                prune(&mut change);
                members.set(name, change);
            }
        }
    }
    let mut merged = members.close();
    super::sort_members(&mut merged);
    merged
}

/// Removes the `null` members of all objects in `value` and sorts the other members. List elements that are
/// `null` are kept.
fn prune(value: &mut Value) {
    cancellation::step();
    match value {
        Value::Object(members) => {
            members.retain(|_, member| {
                prune(member);
                !member.is_null()
            });
            super::sort_members(members);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;
    use values::json::parse;
    use values::testing::text;

    /// Tests the examples of RFC 7386 appendix A, except for documents that are not objects.
    #[test]
    fn merge_patch_passes_the_examples_of_rfc_7386() {
        for (original, patch, want) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            (r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            (r#"{}"#, r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let patch = check(parse(patch.as_bytes()).unwrap(), false).unwrap();
            assert_eq!(text(&apply(parse(original.as_bytes()).unwrap(), patch)), want, "{original}");
        }
    }

    #[test]
    fn merge_patch_sorts_the_objects_that_it_enters_and_removes_nulls_in_lists() {
        for (original, patch, want) in [
            (
                r#"{"b":1,"a":{"d":1,"c":2},"e":{"d":1,"c":2}}"#,
                r#"{"e":{}}"#,
                r#"{"a":{"d":1,"c":2},"b":1,"e":{"c":2,"d":1}}"#,
            ),
            (r#"{}"#, r#"{"b":{"d":1,"c":{"f":1,"e":null}}}"#, r#"{"b":{"c":{"f":1},"d":1}}"#),
            (
                r#"{"l":[1]}"#,
                r#"{"l":[{"b":1,"a":null,"c":{"d":null}},null]}"#,
                r#"{"l":[{"b":1,"c":{}},null]}"#,
            ),
            (r#"{}"#, r#"{"l":[[{"x":null,"b":1,"a":2}]]}"#, r#"{"l":[[{"a":2,"b":1}]]}"#),
            (r#"{"l":null}"#, r#"{"l":[{"x":null}]}"#, r#"{"l":[{}]}"#),
            (r#"{"l":{"a":1}}"#, r#"{"l":[{"b":1,"a":null}]}"#, r#"{"l":[{"b":1,"a":null}]}"#),
            (r#"{}"#, r#"[{"b":1,"a":null}]"#, r#"[{"b":1}]"#),
        ] {
            let merged = apply(parse(original.as_bytes()).unwrap(), parse(patch.as_bytes()).unwrap());
            assert_eq!(text(&merged), want, "{original} {patch}");
        }
    }

    #[test]
    fn a_body_that_is_not_a_patch_is_400() {
        let decoding = "error decoding patch: json: cannot unmarshal";
        let target = "into Go value of type map[string]interface {}";
        for (patch, strict, want) in [
            ("null", false, INVALID.to_owned()),
            ("null", true, INVALID.to_owned()),
            ("5", false, INVALID.to_owned()),
            ("\"x\"", true, format!("{decoding} string {target}")),
            ("[]", true, format!("{decoding} array {target}")),
        ] {
            let status = check(parse(patch.as_bytes()).unwrap(), strict).unwrap_err();
            assert_eq!((status.code.as_u16(), status.message.clone()), (400, want), "{patch}");
        }
    }

    #[test]
    fn two_large_objects_merge_in_linear_time() {
        let big = |offset: i64| -> Value {
            let members = (0..60_000).map(|n| (format!("key-{:08}", n + offset).into(), Value::Int(offset)));
            members.collect::<Object>().into()
        };
        let begin = testkit::processor_time();
        let merged = apply(big(0), big(30_000));
        assert_eq!(merged.as_object().unwrap().len(), 90_000);
        let took = testkit::processor_time() - begin;
        assert!(took.as_secs() < 5, "quadratic: {took:?}");
    }

    /// The pseudocode of the RFC, applied to sorted maps.
    mod model {
        use super::*;
        use std::collections::BTreeMap;

        #[derive(Clone, Debug, PartialEq)]
        pub enum Tree {
            Leaf(Value),
            Map(BTreeMap<String, Tree>),
        }

        pub fn to_tree(value: &Value) -> Tree {
            match value {
                Value::Object(members) => {
                    Tree::Map(members.iter().map(|(name, value)| (name.to_owned(), to_tree(value))).collect())
                }
                leaf => Tree::Leaf(leaf.clone()),
            }
        }

        pub fn merge_patch(target: Option<Tree>, patch: Tree) -> Tree {
            let Tree::Map(patch) = patch else { return patch };
            let mut target = match target {
                Some(Tree::Map(map)) => map,
                _ => BTreeMap::new(),
            };
            for (name, value) in patch {
                if value == Tree::Leaf(Value::Null) {
                    target.remove(&name);
                } else {
                    let before = target.remove(&name);
                    target.insert(name, merge_patch(before, value));
                }
            }
            Tree::Map(target)
        }
    }

    #[test]
    fn merge_patch_equals_the_pseudo_code_of_rfc_7386_for_random_patches() {
        let mut random = Random(7386);
        fn tree(random: &mut Random, depth: usize) -> Value {
            match random.index(if depth == 0 { 4 } else { 8 }) {
                0 => Value::Null,
                1 => Value::Int(random.index(3) as i64),
                2 => Value::Array(vec![Value::Int(random.index(2) as i64), Value::Null]),
                3 => "x".into(),
                _ => {
                    let count = random.index(5);
                    let mut members = Object::new();
                    for _ in 0..count {
                        members.insert(format!("k{}", random.index(6)), tree(random, depth - 1));
                    }
                    members.into()
                }
            }
        }
        for round in 0..5_000 {
            let (original, patch) = (tree(&mut random, 4), tree(&mut random, 4));
            let want = model::merge_patch(Some(model::to_tree(&original)), model::to_tree(&patch));
            let shown = format!("round {round}: {} + {}", text(&original), text(&patch));
            assert_eq!(model::to_tree(&apply(original, patch)), want, "{shown}");
        }
    }
}
