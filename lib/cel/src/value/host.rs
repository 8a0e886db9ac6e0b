//! Data of the host, read in place.
//!
//! A [`HostRef`] is a node of the host's data together with what the host needs to interpret it, usually a schema. The
//! traits hand out values that borrow from both.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::value::Value;
use crate::value::list::List;

/// What the host passes through to its own accessors: usually the schema of the node.
pub type View<'v> = Option<&'v (dyn Any + Send + Sync)>;

/// A node of the host's data with the host's view of it.
pub struct HostRef<'v, T: ?Sized> {
    /// The data, read through the traits below.
    pub node: &'v T,
    /// Handed to every accessor.
    pub view: View<'v>,
}

/// A list of the host.
pub trait HostList: Send + Sync {
    /// Number of elements.
    fn len<'v>(&'v self, view: View<'v>) -> usize;

    /// Whether there are no elements.
    fn is_empty<'v>(&'v self, view: View<'v>) -> bool {
        self.len(view) == 0
    }

    /// The element at `index`, which is below [`len`](Self::len).
    fn get<'v>(&'v self, view: View<'v>, index: usize) -> Value<'v>;

    /// The host's own equality (sets ignore order); `None`: element by element.
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

    /// The host's own `+` (sets and keyed lists merge); `None`: concatenation.
    fn concat<'v>(&'v self, _view: View<'v>, _other: &List<'v>) -> Option<Result<List<'v>, EvalError>> {
        None
    }
}

/// A map of the host, with string keys.
pub trait HostMap: Send + Sync {
    /// Number of entries.
    fn len<'v>(&'v self, view: View<'v>) -> usize;

    /// Whether there are no entries.
    fn is_empty<'v>(&'v self, view: View<'v>) -> bool {
        self.len(view) == 0
    }

    /// The value under `key`, in a time that does not depend on the number of entries.
    fn get<'v>(&'v self, view: View<'v>, key: &str) -> Option<Value<'v>>;

    /// The value of the entry at `index`, which is below [`len`](Self::len).
    fn value_at<'v>(&'v self, view: View<'v>, index: usize) -> Option<Value<'v>>;

    /// The key of the entry at `index`, which is below [`len`](Self::len); the order is the host's and stays the same.
    fn key_at<'v>(&'v self, view: View<'v>, index: usize) -> &'v str;
}

/// An object of the host. The checker knows its fields from the [`TypeProvider`](crate::types::TypeProvider).
pub trait HostObject: Send + Sync {
    /// Name of its type.
    fn type_name<'v>(&'v self, view: View<'v>) -> &'v str;

    /// The value of a field that is set; `None` when it is not set or does not exist.
    fn get<'v>(&'v self, view: View<'v>, field: &str) -> Option<Value<'v>>;

    /// The value of a field that is set, for a host that computes fields and may fail to.
    ///
    /// # Errors
    /// The host's.
    fn try_get<'v>(&'v self, view: View<'v>, field: &str) -> Result<Option<Value<'v>>, EvalError> {
        Ok(self.get(view, field))
    }

    /// Whether the object is lazy ([`Object::is_lazy`](super::Object::is_lazy)).
    fn is_lazy(&self) -> bool {
        false
    }

    /// Names of the fields that are set, as expressions ask for them, in the host's order; for equality and output.
    fn fields<'v>(&'v self, view: View<'v>) -> Vec<Cow<'v, str>>;

    /// Number of the fields that are set, and of those that have no name.
    fn len<'v>(&'v self, view: View<'v>) -> usize {
        self.fields(view).len()
    }

    /// Whether no field is set.
    fn is_empty<'v>(&'v self, view: View<'v>) -> bool {
        self.len(view) == 0
    }

    /// The host's own equality, which may look at fields without a name; `None`: field by field.
    ///
    /// # Errors
    /// The comparison was interrupted.
    fn equals<'v>(
        &'v self,
        _view: View<'v>,
        _other: HostRef<'v, dyn HostObject + 'v>,
        _steps: &Steps<'_>,
    ) -> Option<Result<bool, EvalError>> {
        None
    }

    /// The host's data, for its own equality.
    fn data(&self) -> Option<&dyn Any> {
        None
    }
}

impl<T: ?Sized> Clone for HostRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for HostRef<'_, T> {}

impl<T: ?Sized> fmt::Debug for HostRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostRef")
    }
}
