//! Strategic merge patch (docs/api/patches.md#strategic-merge-patch): a merge patch that merges lists by key
//! if the schema declares a key.
//!
//! ```text
//! merge an object:  $patch ─► $retainKeys ─► $setElementOrder/… (merge those lists, order them) ─► the other members
//! merge a list:     $patch elements ─► merge by key, or join as a set ─► order: see `lists`
//! ```
//!
//! `Field::patch` declares whether a list merges. Below fields that the schema does not declare, objects
//! merge and lists are replaced. Directives inside values that are new to the object are not carried out. As
//! in the reference server, objects with `$patch` are dropped, and the decoder reports other directives. The
//! cost of merging is proportional to the sum of both sizes, because equal merge keys and equal set members
//! are found by hash. A merge key must be a scalar; any other value counts as missing. The result is never
//! deeper than the deeper of the two documents.

use hashbrown::HashSet;

use super::lists::{Class, Key, Scalar, bad_type, element_class};
use super::members::OpenMembers;
use super::merge_failure::{MergeFailure, Outcome};
use super::{Status, Value};
use types::schema::table::{Field, Kind, Message, PatchStrategy, Shape};
use values::cancellation;
use values::json::{Object, go_print};

pub(super) const DIRECTIVE: &str = "$patch";
pub(super) const RETAIN_KEYS: &str = "$retainKeys";
pub(super) const DELETE_PREFIX: &str = "$deleteFromPrimitiveList";
pub(super) const ORDER_PREFIX: &str = "$setElementOrder";

/// Accepts a document that can be a strategic merge patch: an object, or `null`, which has no effect.
pub(super) fn check(patch: Value) -> Result<Value, Status> {
    match patch {
        Value::Object(_) | Value::Null => Ok(patch),
        other => Err(Status::bad_request(go::json::unfit(other.go_kind(), go::json::MAP))),
    }
}

/// Applies the patch to an object.
pub(super) fn apply(message: Option<&Message>, original: Value, patch: Value) -> Result<Value, Status> {
    let Some(message) = message else {
        return Err(Status::bad_request("strategic merge patch format is not supported"));
    };
    match (original, patch) {
        (original, Value::Null) => Ok(original),
        (Value::Object(original), Value::Object(patch)) => {
            Ok(merge_object(original, patch, MergeType::Struct(message))?.into())
        }
        _ => Err(Status::bad_request("invalid JSON document")),
    }
}

/// The schema of a value.
#[derive(Clone, Copy)]
pub(super) enum MergeType<'s> {
    /// A struct with the declared fields.
    Struct(&'s Message),
    /// A map from strings to values of this kind.
    MapOf(&'s Kind),
    /// A value that the schema does not describe.
    Unknown,
}

impl<'s> MergeType<'s> {
    fn for_kind(kind: &'s Kind) -> Self {
        match kind {
            Kind::Message(message)
            | Kind::SchemaOrArray(message)
            | Kind::SchemaOrBool(message)
            | Kind::SchemaOrStrings(message) => MergeType::Struct(message),
            _ => MergeType::Unknown,
        }
    }

    /// Returns the type of the member `name`, and its merge strategy. The type of a list is the type of its
    /// elements.
    pub(super) fn member(self, name: &str) -> (Self, PatchStrategy) {
        match self {
            MergeType::Struct(message) => match message.field(name) {
                Some(field) => (MergeType::of_field(field), field.patch),
                None => (MergeType::Unknown, PatchStrategy::default()),
            },
            MergeType::MapOf(kind) => (MergeType::for_kind(kind), PatchStrategy::default()),
            MergeType::Unknown => (MergeType::Unknown, PatchStrategy::default()),
        }
    }

    fn of_field(field: &'s Field) -> Self {
        match field.shape() {
            Shape::Single | Shape::List => MergeType::for_kind(field.element()),
            Shape::Map => MergeType::MapOf(field.element()),
            Shape::WrappedList | Shape::MapOfLists => MergeType::Unknown,
        }
    }

    /// Like [`MergeType::member`], for a list for which the patch requests an order. The schema must declare
    /// the list.
    fn ordered_member(self, name: &str) -> Outcome<(Self, PatchStrategy)> {
        if let MergeType::Struct(message) = self {
            match message.field(name) {
                None => {
                    return Err(MergeFailure::Other(format!(
                        "unable to find api field in struct {} for the json field \"{name}\"",
                        message.name
                    )));
                }
                Some(field) if field.shape() != Shape::List => {
                    return Err(MergeFailure::Other(
                        "expected slice or array type, but got: struct".to_owned(),
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(self.member(name))
    }
}

fn merge_object(original: Object, mut patch: Object, kind: MergeType<'_>) -> Outcome<Object> {
    cancellation::step();
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(&patch)),
        };
    }
    let (original_len, patch_len) = (original.len(), patch.len());
    let mut members = OpenMembers::open(original, patch_len);
    let mut patch = OpenMembers::open(patch, original_len.max(patch_len));
    retain_keys(&mut members, &mut patch)?;
    order_lists(&mut members, &mut patch, kind)?;
    for (name, change) in patch.into_members() {
        if name.starts_with(DELETE_PREFIX) {
            delete_from_set(&mut members, &name, change, kind)?;
            continue;
        }
        let Some(slot) = members.get_mut(&name) else {
            if let Some(value) = new_value(change) {
                members.set(name, value);
            }
            continue;
        };
        match (slot, change) {
            (_, Value::Null) => {
                members.take(&name);
            }
            (slot @ Value::Object(_), Value::Object(change)) => {
                let (kind, strategy) = kind.member(&name);
                *slot = match std::mem::take(slot) {
                    Value::Object(current) if !strategy.replace => {
                        merge_object(current, change, kind)?.into()
                    }
                    _ => change.into(),
                };
            }
            (slot @ Value::Array(_), Value::Array(change)) => {
                let (kind, strategy) = kind.member(&name);
                *slot = Value::Array(match std::mem::take(slot) {
                    Value::Array(current) if strategy.merge => merge_list(current, change, kind, strategy)?,
                    _ => change,
                });
            }
            (slot, change) => match new_value(change) {
                Some(value) => *slot = value,
                None => {
                    members.take(&name);
                }
            },
        }
    }
    Ok(members.close())
}

/// Returns a value that is new to the object, without `null` members and without parts that contain `$patch`.
/// Returns `None` if the value itself contains `$patch`.
fn new_value(mut value: Value) -> Option<Value> {
    cancellation::step();
    match &mut value {
        Value::Null => return None,
        Value::Object(_) | Value::Array(_) => discard_nulls(&mut value),
        _ => {}
    }
    without_directives(value)
}

pub(super) fn discard_nulls(value: &mut Value) {
    cancellation::step();
    match value {
        Value::Object(members) => members.retain(|_, member| {
            discard_nulls(member);
            !member.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn without_directives(value: Value) -> Option<Value> {
    cancellation::step();
    match value {
        Value::Object(members) if members.contains(DIRECTIVE) => None,
        Value::Object(members) => {
            let kept = members.into_members().into_iter();
            Some(
                kept.filter_map(|(name, value)| Some((name, without_directives(value)?)))
                    .collect::<Object>()
                    .into(),
            )
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

/// Carries out `$retainKeys`: removes the members that the directive does not list. The directive must list
/// all members that the patch sets.
fn retain_keys(members: &mut OpenMembers, patch: &mut OpenMembers) -> Outcome<()> {
    const MALFORMED: MergeFailure = MergeFailure::Malformed("invalid patch format of retainKeys");
    let Some(listed) = patch.take(RETAIN_KEYS) else { return Ok(()) };
    let listed: HashSet<&str> =
        listed.as_array().ok_or(MALFORMED)?.iter().filter_map(Value::as_str).collect();
    let sets = |(name, value): &(&str, &Value)| {
        !value.is_null() && !name.starts_with(DELETE_PREFIX) && !name.starts_with(ORDER_PREFIX)
    };
    if patch.iter().filter(sets).any(|(name, _)| !listed.contains(name)) {
        return Err(MALFORMED);
    }
    members.retain(|name| listed.contains(name));
    Ok(())
}

/// Carries out `$deleteFromPrimitiveList/<name>`: removes the scalars in `gone` from the list. The value
/// `null` removes the list. A value of another type has no effect.
fn delete_from_set(
    members: &mut OpenMembers,
    directive: &str,
    gone: Value,
    kind: MergeType<'_>,
) -> Outcome<()> {
    const MALFORMED: MergeFailure = MergeFailure::Malformed("invalid patch format of primitive list");
    let name = target(directive, DELETE_PREFIX).ok_or(MALFORMED)?;
    if gone.is_null() {
        members.take(name);
        return Ok(());
    }
    let (Some(Value::Array(items)), Value::Array(gone)) = (members.get_mut(name), gone) else {
        return Ok(());
    };
    if !kind.member(name).1.merge {
        *items = gone;
        return Ok(());
    }
    if element_class(items, &gone)? == Some(Class::Object) {
        return Err(MALFORMED);
    }
    let gone: HashSet<Scalar> = gone.iter().filter_map(Scalar::from_value).collect();
    items.retain(|item| Scalar::from_value(item).is_none_or(|scalar| !gone.contains(&scalar)));
    Ok(())
}

/// Returns the part of a directive after the slash: `ports` for `$setElementOrder/ports`.
pub(super) fn target<'d>(directive: &'d str, prefix: &str) -> Option<&'d str> {
    directive.strip_prefix(prefix)?.strip_prefix('/')
}

/// Carries out every `$setElementOrder/<name>`: merges and orders the list, and removes directive and list
/// from the patch.
fn order_lists(members: &mut OpenMembers, patch: &mut OpenMembers, kind: MergeType<'_>) -> Outcome<()> {
    let directives = patch.iter().map(|(name, _)| name).filter(|name| name.starts_with(ORDER_PREFIX));
    let directives: Vec<String> = directives.map(str::to_owned).collect();
    for directive in &directives {
        let order = list(patch.take(directive))?.unwrap_or_default();
        let name = target(directive, ORDER_PREFIX)
            .ok_or(MergeFailure::Malformed("invalid patch format of setElementOrder list"))?;
        let current = list(members.get_mut(name).map(std::mem::take))?;
        let change = list(patch.take(name))?;
        let (kind, strategy) = kind.ordered_member(name)?;
        check_order(change.as_deref().unwrap_or_default(), &order, strategy.merge_key)?;
        let class =
            element_class(current.as_deref().unwrap_or_default(), change.as_deref().unwrap_or_default())?;
        let key = Key::for_class(class, strategy.merge_key)?;
        let before = key.positions(current.as_deref().unwrap_or_default())?;
        let merged = match (current, change) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
            (Some(current), Some(change)) if strategy.merge => merge_list(current, change, kind, strategy)?,
            (Some(_), Some(change)) => change,
        };
        if class.is_none() {
            return Err(MergeFailure::Other("no elements in any of the given slices".to_owned()));
        }
        let ordered = key.order(merged, &key.positions(&order)?, &before)?;
        members.set(name.to_owned().into(), Value::Array(ordered));
    }
    Ok(())
}

/// Returns the elements of a list; `None` if the list is absent.
fn list(value: Option<Value>) -> Outcome<Option<Vec<Value>>> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(bad_type("[]interface {}", &other)),
    }
}

/// Checks that the elements of a patch are a subsequence of the requested order.
fn check_order(change: &[Value], order: &[Value], merge_key: Option<&'static str>) -> Outcome<()> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let key = merge_key.map_or(Key::Element, Key::Member);
    let mut remaining = order.iter();
    for item in change {
        let directive = item.get(DIRECTIVE);
        if directive.and_then(Value::as_str) == Some("delete") && merge_key.is_some() {
            continue;
        }
        if remaining.len() == 0 {
            return Err(out_of_order(change, order));
        }
        if directive.is_some() {
            continue;
        }
        let scalar = key.scalar(item)?;
        loop {
            match remaining.next() {
                None => return Err(out_of_order(change, order)),
                Some(next) if key.scalar(next)? == scalar => break,
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// Merges two lists of a field with a merge strategy.
fn merge_list(
    mut current: Vec<Value>,
    change: Vec<Value>,
    kind: MergeType<'_>,
    strategy: PatchStrategy,
) -> Outcome<Vec<Value>> {
    let class = element_class(&current, &change)?;
    let key = Key::for_class(class, strategy.merge_key)?;
    match class {
        None => Ok(current),
        Some(Class::Object) => {
            let (current, change) = carry_out_directives(current, change, key)?;
            let (before, requested) = (key.positions(&current)?, key.positions(&change)?);
            let merged = merge_elements(current, change, kind, key)?;
            key.order(merged, &requested, &before)
        }
        Some(_) => {
            let (before, requested) = (key.positions(&current)?, key.positions(&change)?);
            current.extend(change);
            let mut seen = HashSet::new();
            current.retain(|item| Scalar::from_value(item).is_none_or(|scalar| seen.insert(scalar)));
            key.order(current, &requested, &before)
        }
    }
}

/// Carries out the elements of a patch that contain `$patch`. `delete` removes the element with the same key.
/// `replace` makes the other elements of the patch the whole list. Returns the current elements and the
/// remaining elements of the patch.
fn carry_out_directives(
    mut current: Vec<Value>,
    change: Vec<Value>,
    key: Key,
) -> Outcome<(Vec<Value>, Vec<Value>)> {
    if !change.iter().any(|item| item.get(DIRECTIVE).is_some()) {
        return Ok((current, change));
    }
    let mut rest = Vec::with_capacity(change.len());
    let mut gone = HashSet::new();
    let mut replace = false;
    for item in change {
        match item.get(DIRECTIVE).map(Value::as_str) {
            None => rest.push(item),
            Some(Some("delete")) => {
                gone.insert(key.scalar(&item)?);
            }
            Some(Some("replace")) => replace = true,
            Some(Some("merge")) => {
                return Err(MergeFailure::Other(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            Some(_) => return Err(item.as_object().map_or(MergeFailure::Unprocessable, unknown_directive)),
        }
    }
    if replace {
        return Ok((rest, Vec::new()));
    }
    if !gone.is_empty() {
        current.retain(|item| key.scalar(item).map_or(true, |scalar| !gone.contains(&scalar)));
    }
    Ok((current, rest))
}

/// Merges each element into the current element with the same key, or appends it.
fn merge_elements(
    mut merged: Vec<Value>,
    change: Vec<Value>,
    kind: MergeType<'_>,
    key: Key,
) -> Outcome<Vec<Value>> {
    let mut at_key = key.positions(&merged)?;
    for item in change {
        let scalar = key.scalar(&item)?;
        match at_key.get(&scalar) {
            Some(at) => {
                let slot = &mut merged[*at];
                if let (Value::Object(current), Value::Object(change)) = (std::mem::take(slot), item) {
                    *slot = merge_object(current, change, kind)?.into();
                }
            }
            None => {
                at_key.insert(scalar, merged.len());
                merged.push(item);
            }
        }
    }
    Ok(merged)
}

fn out_of_order(change: &[Value], order: &[Value]) -> MergeFailure {
    let (change, order) = (go_print(&Value::Array(change.to_vec())), go_print(&Value::Array(order.to_vec())));
    MergeFailure::Other(format!(
        "The order in patch list:\n{change}\n doesn't match {ORDER_PREFIX} list:\n{order}\n"
    ))
}

fn unknown_directive(patch: &Object) -> MergeFailure {
    let directive = match patch.get(DIRECTIVE) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Int(n)) => format!("%!s(int64={n})"),
        Some(Value::Float(n)) => format!("%!s(float64={})", go_print(&Value::Float(*n))),
        Some(Value::Bool(value)) => format!("%!s(bool={value})"),
        Some(Value::Null) | None => "%!s(<nil>)".to_owned(),
        Some(other) => go_print(other),
    };
    let shown = go_print(&Value::Object(patch.clone()));
    MergeFailure::Other(format!("unknown patch type: {directive} in map: {shown}"))
}

#[cfg(test)]
#[path = "strategic_test.rs"]
mod tests;
