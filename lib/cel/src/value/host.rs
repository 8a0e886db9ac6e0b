//! Data of the host, read without copying.
//!
//! A [`HostRef`] is a node of the host's data together with the information that the host needs to interpret
//! it, usually a schema. The traits return values that borrow from the node and from the information.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::value::Value;

/// Data that is passed to the accessors of the host, usually the schema of the node.
pub type View<'v> = Option<&'v (dyn Any + Send + Sync)>;

/// A node of the host's data with the host's view of it.
pub struct HostRef<'v, T: ?Sized> {
    /// Node of the data, read through the traits below.
    pub node: &'v T,
    /// View that is passed to every accessor.
    pub view: View<'v>,
}

/// A map of the host, with string keys.
pub trait HostMap: Send + Sync {
    /// Returns the number of entries.
    fn len<'v>(&'v self, view: View<'v>) -> usize;

    /// Returns whether the map has no entries.
    fn is_empty<'v>(&'v self, view: View<'v>) -> bool {
        self.len(view) == 0
    }

    /// Returns the value under `key`, in a time that does not depend on the number of entries.
    fn get<'v>(&'v self, view: View<'v>, key: &str) -> Option<Value<'v>>;

    /// Returns the value of the entry at `index`, which is below [`len`](Self::len).
    fn value_at<'v>(&'v self, view: View<'v>, index: usize) -> Option<Value<'v>>;

    /// Returns the key of the entry at `index`, which is below [`len`](Self::len). The host chooses the
    /// order, which must not change.
    fn key_at<'v>(&'v self, view: View<'v>, index: usize) -> &'v str;
}

/// An object of the host. The [`TypeProvider`](crate::types::TypeProvider) describes its fields to the
/// checker.
pub trait HostObject: Send + Sync {
    /// Returns the name of the object's type.
    fn type_name<'v>(&'v self, view: View<'v>) -> &'v str;

    /// Returns the value of a field; `None` if the field is not set or does not exist.
    fn get<'v>(&'v self, view: View<'v>, field: &str) -> Option<Value<'v>>;

    /// Returns the value of a field, for a host whose fields are computed and may fail.
    ///
    /// # Errors
    /// The error of the host's computation.
    fn try_get<'v>(&'v self, view: View<'v>, field: &str) -> Result<Option<Value<'v>>, EvalError> {
        Ok(self.get(view, field))
    }

    /// Returns whether the object is lazy ([`Object::is_lazy`](super::Object::is_lazy)).
    fn is_lazy(&self) -> bool {
        false
    }

    /// Returns the names of the fields that are set, as expressions write them, in the host's order; used for
    /// equality and output.
    fn fields<'v>(&'v self, view: View<'v>) -> Vec<Cow<'v, str>>;

    /// Returns the number of fields that are set, including those without a name.
    fn len<'v>(&'v self, view: View<'v>) -> usize {
        self.fields(view).len()
    }

    /// Returns whether no field is set.
    fn is_empty<'v>(&'v self, view: View<'v>) -> bool {
        self.len(view) == 0
    }

    /// Compares two objects by the host's own equality, which may include fields without a name. `None` means
    /// that the objects are to be compared field by field.
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

    /// Returns the data of the host, for comparisons of two values of the same host.
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
