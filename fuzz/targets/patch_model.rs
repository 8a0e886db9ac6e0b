//! A reference model of JSON Patch (RFC 6902, docs/api/patches.md#json-patch): one operation after the other,
//! without regard to cost.

use values::json::{DEPTH_MAX, Value};

use super::text;
use crate::tree::Tree;

/// Maximum number of bytes that `copy` operations may add to a document.
pub(super) const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Returns the document after the operations; `None` if an operation fails. Operations must have the members
/// that the RFC requires, and values must be written as this server writes them; other tests cover other
/// forms.
pub(super) fn carried_out(operations: &[Value], document: &Value) -> Option<Tree> {
    let mut document = Tree::from(document);
    let mut copied = 0;
    for operation in operations {
        let pointer = |name: &str| operation.get(name).and_then(Value::as_str);
        let value = operation.get("value").map_or(Tree::Leaf(Value::Null), Tree::from);
        let path = pointer("path")?;
        document = match operation.get("op").and_then(Value::as_str)? {
            verb @ ("add" | "replace") => put(document, path, value, verb == "add")?,
            "remove" => taken(document, path)?.0,
            "move" => {
                let (rest, value) = taken(document, pointer("from")?)?;
                put(rest, path, value, true)?
            }
            "copy" => {
                let from = pointer("from").filter(|from| from.contains('/'))?;
                let value = value_at(&document, &steps(from))?;
                copied += text(&Value::from(&value)).len();
                put(document, path, value, true).filter(|_| copied <= COPIED_BYTES_MAX)?
            }
            "test" => {
                let here = if path.is_empty() {
                    document.clone()
                } else {
                    value_at(&document, Some(steps(path)).filter(|steps| !steps.is_empty())?.as_slice())?
                };
                Some(document).filter(|_| here.is_written_as(&value))?
            }
            _ => return None,
        };
    }
    Some(document)
}

/// Returns the segments after each slash, unescaped; text before the first slash is ignored.
fn steps(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// Parses an index, which is any decimal integer; a negative index counts from the end.
fn index(step: &str, len: usize) -> Option<usize> {
    let n: i64 = step.parse().ok()?;
    let n = if n < 0 { n + i64::try_from(len).ok()? } else { n };
    usize::try_from(n).ok().filter(|n| *n < len)
}

/// Returns the value at the pointer. An absent member is `null`, an absent element is an error.
fn value_at(tree: &Tree, steps: &[String]) -> Option<Tree> {
    let Some((step, rest)) = steps.split_first() else { return Some(tree.clone()) };
    match tree {
        Tree::Map(members) => match members.get(step) {
            Some(member) => value_at(member, rest),
            None => rest.is_empty().then_some(Tree::Leaf(Value::Null)),
        },
        Tree::List(items) => value_at(&items[index(step, items.len())?], rest),
        Tree::Leaf(_) => None,
    }
}

/// Returns the document with `value` added at the pointer, or replacing the value there.
fn put(document: Tree, path: &str, value: Tree, adds: bool) -> Option<Tree> {
    if path.is_empty() {
        return Some(value).filter(|value| !adds && !matches!(value, Tree::Leaf(_)));
    }
    let steps = steps(path);
    // A result that cannot be parsed again is refused.
    if steps.len() + value.nesting() > DEPTH_MAX - 1 {
        return None;
    }
    edited(document, &steps, |parent, step| {
        match parent {
            Tree::Map(members) => drop(members.insert(step.to_owned(), value)),
            Tree::List(items) if adds && step == "-" => items.push(value),
            Tree::List(items) if adds => items.insert(index(step, items.len() + 1)?, value),
            Tree::List(items) => {
                let at = index(step, items.len())?;
                items[at] = value;
            }
            Tree::Leaf(_) => return None,
        }
        Some(())
    })
    .map(|(document, ())| document)
}

/// Returns the document without the value at the pointer, and the value.
fn taken(document: Tree, path: &str) -> Option<(Tree, Tree)> {
    edited(document, &steps(path), |parent, step| match parent {
        Tree::Map(members) => members.remove(step),
        Tree::List(items) => index(step, items.len()).map(|at| items.remove(at)),
        Tree::Leaf(_) => None,
    })
}

/// Returns the document after an edit of the container of the last segment.
fn edited<T>(
    mut document: Tree,
    steps: &[String],
    edit: impl FnOnce(&mut Tree, &str) -> Option<T>,
) -> Option<(Tree, T)> {
    let (last, way) = steps.split_last()?;
    let mut place = &mut document;
    for step in way {
        place = match place {
            Tree::Map(members) => members.get_mut(step)?,
            Tree::List(items) => {
                let at = index(step, items.len())?;
                &mut items[at]
            }
            Tree::Leaf(_) => return None,
        };
    }
    let edit = edit(place, last)?;
    Some((document, edit))
}
