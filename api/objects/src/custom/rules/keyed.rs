//! Equality and `+` of sets and keyed lists. Both operations differ from the operations of other lists.
//!
//! | | equal | `a + b` |
//! |---|---|---|
//! | set | same number of elements, and the same elements in any order | the elements of `a`, then the new elements of `b` |
//! | keyed list | same number of elements, and equal elements under the same keys | `a`, in which elements of `b` replace elements with the same keys, then the other elements of `b` |
//!
//! The type of the left list selects the semantics. Both operations take linear time. Linear time is necessary because
//! the cost of an expression does not depend on the length of the lists.

use std::borrow::Cow;

use cel::error::EvalError;
use cel::evaluation::Steps;
use cel::identifier::escape;
use cel::value::equality::equal as equal_values;
use cel::value::{List, Value};
use hashbrown::{HashMap, HashSet};

use types::schema::table::ListType;

/// Identity of an element: a scalar, or the scalars under its keys.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Identity {
    Absent,
    Bool(bool),
    Int(i64),
    Double(u64),
    Text(Box<str>),
    Time(i64, u32),
    Span(i64),
    Keys(Box<[Identity]>),
    /// The element is not comparable, so it differs from all other elements.
    Unique(ElementPosition),
}

/// An element of one of the two lists, by its index.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum ElementPosition {
    Left(usize),
    Right(usize),
}

/// Returns `a == b`; `None` if the lists have no special semantics.
///
/// # Errors
/// Fails if the comparison was interrupted.
pub(super) fn equal<'v>(
    merge: &ListType,
    a: &List<'v>,
    b: &List<'v>,
    steps: &Steps<'_>,
) -> Option<Result<bool, EvalError>> {
    let names = names(merge)?;
    if a.len() != b.len() {
        return Some(Ok(false));
    }
    Some(equal_elements(&names, a, b, steps))
}

fn equal_elements<'v>(
    names: &[String],
    a: &List<'v>,
    b: &List<'v>,
    steps: &Steps<'_>,
) -> Result<bool, EvalError> {
    let mut own: HashMap<Identity, usize> = HashMap::with_capacity(a.len());
    for (at, item) in a.iter().enumerate() {
        steps.one()?;
        own.insert(identity(names, &item, ElementPosition::Left(at)), at);
    }
    for (at, item) in b.iter().enumerate() {
        steps.one()?;
        let Some(found) = own.get(&identity(names, &item, ElementPosition::Right(at))) else {
            return Ok(false);
        };
        // Scalars with the same identity are equal.
        if names.is_empty() {
            continue;
        }
        let Some(found) = a.get(*found) else { return Ok(false) };
        if !equal_values(&found, &item, steps)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns `a + b`; `None` if the lists have no special semantics. `read` converts an element of `b` to the
/// form that it has in the sum.
pub(super) fn sum<'v>(
    merge: &ListType,
    a: &List<'v>,
    b: &List<'v>,
    read: &dyn Fn(Value<'v>) -> Value<'v>,
) -> Option<List<'v>> {
    let names = names(merge)?;
    let mut sum: Vec<Value<'v>> = a.iter().collect();
    if names.is_empty() {
        let identities =
            sum.iter().enumerate().map(|(at, item)| identity(&names, item, ElementPosition::Left(at)));
        let mut known: HashSet<Identity> = identities.collect();
        sum.extend(
            b.iter()
                .enumerate()
                .filter(|(at, item)| known.insert(identity(&names, item, ElementPosition::Right(*at))))
                .map(|(_, item)| read(item)),
        );
        return Some(List::Shared(sum.into()));
    }
    let own: HashMap<Identity, usize> = sum
        .iter()
        .enumerate()
        .map(|(at, item)| (identity(&names, item, ElementPosition::Left(at)), at))
        .collect();
    for (at, item) in b.iter().enumerate() {
        match own.get(&identity(&names, &item, ElementPosition::Right(at))) {
            Some(at) => sum[*at] = read(item),
            None => sum.push(read(item)),
        }
    }
    Some(List::Shared(sum.into()))
}

/// Returns the keys of the elements as identifiers; empty for sets. Returns `None` for atomic lists.
fn names(merge: &ListType) -> Option<Vec<String>> {
    match merge {
        ListType::Atomic => None,
        ListType::Set => Some(Vec::new()),
        ListType::Map(keys) => {
            Some(keys.iter().map(|key| escape(key).unwrap_or_else(|| key.to_string())).collect())
        }
    }
}

fn identity(names: &[String], item: &Value<'_>, position: ElementPosition) -> Identity {
    let scalar = |value: &Value<'_>| match value {
        Value::Bool(value) => Identity::Bool(*value),
        Value::Int(value) => Identity::Int(*value),
        Value::Double(value) => Identity::Double(value.to_bits()),
        Value::String(text) => Identity::Text((**text).into()),
        // Elements of a set are distinguished by their texts, but a parsed time no longer has its text.
        Value::Timestamp(_) | Value::Duration(_) if names.is_empty() => Identity::Unique(position),
        Value::Timestamp(at) => Identity::Time(at.seconds(), at.nanos()),
        Value::Duration(span) => Identity::Span(span.nanoseconds),
        _ => Identity::Unique(position),
    };
    if names.is_empty() {
        return scalar(item);
    }
    let member = |name: &String| -> Option<Cow<'_, Value<'_>>> {
        match item {
            Value::Object(object) => object.get(name).ok().flatten().map(Cow::Owned),
            Value::Map(map) => map.get(&Value::string(name.as_str())).map(Cow::Owned),
            _ => None,
        }
    };
    if !matches!(item, Value::Object(_) | Value::Map(_)) {
        return Identity::Unique(position);
    }
    let keys = names.iter().map(|name| member(name).map_or(Identity::Absent, |value| scalar(&value)));
    Identity::Keys(keys.collect())
}
