//! Lists: elements of the evaluation, lists of the host, and concatenations.
//!
//! `+` costs 1 regardless of the sizes, so a short expression can double a list many times. Therefore
//! concatenations are ropes that refer to both operands; small results are copied, which keeps ropes shallow.

use std::sync::Arc;

use crate::error::{EvalError, EvalErrorKind};
use crate::evaluation::steps::Steps;
use crate::value::Value;
use crate::value::host::{HostRef, View};

/// Maximum number of elements for which a concatenation is copied. Copying so few elements is cheaper than
/// later lookups in a rope.
const COPY_LEN_MAX: usize = 64;
/// Maximum depth of a rope. A deeper rope is copied if it is short enough, and refused otherwise. The limit
/// bounds the recursion into ropes.
const ROPE_DEPTH_MAX: u32 = 128;
/// Maximum length of a rope that is copied because of its depth: about 3 MB.
const FLATTEN_LEN_MAX: usize = 1 << 16;

/// A list, owned or from the host.
#[derive(Clone, Debug)]
pub enum List<'v> {
    /// Elements created by the evaluation.
    Shared(Arc<[Value<'v>]>),
    /// A list of the host, read without copying.
    Host(HostRef<'v, dyn HostList>),
    /// The result of a concatenation with `+`.
    Concat(Arc<Concat<'v>>),
}

/// A list of the host.
pub trait HostList: Send + Sync {
    /// Returns the number of elements.
    fn len<'v>(&'v self, view: View<'v>) -> usize;

    /// Returns whether the list has no elements.
    fn is_empty<'v>(&'v self, view: View<'v>) -> bool {
        self.len(view) == 0
    }

    /// Returns the element at `index`, which is below [`len`](Self::len).
    fn get<'v>(&'v self, view: View<'v>, index: usize) -> Value<'v>;

    /// Compares two lists by the host's own equality (sets ignore order). `None` means that the lists are to
    /// be compared element by element.
    ///
    /// # Errors
    /// The comparison was interrupted.
    fn equals<'v>(
        &'v self,
        _view: View<'v>,
        _other: &List<'v>,
        _steps: &Steps<'_>,
    ) -> Option<Result<bool, EvalError>> {
        None
    }

    /// Computes the host's own `+` (sets and keyed lists merge); `None` means concatenation.
    fn concat<'v>(&'v self, _view: View<'v>, _other: &List<'v>) -> Option<Result<List<'v>, EvalError>> {
        None
    }
}

/// A concatenation of two lists.
#[derive(Debug)]
pub struct Concat<'v> {
    left: List<'v>,
    right: List<'v>,
    /// Length of the left list.
    split: usize,
    len: usize,
    depth: u32,
}

impl<'v> List<'v> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Shared(elements) => elements.len(),
            Self::Host(host) => host.node.len(host.view),
            Self::Concat(concat) => concat.len,
        }
    }

    /// Returns whether the list has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the element at `index`.
    pub fn get(&self, index: usize) -> Option<Value<'v>> {
        match self {
            Self::Shared(elements) => elements.get(index).cloned(),
            Self::Host(host) => (index < self.len()).then(|| host.node.get(host.view, index)),
            Self::Concat(concat) if index < concat.split => concat.left.get(index),
            Self::Concat(concat) => concat.right.get(index - concat.split),
        }
    }

    /// Iterates over the elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'v>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns the result of `self == other` by the host's own equality, if the list belongs to a host with
    /// its own equality.
    ///
    /// # Errors
    /// The comparison was interrupted.
    pub fn host_equals(&self, other: &List<'v>, steps: &Steps<'_>) -> Option<Result<bool, EvalError>> {
        match self {
            Self::Host(host) => host.node.equals(host.view, other, steps),
            _ => None,
        }
    }

    /// Concatenates `left + right`. If the left list belongs to a host with its own rule for `+`, the rule of
    /// the host applies.
    ///
    /// # Errors
    /// The errors of the host's rule, and [`EvalErrorKind::CostLimit`] for a concatenation that is too long
    /// and too deep.
    pub fn concat(left: &List<'v>, right: &List<'v>) -> Result<List<'v>, EvalError> {
        if let Self::Host(host) = left
            && let Some(merged) = host.node.concat(host.view, right)
        {
            return merged;
        }
        if left.is_empty() {
            return Ok(right.clone());
        }
        if right.is_empty() {
            return Ok(left.clone());
        }
        let too_long = || EvalError { kind: EvalErrorKind::CostLimit, ..EvalError::new("list is too long") };
        let split = left.len();
        let len = split.checked_add(right.len()).ok_or_else(too_long)?;
        let depth = left.depth().max(right.depth()) + 1;
        if len <= COPY_LEN_MAX || depth > ROPE_DEPTH_MAX && len <= FLATTEN_LEN_MAX {
            return Ok(Self::Shared(left.iter().chain(right.iter()).collect()));
        }
        if depth > ROPE_DEPTH_MAX {
            return Err(too_long());
        }
        Ok(Self::Concat(Arc::new(Concat { left: left.clone(), right: right.clone(), split, len, depth })))
    }

    fn depth(&self) -> u32 {
        match self {
            Self::Concat(concat) => concat.depth,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: i64) -> List<'static> {
        List::Shared((0..count).map(Value::Int).collect())
    }

    #[test]
    fn a_list_can_be_doubled_many_times_and_still_be_indexed() {
        let mut list = numbers(100);
        for _ in 0..30 {
            list = List::concat(&list, &list).unwrap();
        }
        assert_eq!(list.len(), 100 << 30);
        assert!(matches!(list.get((100 << 29) + 7), Some(Value::Int(7))));
        assert!(list.get(100 << 30).is_none());
    }

    #[test]
    fn ropes_stay_shallow() {
        let mut list = numbers(100);
        for _ in 0..10_000 {
            list = List::concat(&list, &numbers(1)).unwrap();
            assert!(list.depth() <= ROPE_DEPTH_MAX);
        }
        assert_eq!(list.len(), 10_100);
        assert!(matches!(list.iter().last(), Some(Value::Int(0))));
    }

    #[test]
    fn concatenating_an_empty_list_returns_the_other_list() {
        let list = numbers(3);
        assert!(matches!(List::concat(&list, &numbers(0)), Ok(List::Shared(same)) if same.len() == 3));
        assert!(matches!(List::concat(&numbers(0), &list), Ok(List::Shared(same)) if same.len() == 3));
    }
}
