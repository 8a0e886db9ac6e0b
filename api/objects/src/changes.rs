//! The changes between two states of an object: the paths of the changed fields, and a JSON Patch.
//!
//! ```text
//! two trees ─► leaves that differ ─┬─► paths: spec.replicas, metadata.annotations["a.b/c"], spec.containers[0].image
//!                                  └─► operations of a JSON Patch (RFC 6902), which turn the first into the second
//! ```
//!
//! Lists are compared by position, as JSON Patch does. `metadata.resourceVersion` and
//! `metadata.managedFields` change with nearly every write and are left out.

use std::fmt::Write;
use std::ops::ControlFlow;

use values::cancellation;
use values::json::{self, Object, Value};

/// Maximum length of all paths of a comparison in bytes, enough for a hundred long paths. The limit is needed
/// because the name of a member may be as long as an object, and each path below the member repeats the name.
const PATHS_BYTES_MAX: usize = 32 * 1024;

/// A step of a path from the root of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step<'v> {
    Member(&'v str),
    Item(usize),
}

impl Step<'_> {
    /// Returns the approximate length of the step in a path, in bytes.
    fn len(self) -> usize {
        match self {
            Step::Member(name) => name.len() + 1,
            Step::Item(_) => 4,
        }
    }
}

/// A difference at one path.
#[derive(Debug)]
pub struct Difference<'v> {
    path: Vec<Step<'v>>,
    /// Value before the change; `None` if the value did not exist.
    pub old: Option<&'v Value>,
    /// Value after the change; `None` if the value no longer exists.
    pub new: Option<&'v Value>,
}

/// The first differences between two states.
#[derive(Debug, Default)]
pub struct Differences<'v> {
    /// The differences, in an order in which a JSON Patch can apply them.
    pub found: Vec<Difference<'v>>,
    /// Whether there are more differences than `found` contains.
    pub is_cut: bool,
}

/// Paths that are left out.
const OMITTED: [[&str; 2]; 2] = [["metadata", "managedFields"], ["metadata", "resourceVersion"]];

/// Returns the first differences from `old` to `new`: at most `most` differences, whose paths have at most
/// `PATHS_BYTES_MAX` bytes together. The comparison stops at these limits.
pub fn differences<'v>(old: &'v Value, new: &'v Value, most: usize) -> Differences<'v> {
    let mut comparison =
        Comparison { path: Vec::new(), found: Vec::new(), most, paths_bytes: PATHS_BYTES_MAX };
    let is_cut = comparison.compare(old, new).is_break();
    Differences { found: comparison.found, is_cut }
}

/// A comparison of two states, which stops at the first difference above the limits.
struct Comparison<'v> {
    /// Path of the values that are compared.
    path: Vec<Step<'v>>,
    found: Vec<Difference<'v>>,
    most: usize,
    /// Bytes that are left for paths.
    paths_bytes: usize,
}

impl<'v> Comparison<'v> {
    fn compare(&mut self, old: &'v Value, new: &'v Value) -> ControlFlow<()> {
        cancellation::step();
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => self.compare_members(old, new),
            (Value::Array(old), Value::Array(new)) => self.compare_items(old, new),
            (old, new) if old == new => ControlFlow::Continue(()),
            (old, new) => self.add(Some(old), Some(new)),
        }
    }

    fn compare_members(&mut self, old: &'v Object, new: &'v Object) -> ControlFlow<()> {
        let removed =
            old.iter().filter(|(name, _)| !new.contains(name)).map(|(name, value)| (name, Some(value), None));
        let others = new.iter().map(|(name, value)| (name, old.get(name), Some(value)));
        for (name, old, new) in removed.chain(others) {
            if !OMITTED.iter().any(|omitted| is_at(&self.path, name, omitted)) {
                self.at(Step::Member(name), old, new)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn compare_items(&mut self, old: &'v [Value], new: &'v [Value]) -> ControlFlow<()> {
        let common = old.len().min(new.len());
        for index in 0..common {
            self.at(Step::Item(index), Some(&old[index]), Some(&new[index]))?;
        }
        // Items are removed from the end, so that the positions of the remaining items stay valid.
        for index in (common..old.len()).rev() {
            self.at(Step::Item(index), Some(&old[index]), None)?;
        }
        for (index, item) in new.iter().enumerate().skip(common) {
            self.at(Step::Item(index), None, Some(item))?;
        }
        ControlFlow::Continue(())
    }

    /// Compares the values at a step below the current path.
    fn at(&mut self, step: Step<'v>, old: Option<&'v Value>, new: Option<&'v Value>) -> ControlFlow<()> {
        self.path.push(step);
        let flow = match (old, new) {
            (Some(old), Some(new)) => self.compare(old, new),
            (old, new) => self.add(old, new),
        };
        self.path.pop();
        flow
    }

    fn add(&mut self, old: Option<&'v Value>, new: Option<&'v Value>) -> ControlFlow<()> {
        let len: usize = self.path.iter().copied().map(Step::len).sum();
        if self.found.len() == self.most || len > self.paths_bytes {
            return ControlFlow::Break(());
        }
        self.paths_bytes -= len;
        self.found.push(Difference { path: self.path.clone(), old, new });
        ControlFlow::Continue(())
    }
}

fn is_at(path: &[Step<'_>], name: &str, [parent, child]: &[&str; 2]) -> bool {
    path == [Step::Member(parent)] && name == *child
}

impl Difference<'_> {
    /// Returns the path in the notation of field paths.
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
            let Differences { found, is_cut } = differences(&old, &new, 10);
            assert!(!is_cut);
            let got: Vec<_> = found.iter().map(Difference::path).collect();
            assert_eq!(got.join(" "), paths, "{old:?} {new:?}");
            let patch = Value::Array(found.iter().map(Difference::operation).collect());
            let patched = apply_operations(patch, old.clone()).unwrap();
            assert_eq!(differences(&patched, &new, 10).found.len(), 0, "{patched:?} {new:?}");
        }
    }

    #[test]
    fn many_changes_and_long_paths_are_truncated() {
        let map = |count: usize, name: &str, value: usize| {
            let members = (0..count).map(|at| format!("\"{name}{at}\":{value}"));
            parse(format!("{{\"m\":{{{}}}}}", members.collect::<Vec<_>>().join(",")).as_bytes()).unwrap()
        };
        let long = "n".repeat(PATHS_BYTES_MAX / 4);
        for (count, name, most, found, is_cut) in [
            (100, "n", 100, 100, false),
            (101, "n", 100, 100, true),
            (100_000, "n", 100, 100, true),
            (100, "n", 0, 0, true),
            (100, &*long, 100, 3, true),
        ] {
            let (old, new) = (map(count, name, 1), map(count, name, 2));
            let got = differences(&old, &new, most);
            assert_eq!((got.found.len(), got.is_cut), (found, is_cut), "{count} of at most {most}");
            let paths: usize = got.found.iter().map(|change| change.path().len()).sum();
            assert!(paths <= PATHS_BYTES_MAX, "{paths} bytes");
        }
    }
}
