//! Merges lists: identifies the elements and determines the order of the result
//! (docs/api/patches.md#strategic-merge-patch).
//!
//! This module handles only values; the callers handle schemas and directives. All costs are linear in the
//! lengths of the lists, because positions are looked up by hash.

use std::hash::{Hash, Hasher};

use hashbrown::HashMap;

use super::Value;
use super::merge_failure::{MergeFailure, Outcome};
use values::cancellation;
use values::json::go_print;

/// Identification of the elements of a list.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// The key is the value of the element, if the elements are scalars.
    Element,
    /// The key is the value of one member, if the elements are objects.
    Member(&'static str),
}

impl Key {
    /// Returns the identification for elements of `class`. Objects need a merge key.
    pub fn for_class(class: Option<Class>, merge_key: Option<&'static str>) -> Outcome<Self> {
        match (merge_key, class) {
            (Some(name), _) => Ok(Key::Member(name)),
            (None, Some(Class::Object)) => {
                Err(MergeFailure::Other("cannot merge lists without merge key for struct".to_owned()))
            }
            (None, _) => Ok(Key::Element),
        }
    }

    /// Returns the scalar that identifies `item`.
    pub fn scalar(self, item: &Value) -> Outcome<Scalar> {
        match self {
            Key::Element => Scalar::from_value(item).ok_or(MergeFailure::Unprocessable),
            Key::Member(name) => {
                let members = item.as_object().ok_or_else(|| bad_type(go::json::MAP, item))?;
                members.get(name).and_then(Scalar::from_value).ok_or_else(|| {
                    let shown = go_print(item);
                    MergeFailure::Other(format!("map: {shown} does not contain declared merge key: {name}"))
                })
            }
        }
    }

    /// Returns the first position of each identity.
    pub fn positions(self, items: &[Value]) -> Outcome<HashMap<Scalar, usize>> {
        let mut positions = HashMap::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            positions.entry(self.scalar(item)?).or_insert(at);
        }
        Ok(positions)
    }

    /// Sorts a merged list. Elements that the patch contains follow the order of the patch. The other
    /// elements keep their order. An element that is not in the patch precedes an element of the patch only if the old
    /// list has both elements in this order. Therefore a new element precedes all elements that are not in the patch.
    pub fn order(
        self,
        merged: Vec<Value>,
        requested: &HashMap<Scalar, usize>,
        before: &HashMap<Scalar, usize>,
    ) -> Outcome<Vec<Value>> {
        let mut named = Vec::with_capacity(merged.len());
        let mut others = Vec::new();
        for item in merged {
            let scalar = self.scalar(&item)?;
            let had = before.get(&scalar).copied();
            match requested.get(&scalar) {
                Some(at) => named.push(Ranked { rank: Some(*at), had, item }),
                None => others.push(Ranked { rank: had, had, item }),
            }
        }
        sort_by_rank(&mut named);
        sort_by_rank(&mut others);
        let mut ordered = Vec::with_capacity(named.len() + others.len());
        let mut named = named.into_iter().peekable();
        for other in others {
            let comes_first = |named: &Ranked| matches!((other.had, named.had), (Some(a), Some(b)) if a < b);
            while let Some(next) = named.next_if(|next| !comes_first(next)) {
                ordered.push(next.item);
            }
            ordered.push(other.item);
        }
        ordered.extend(named.map(|next| next.item));
        Ok(ordered)
    }
}

/// An element to be sorted.
struct Ranked {
    /// Sort key of the element.
    rank: Option<usize>,
    /// Position in the list before the merge.
    had: Option<usize>,
    item: Value,
}

/// Sorts by rank; the sort is stable. Elements without a rank occur only if a patch adds elements to a list
/// and requests an empty order for the list. The reference server then treats an element without a rank as smaller than
/// every other element, including other elements without a rank, which is not a valid order. For few elements, the
/// reference server uses an insertion sort with a predictable result, and this function returns the same result.
fn sort_by_rank(items: &mut [Ranked]) {
    const FORESEEABLE_MAX: usize = 20;
    if items.iter().all(|item| item.rank.is_some()) || items.len() > FORESEEABLE_MAX {
        items.sort_by_key(|item| item.rank);
        return;
    }
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 {
            let smaller = match (items[at].rank, items[at - 1].rank) {
                (Some(this), Some(previous)) => this < previous,
                _ => true,
            };
            if !smaller {
                break;
            }
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// A scalar with Go's equality: two scalars are equal if they have the same type and the same value.
#[derive(Clone, Debug)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// Returns the scalar in `value`; `None` for other values.
    pub fn from_value(value: &Value) -> Option<Scalar> {
        cancellation::step();
        match value {
            Value::Null => Some(Scalar::Null),
            Value::Bool(value) => Some(Scalar::Bool(*value)),
            Value::Int(n) => Some(Scalar::Int(*n)),
            Value::Float(n) => Some(Scalar::Float(*n)),
            Value::Number(words) => words.parse().ok().map(Scalar::Float),
            Value::String(text) => Some(Scalar::Text(text.clone())),
            Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Scalar::Null, Scalar::Null) => true,
            (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            // JSON has no NaN. Bit equality that also treats both zeros as equal is therefore an equivalence
            // relation.
            (Scalar::Float(a), Scalar::Float(b)) => a == b || a.to_bits() == b.to_bits(),
            (Scalar::Text(a), Scalar::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Scalar::Null => state.write_u8(0),
            Scalar::Bool(value) => value.hash(state),
            Scalar::Int(n) => n.hash(state),
            Scalar::Float(n) => (if *n == 0.0 { 0 } else { n.to_bits() }).hash(state),
            Scalar::Text(text) => text.hash(state),
        }
    }
}

/// Type of all elements of a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    Bool,
    Int,
    Float,
    Text,
    Object,
}

/// Returns the common type of all elements; `None` for empty lists.
pub(super) fn element_class(a: &[Value], b: &[Value]) -> Outcome<Option<Class>> {
    let mut common = None;
    for item in a.iter().chain(b) {
        let class = match item {
            Value::Bool(_) => Class::Bool,
            Value::Int(_) => Class::Int,
            Value::Float(_) | Value::Number(_) => Class::Float,
            Value::String(_) => Class::Text,
            Value::Object(_) => Class::Object,
            // Lists of lists cannot be merged.
            Value::Array(_) if common.is_none() => return Err(MergeFailure::Unprocessable),
            Value::Array(_) | Value::Null => return Err(mixed(a, b)),
        };
        if common.is_some_and(|common| common != class) {
            return Err(mixed(a, b));
        }
        common = Some(class);
    }
    Ok(common)
}

fn mixed(a: &[Value], b: &[Value]) -> MergeFailure {
    let (a, b) = (go_print(&Value::Array(a.to_vec())), go_print(&Value::Array(b.to_vec())));
    MergeFailure::Other(format!("list element types are not identical: [{a} {b}]"))
}

/// Returns the 500 for a value of an unexpected type. The text is that of the reference server and contains
/// Go types.
pub(super) fn bad_type(expected: &str, value: &Value) -> MergeFailure {
    let received = if value.is_null() { "%!s(<nil>)" } else { value.go_type() };
    MergeFailure::Other(format!("expected a {expected}, but received a {received}"))
}
