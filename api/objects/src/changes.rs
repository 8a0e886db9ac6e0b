//! The changes from one state of an object to the next: the paths of the changed fields, and a JSON Patch.
//!
//! ```text
//! two trees ─► leaves that differ ─┬─► paths: spec.replicas, metadata.annotations["a.b/c"], spec.containers[0].image
//!                                  └─► operations of a JSON Patch (RFC 6902), which turn the first into the second
//! ```
//!
//! Lists are compared by position, as JSON Patch does. `metadata.resourceVersion` and
//! `metadata.managedFields` change with nearly every write and are left out.

use std::fmt::Write;

use values::cancellation;
use values::json::{self, Object, Value};

/// A step of a path from the root of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step<'v> {
    Member(&'v str),
    Item(usize),
}

/// A difference at one path.
#[derive(Debug)]
pub struct Difference<'v> {
    path: Vec<Step<'v>>,
    /// Value before the change; `None` if it did not exist.
    pub old: Option<&'v Value>,
    /// Value after the change; `None` if it no longer exists.
    pub new: Option<&'v Value>,
}

/// Paths that are left out.
const OMITTED: [[&str; 2]; 2] = [["metadata", "managedFields"], ["metadata", "resourceVersion"]];

/// Returns the differences from `old` to `new`, in an order in which a JSON Patch can apply them.
pub fn differences<'v>(old: &'v Value, new: &'v Value) -> Vec<Difference<'v>> {
    let mut found = Vec::new();
    compare(old, new, &mut Vec::new(), &mut found);
    found
}

fn compare<'v>(old: &'v Value, new: &'v Value, path: &mut Vec<Step<'v>>, found: &mut Vec<Difference<'v>>) {
    cancellation::step();
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => compare_members(old, new, path, found),
        (Value::Array(old), Value::Array(new)) => compare_items(old, new, path, found),
        (old, new) if old == new => {}
        (old, new) => found.push(Difference { path: path.clone(), old: Some(old), new: Some(new) }),
    }
}

fn compare_members<'v>(
    old: &'v Object,
    new: &'v Object,
    path: &mut Vec<Step<'v>>,
    found: &mut Vec<Difference<'v>>,
) {
    let removed =
        old.iter().filter(|(name, _)| !new.contains(name)).map(|(name, value)| (name, Some(value), None));
    let others = new.iter().map(|(name, value)| (name, old.get(name), Some(value)));
    for (name, old, new) in removed.chain(others) {
        if OMITTED.iter().any(|omitted| is_at(path, name, omitted)) {
            continue;
        }
        path.push(Step::Member(name));
        match (old, new) {
            (Some(old), Some(new)) => compare(old, new, path, found),
            (old, new) => found.push(Difference { path: path.clone(), old, new }),
        }
        path.pop();
    }
}

fn is_at(path: &[Step<'_>], name: &str, [parent, child]: &[&str; 2]) -> bool {
    path == [Step::Member(parent)] && name == *child
}

fn compare_items<'v>(
    old: &'v [Value],
    new: &'v [Value],
    path: &mut Vec<Step<'v>>,
    found: &mut Vec<Difference<'v>>,
) {
    let mut at = |index, old: Option<&'v Value>, new: Option<&'v Value>| {
        path.push(Step::Item(index));
        match (old, new) {
            (Some(old), Some(new)) => compare(old, new, path, found),
            (old, new) => found.push(Difference { path: path.clone(), old, new }),
        }
        path.pop();
    };
    let common = old.len().min(new.len());
    for index in 0..common {
        at(index, Some(&old[index]), Some(&new[index]));
    }
    // Items are removed from the end, so that the positions of the others stay valid.
    for index in (common..old.len()).rev() {
        at(index, Some(&old[index]), None);
    }
    for (index, item) in new.iter().enumerate().skip(common) {
        at(index, None, Some(item));
    }
}

impl Difference<'_> {
    /// Returns the path as field paths are written.
    pub fn path(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            // Writing to a string cannot fail.
            let _ = match step {
                Step::Item(index) => write!(text, "[{index}]"),
                Step::Member(name) if is_plain(name) && text.is_empty() => write!(text, "{name}"),
                Step::Member(name) if is_plain(name) => write!(text, ".{name}"),
                Step::Member(name) => write!(text, "[{}]", quoted(name)),
            };
        }
        text
    }

    /// Returns the operation of a JSON Patch that makes the change.
    pub fn operation(&self) -> Value {
        let mut pointer = String::new();
        for step in &self.path {
            let _ = match step {
                Step::Item(index) => write!(pointer, "/{index}"),
                Step::Member(name) => write!(pointer, "/{}", name.replace('~', "~0").replace('/', "~1")),
            };
        }
        let name = match (self.old, self.new) {
            (_, None) => "remove",
            (None, Some(_)) => "add",
            (Some(_), Some(_)) => "replace",
        };
        let mut operation = Object::new();
        operation.push("op", name.into());
        operation.push("path", pointer.into());
        if let Some(new) = self.new {
            operation.push("value", new.clone());
        }
        operation.into()
    }
}

/// Returns a name in the quotes and escapes of JSON.
fn quoted(name: &str) -> String {
    let mut text = Vec::new();
    json::write(&name.into(), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns whether a member needs no quotes in a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::apply_operations;
    use values::json::parse;

    fn value(text: &str) -> Value {
        parse(text.replace('\'', "\"").as_bytes()).unwrap()
    }

    #[test]
    fn changes_have_paths_and_make_a_patch() {
        for (old, new, paths) in [
            ("{'a':1}", "{'a':1}", ""),
            ("{'spec':{'replicas':1}}", "{'spec':{'replicas':2}}", "spec.replicas"),
            ("{'a':1}", "{'b':1}", "a b"),
            ("{'m':{'a.b/c~d':'x'}}", "{'m':{'a.b/c~d':'y'}}", "m[\"a.b/c~d\"]"),
            ("{'m':null}", "{'m':{'a':1}}", "m"),
            ("{'l':[1,2,3]}", "{'l':[1]}", "l[2] l[1]"),
            ("{'l':[1]}", "{'l':[2,3,4]}", "l[0] l[1] l[2]"),
            ("{'l':[{'n':'a','i':1}]}", "{'l':[{'n':'a','i':2}]}", "l[0].i"),
            ("{'l':[]}", "{'l':{}}", "l"),
            (
                "{'metadata':{'resourceVersion':'1','managedFields':[],'x':1},'resourceVersion':'1'}",
                "{'metadata':{'resourceVersion':'2','managedFields':[1],'x':1},'resourceVersion':'2'}",
                "resourceVersion",
            ),
        ] {
            let (old, new) = (value(old), value(new));
            let found = differences(&old, &new);
            let got: Vec<_> = found.iter().map(Difference::path).collect();
            assert_eq!(got.join(" "), paths, "{old:?} {new:?}");
            let patch = Value::Array(found.iter().map(Difference::operation).collect());
            let patched = apply_operations(patch, old.clone()).unwrap();
            assert_eq!(differences(&patched, &new).len(), 0, "{patched:?} {new:?}");
        }
    }
}
