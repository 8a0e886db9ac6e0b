//! JSON patch (RFC 6902, docs/api/patches.md#json-patch): operations that are applied in sequence to a tree.
//!
//! The deviations from the RFC are the same as in the reference server. An index is any decimal integer, and a
//! negative index counts from the end. `replace` of a missing member adds the member. `add` without a value
//! adds `null`. The text of a path before the first `/` is ignored. Only `replace` and `test` accept the
//! empty path. A missing member is equal to `null` in a `test`. `test` compares the texts of scalars
//! (`scalar_texts`). The objects on the path of an operation are sorted by name. A PATCH answers every failed
//! operation with the same response (422). The error texts are for callers that apply patches of other
//! origin.
//!
//! Ten thousand operations can cost more than their size suggests. Therefore four quantities are limited: the
//! number of operations, the bytes that `copy` creates, the depth of the result (copying a value into itself
//! doubles the depth), and the number of members and elements that are visited or moved.

use std::borrow::Cow;

use hashbrown::HashSet;

use super::{Status, Value, scalar_texts};
use values::cancellation;
use values::field::go_quote;
use values::json::{DEPTH_MAX, Object, write};
use values::status::StatusReason;

/// Maximum number of operations in a patch (docs/api/patches.md#json-patch).
const OPERATIONS_MAX: usize = 10_000;

/// Maximum size in bytes, as JSON, of the values that all `copy` operations of a patch add
/// (docs/api/patches.md#json-patch).
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Maximum number of nested containers in a result, so that the parser accepts the stored text.
const NESTING_MAX: usize = DEPTH_MAX - 1;

/// Maximum number of members visited and elements moved by one patch, which takes about a third of a second.
/// Ten thousand operations on an object with ten thousand members stay below this limit.
const EFFORT_MAX: usize = 100_000_000;

/// An operation as the client sent it. Missing members are detected when the operation is applied.
#[derive(Clone, Debug)]
pub(super) struct PatchOperation {
    verb: Verb,
    /// The name of the operation as the client wrote it.
    kind: Cow<'static, str>,
    path: Option<String>,
    from: Option<String>,
    /// The operand. The operand of a `test` contains the texts of its scalars (`scalar_texts`).
    value: Option<Value>,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Add,
    Remove,
    Replace,
    Move,
    Copy,
    Test,
    Unknown,
}

/// Reason why a patch failed.
#[derive(Debug)]
pub enum Refused {
    /// An operation cannot be applied. Contains the message of the reference server.
    Operation(String),
    /// A `test` found a different value at this path.
    Test(String),
    /// The patch exceeded `EFFORT_MAX`.
    EffortExceeded,
}

/// Reason why an operation cannot be applied at one of its paths.
enum Failure {
    /// The container of the last step is missing.
    Parent,
    /// The container has no such member or element. Contains the message of the reference server.
    Step(String),
    EffortExceeded,
}

type Outcome<T> = Result<T, Failure>;

/// Returns the failure for exceeding the limit of nesting. The reference server does not have this limit.
fn too_deep() -> Failure {
    Failure::Step("the result is nested too deeply".to_owned())
}

/// Returns whether an operation affects the member at `path`, or one of its ancestors or descendants.
pub(super) fn touch(operations: &[PatchOperation], path: &[&str]) -> bool {
    let concerns = |pointer: &Option<String>| {
        let steps = pointer.iter().flat_map(|pointer| pointer.split('/').skip(1));
        pointer.is_some()
            && steps.zip(path).all(|(step, name)| step.replace("~1", "/").replace("~0", "~") == *name)
    };
    operations.iter().any(|operation| concerns(&operation.path) || concerns(&operation.from))
}

/// Returns all paths of the operations.
fn pointers(operations: &[PatchOperation]) -> Vec<String> {
    operations.iter().flat_map(|operation| [&operation.path, &operation.from]).flatten().cloned().collect()
}

/// Sorts the members of each object on a path in `pointers`. The reference server decodes these objects to maps, and
/// writes maps sorted by key.
fn sort_entered(pointers: &[String], result: &mut Value) {
    if let Value::Object(members) = &mut *result {
        super::sort_members(members);
    }
    let mut entered: HashSet<&str> = HashSet::new();
    for pointer in pointers {
        let mut here = &mut *result;
        // End of the steps in the pointer that lead to `here`.
        let Some(mut end) = pointer.find('/') else { continue };
        while let Some(len) = pointer[end + 1..].find('/') {
            let step = unescape(&pointer[end + 1..][..len]);
            let inner = match here {
                Value::Object(members) => members.get_mut(&step),
                Value::Array(items) => index(&step, items.len()).and_then(|at| items.get_mut(at)),
                _ => None,
            };
            let Some(inner) = inner else { break };
            end += 1 + len;
            if let Value::Object(members) = &mut *inner
                && entered.insert(&pointer[..end])
            {
                super::sort_members(members);
            }
            here = inner;
        }
    }
}

/// Parses operations. With `strict_reporting`, a member of the wrong type is an error, and unknown members
/// are added to `reports`. Otherwise a member of the wrong type fails when the operation is applied.
pub(super) fn parse(
    patch: Value,
    strict_reporting: bool,
    reports: &mut Vec<String>,
) -> Result<Vec<PatchOperation>, Status> {
    let items = match patch {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        other => {
            let target = if strict_reporting { "[]handlers.jsonPatchOp" } else { "jsonpatch.Patch" };
            return Err(wrong_type(&go::json::unfit(other.go_kind(), target), strict_reporting));
        }
    };
    if items.len() > OPERATIONS_MAX {
        return Err(Status::new(
            StatusReason::RequestEntityTooLarge,
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is \
                 {OPERATIONS_MAX}, got {}",
                items.len()
            ),
        ));
    }
    let read = |(at, item)| read_operation(at, item, strict_reporting, reports);
    items.into_iter().enumerate().map(read).collect()
}

fn read_operation(
    at: usize,
    item: Value,
    strict_reporting: bool,
    reports: &mut Vec<String>,
) -> Result<PatchOperation, Status> {
    let members = match item {
        Value::Object(members) => members,
        Value::Null => Object::new(),
        other => {
            let target = if strict_reporting { "handlers.jsonPatchOp" } else { "jsonpatch.Operation" };
            return Err(wrong_type(&go::json::unfit(other.go_kind(), target), strict_reporting));
        }
    };
    let mut operation =
        PatchOperation { verb: Verb::Unknown, kind: "unknown".into(), path: None, from: None, value: None };
    for (name, value) in members.into_members() {
        let text = match (&*name, value) {
            ("value", value) => {
                operation.value = Some(value);
                continue;
            }
            ("op" | "path" | "from", Value::String(text)) => text,
            ("op" | "path" | "from", Value::Null) => continue,
            ("op" | "path" | "from", other) if strict_reporting => {
                let place = format!("jsonPatchOp.{name}");
                return Err(wrong_type(&go::json::unfit_member(other.go_kind(), &place, "string"), true));
            }
            ("op" | "path" | "from", _) => continue,
            _ => {
                if strict_reporting && reports.len() < super::REPORTED_MAX {
                    reports.push(format!("json patch unknown field \"[{at}].{name}\""));
                }
                continue;
            }
        };
        match &*name {
            "op" => {
                operation.verb = Verb::parse(&text);
                operation.kind = text.into();
            }
            "path" => operation.path = Some(text),
            _ => operation.from = Some(text),
        }
    }
    if matches!(operation.verb, Verb::Test) {
        operation.value = operation.value.as_ref().map(scalar_texts::write_scalars_as_text);
    }
    Ok(operation)
}

/// Replaces the value of each `test` by the scalar texts in `text`, from which the operations were parsed.
pub(super) fn keep_words(operations: &mut [PatchOperation], text: &[u8]) {
    let is_test = |operation: &PatchOperation| matches!(operation.verb, Verb::Test);
    if !operations.iter().any(is_test) {
        return;
    }
    for (operation, value) in operations.iter_mut().zip(scalar_texts::values(text)) {
        if is_test(operation) {
            operation.value = value.map(scalar_texts::read);
        }
    }
}

impl Verb {
    fn parse(text: &str) -> Self {
        match text {
            "add" => Self::Add,
            "remove" => Self::Remove,
            "replace" => Self::Replace,
            "move" => Self::Move,
            "copy" => Self::Copy,
            "test" => Self::Test,
            _ => Self::Unknown,
        }
    }
}

/// Returns the 400 for a part of the patch that has the wrong type.
fn wrong_type(why: &str, strict_reporting: bool) -> Status {
    let prefix = if strict_reporting { "error decoding patch: " } else { "" };
    Status::bad_request(format!("{prefix}{why}"))
}

/// Applies all operations of a PATCH to a document.
pub(super) fn apply(operations: Vec<PatchOperation>, original: Value) -> Result<Value, Status> {
    let pointers = pointers(&operations);
    let mut result = carry_out(operations, original).map_err(|refused| match refused {
        Refused::Operation(_) | Refused::Test(_) => Status::unprocessable(),
        Refused::EffortExceeded => Status::new(StatusReason::RequestEntityTooLarge, EFFORT_EXCEEDED),
    })?;
    sort_entered(&pointers, &mut result);
    Ok(result)
}

/// Message for a patch that exceeds `EFFORT_MAX`.
pub(super) const EFFORT_EXCEEDED: &str =
    "Request entity too large: the JSON patch passes over and moves too many members and elements";

/// Applies all operations to a document.
///
/// # Errors
/// Fails at the first operation that cannot be applied.
pub(super) fn carry_out(operations: Vec<PatchOperation>, original: Value) -> Result<Value, Refused> {
    let grows = operations.iter().any(|operation| matches!(operation.verb, Verb::Move | Verb::Copy));
    let nesting = if grows { nesting(&original) } else { 0 };
    let mut run = Run { document: original, nesting, effort: 0, copied: Vec::new() };
    operations.into_iter().try_for_each(|operation| run.carry_out(operation))?;
    Ok(run.document)
}

/// Returns the error for a failure. The text of the error begins with `missing` if the container is missing,
/// and with `at` otherwise.
fn refusal(failure: Failure, missing: impl FnOnce() -> String, at: impl FnOnce() -> String) -> Refused {
    match failure {
        Failure::Parent => Refused::Operation(format!("{}: {MISSING}", missing())),
        Failure::Step(why) => Refused::Operation(format!("{}: {why}", at())),
        Failure::EffortExceeded => Refused::EffortExceeded,
    }
}

/// Error text of the reference server for any value that does not exist.
const MISSING: &str = "missing value";

/// State between two operations of a patch.
struct Run {
    document: Value,
    /// Upper bound of the document's nesting; maintained only if the patch contains a `move` or `copy`.
    nesting: usize,
    /// Number of members that were visited and elements that were moved.
    effort: usize,
    /// The copied values as JSON. Only the length is used.
    copied: Vec<u8>,
}

impl Run {
    fn carry_out(&mut self, operation: PatchOperation) -> Result<(), Refused> {
        cancellation::step();
        let PatchOperation { verb, kind, path, from, value } = operation;
        let verb_text = &*kind;
        let undecoded = |what: &str| {
            Refused::Operation(format!("{verb_text} operation failed to decode {what}: {MISSING}"))
        };
        if matches!(verb, Verb::Unknown) {
            return Err(Refused::Operation(format!("Unexpected kind: {kind}")));
        }
        // `move` and `copy` check `from` before the other members.
        if matches!(verb, Verb::Move | Verb::Copy) && from.is_none() {
            return Err(undecoded("from"));
        }
        let from = from.as_deref().unwrap_or_default();
        let path = path.ok_or_else(|| undecoded("path"))?;
        let nowhere = |place: &str, path: &str| {
            format!("{verb_text} operation does not apply: doc is missing {place}: {path}")
        };
        let no_path = || nowhere("path", &format!("\"{path}\""));
        let in_path = |verb: &str| format!("error in {verb} for path: '{path}'");
        match verb {
            Verb::Add => {
                let value = value.unwrap_or_default();
                let nesting = nesting(&value);
                let added = self.add_or_replace(&path, value, nesting, false);
                added.map_err(|why| refusal(why, no_path, || in_path("add")))
            }
            Verb::Replace => {
                let value = value.unwrap_or_default();
                let nesting = nesting(&value);
                let added = self.add_or_replace(&path, value, nesting, true);
                added.map_err(|why| match why {
                    Failure::Step(_) => Refused::Operation(format!("{}: {MISSING}", nowhere("key", &path))),
                    why => refusal(why, || nowhere("path", &path), || in_path("replace")),
                })
            }
            Verb::Remove => {
                let taken = self.take(&path).map(drop);
                taken.map_err(|why| refusal(why, no_path, || in_path("remove")))
            }
            Verb::Move => {
                let of_key = || format!("error in move for path: '{}'", last_step(from));
                let value =
                    self.take(from).map_err(|why| refusal(why, || nowhere("from path", from), of_key))?;
                let nesting = self.nesting_below(from, &path, &value);
                let added = nesting.and_then(|nesting| self.add_or_replace(&path, value, nesting, false));
                added.map_err(|why| refusal(why, || nowhere("destination path", &path), || in_path("move")))
            }
            Verb::Copy => {
                let at = || format!("error in copy for from: '{from}'");
                let found = self.copied(from);
                let found = found.map_err(|why| refusal(why, || nowhere("from path", from), at))?;
                let nesting = self.nesting_below(from, &path, &found);
                let added = nesting.and_then(|nesting| self.add_or_replace(&path, found, nesting, false));
                added.map_err(|why| {
                    refusal(
                        why,
                        || nowhere("destination path", &path),
                        || "error while adding value during copy".to_owned(),
                    )
                })
            }
            Verb::Test => {
                let want = value.unwrap_or_default();
                let same = if path.is_empty() {
                    scalar_texts::equal(&self.document, &want)
                } else {
                    self.finds(&path, &want).map_err(|why| {
                        let missing = || format!("test operation does not apply: is missing path: {path}");
                        refusal(why, missing, || in_path("test"))
                    })?
                };
                if same { Ok(()) } else { Err(Refused::Test(path)) }
            }
            Verb::Unknown => Ok(()),
        }
    }

    /// Returns a copy of the value at `from`. A missing member of an object is copied as null, as in the
    /// reference server.
    fn copied(&mut self, from: &str) -> Outcome<Value> {
        let Target { parent, key, .. } = locate(&mut self.document, from, &mut self.effort)?;
        let value = find(parent, &key, &mut self.effort)?.cloned().unwrap_or_default();
        write(&value, &mut self.copied);
        if self.copied.len() > COPIED_BYTES_MAX {
            return Err(Failure::Step("the patch copies too much".to_owned()));
        }
        Ok(value)
    }

    /// Returns whether the value at `path` has the scalar texts in `want`.
    fn finds(&mut self, path: &str, want: &Value) -> Outcome<bool> {
        let Target { parent, key, .. } = locate(&mut self.document, path, &mut self.effort)?;
        Ok(scalar_texts::equal(find(parent, &key, &mut self.effort)?.unwrap_or(&Value::Null), want))
    }

    /// Adds `value` at `path`, or replaces the value at `path`. `nesting` is the nesting of `value`.
    fn add_or_replace(&mut self, path: &str, value: Value, nesting: usize, replace: bool) -> Outcome<()> {
        if path.is_empty() {
            // A document must be a container, and only `replace` may set the whole document.
            if !replace || !matches!(value, Value::Object(_) | Value::Array(_)) {
                return Err(Failure::Parent);
            }
            self.document = value;
            self.nesting = self.nesting.max(nesting);
            return Ok(());
        }
        let Target { parent, key, containers } = locate(&mut self.document, path, &mut self.effort)?;
        if containers + nesting > NESTING_MAX {
            return Err(too_deep());
        }
        match parent {
            Value::Object(members) => {
                charge(&mut self.effort, members.len())?;
                members.insert(key.into_owned(), value);
            }
            Value::Array(items) if replace => {
                let at = index(&key, items.len()).ok_or_else(|| no_element(&key))?;
                *items.get_mut(at).ok_or_else(|| no_element(&key))? = value;
            }
            Value::Array(items) => {
                let at = if key == "-" { Some(items.len()) } else { index(&key, items.len() + 1) };
                let at = at.ok_or_else(|| match no_element(&key) {
                    Failure::Step(why) if why.starts_with("strconv") => {
                        Failure::Step(format!("value was not a proper array index: '{key}': {why}"))
                    }
                    other => other,
                })?;
                charge(&mut self.effort, items.len() - at)?;
                items.insert(at, value);
            }
            _ => return Err(Failure::Parent),
        }
        self.nesting = self.nesting.max(containers + nesting);
        Ok(())
    }

    /// Removes and returns the value at `path`, which must exist.
    fn take(&mut self, path: &str) -> Outcome<Value> {
        let Target { parent, key, .. } = locate(&mut self.document, path, &mut self.effort)?;
        match parent {
            Value::Object(members) => {
                charge(&mut self.effort, members.len())?;
                members.remove(&key).ok_or_else(|| {
                    Failure::Step(format!("Unable to remove nonexistent key: {key}: {MISSING}"))
                })
            }
            Value::Array(items) => {
                let at = index(&key, items.len()).ok_or_else(|| no_element(&key))?;
                charge(&mut self.effort, items.len() - at)?;
                Ok(items.remove(at))
            }
            _ => Err(Failure::Parent),
        }
    }

    /// Returns an upper bound of the nesting of `value`, which was at `from`. The bound is exact only if
    /// `value` may exceed the limit at `path`, because an exact bound is expensive.
    fn nesting_below(&mut self, from: &str, path: &str, value: &Value) -> Outcome<usize> {
        let steps = |path: &str| path.bytes().filter(|byte| *byte == b'/').count();
        let bound = self.nesting.saturating_sub(steps(from));
        if steps(path) + bound <= NESTING_MAX {
            return Ok(bound);
        }
        charge(&mut self.effort, size(value))?;
        Ok(nesting(value))
    }
}

/// Target of a path: the container, and the key of one of its members or elements.
struct Target<'v, 'p> {
    parent: &'v mut Value,
    key: Cow<'p, str>,
    /// Number of containers on the path from the document to the parent, including both.
    containers: usize,
}

/// Follows `path` up to its last step. Every value on the path must be a container.
fn locate<'v, 'p>(document: &'v mut Value, path: &'p str, effort: &mut usize) -> Outcome<Target<'v, 'p>> {
    let (_, mut rest) = path.split_once('/').ok_or(Failure::Parent)?;
    let mut parent = document;
    let mut containers = 1;
    while let Some((step, tail)) = rest.split_once('/') {
        parent = match parent {
            Value::Object(members) => {
                charge(effort, members.len())?;
                members.get_mut(&unescape(step)).ok_or(Failure::Parent)?
            }
            Value::Array(items) => {
                let at = index(step, items.len()).ok_or(Failure::Parent)?;
                items.get_mut(at).ok_or(Failure::Parent)?
            }
            _ => return Err(Failure::Parent),
        };
        containers += 1;
        rest = tail;
    }
    Ok(Target { parent, key: unescape(rest), containers })
}

/// Returns the value at `key` of a container; `None` if `key` is an absent member. An absent element is a
/// failure.
fn find<'v>(parent: &'v Value, key: &str, effort: &mut usize) -> Outcome<Option<&'v Value>> {
    match parent {
        Value::Object(members) => {
            charge(effort, members.len())?;
            Ok(members.get(key))
        }
        Value::Array(items) => {
            let at = index(key, items.len()).ok_or_else(|| no_element(key))?;
            items.get(at).map(Some).ok_or_else(|| no_element(key))
        }
        _ => Err(Failure::Parent),
    }
}

/// Returns the failure for a list without an element at `key`.
fn no_element(key: &str) -> Failure {
    Failure::Step(match key.parse::<i64>() {
        Ok(index) => format!("Unable to access invalid index: {index}: invalid index referenced"),
        Err(_) => format!("strconv.Atoi: parsing {}: invalid syntax", go_quote(key)),
    })
}

/// Returns the last step of a path.
fn last_step(path: &str) -> Cow<'_, str> {
    unescape(path.rsplit_once('/').map_or(path, |(_, step)| step))
}

fn charge(effort: &mut usize, steps: usize) -> Outcome<()> {
    *effort += steps;
    if *effort > EFFORT_MAX { Err(Failure::EffortExceeded) } else { Ok(()) }
}

/// Decodes one step of a JSON pointer: `~1` is `/`, and `~0` is `~`.
fn unescape(step: &str) -> Cow<'_, str> {
    if step.contains('~') { step.replace("~1", "/").replace("~0", "~").into() } else { step.into() }
}

/// Returns the position in a list of `count` elements that the decimal integer `text` specifies. A negative
/// integer counts from the end.
fn index(text: &str, count: usize) -> Option<usize> {
    let n: i64 = text.parse().ok()?;
    let distance = usize::try_from(n.unsigned_abs()).ok()?;
    if n < 0 { count.checked_sub(distance) } else { (distance < count).then_some(distance) }
}

/// Returns the number of levels of nested containers in `value`, including `value`; 0 for a scalar.
fn nesting(value: &Value) -> usize {
    cancellation::step();
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(members) => 1 + members.iter().map(|(_, value)| nesting(value)).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the number of values in `value`, including `value`.
fn size(value: &Value) -> usize {
    cancellation::step();
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => 1 + members.iter().map(|(_, value)| size(value)).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
#[path = "json_test.rs"]
mod tests;
