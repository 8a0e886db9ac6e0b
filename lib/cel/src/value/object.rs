//! Objects: values with declared fields, from a struct literal or from the host.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::EvalError;
use crate::identifier::unescape;
use crate::name::Name;
use crate::value::Value;
use crate::value::host::{HostObject, HostRef, View};

/// An object with declared fields, owned or from the host.
#[derive(Clone, Debug)]
pub enum Object<'v> {
    /// An object created by a struct literal.
    Shared(Arc<OwnedObject<'v>>),
    /// An object of the host, read without copying.
    Host(HostRef<'v, dyn HostObject + 'v>),
}

/// An object that a struct literal created, or a lazy object.
#[derive(Clone, Debug)]
pub struct OwnedObject<'v> {
    /// Name of the object's type.
    pub type_name: Name,
    /// Fields that are set, in order.
    pub fields: Vec<(Name, Value<'v>)>,
    /// Whether the object is lazy ([`Object::is_lazy`]).
    pub is_lazy: bool,
}

impl<'v> Object<'v> {
    /// Returns the name of the object's type.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Shared(object) => &object.type_name,
            Self::Host(host) => host.node.type_name(host.view),
        }
    }

    /// Returns whether the object is one of the reference's lazy maps. The fields of the object are selected
    /// and indexed by identifiers. A loop over the object visits the values of the fields, not their names.
    /// The object equals only itself, and supports neither `size` nor `in`.
    pub fn is_lazy(&self) -> bool {
        match self {
            Self::Shared(object) => object.is_lazy,
            Self::Host(host) => host.node.is_lazy(),
        }
    }

    /// Returns the elements that a loop over a lazy object visits. A value that cannot be read is a fault.
    pub fn elements(&self) -> Vec<Value<'v>> {
        let element = |name: Cow<'_, str>| self.look_up(&Value::string(&*name)).unwrap_or_else(Value::fault);
        self.fields().into_iter().map(element).collect()
    }

    /// Returns the value under a key of a lazy object.
    ///
    /// # Errors
    /// The value does not exist, the key is not text, or the host fails.
    pub fn look_up(&self, key: &Value<'v>) -> Result<Value<'v>, EvalError> {
        let Value::String(name) = key else { return Err(EvalError::no_such_overload()) };
        self.get(name)?.ok_or_else(|| EvalError::new(format!("no such key: {}", &**name)))
    }

    /// Returns whether `self` and `other` are the same object in memory.
    pub fn is(&self, other: &Object<'v>) -> bool {
        let address = |view: View<'v>| view.map(std::ptr::from_ref).map(<*const _>::cast::<()>);
        match (self, other) {
            (Self::Shared(a), Self::Shared(b)) => Arc::ptr_eq(a, b),
            (Self::Host(a), Self::Host(b)) => {
                std::ptr::addr_eq(a.node, b.node) && address(a.view) == address(b.view)
            }
            _ => false,
        }
    }

    /// Returns the value of a field that is set.
    ///
    /// # Errors
    /// The error of a host that computes the field.
    pub fn get(&self, field: &str) -> Result<Option<Value<'v>>, EvalError> {
        if !self.is_lazy() {
            return self.get_exact(field);
        }
        unescape(field).map_or(Ok(None), |name| self.get_exact(&name))
    }

    fn get_exact(&self, field: &str) -> Result<Option<Value<'v>>, EvalError> {
        match self {
            Self::Shared(object) => {
                Ok(object.fields.iter().find(|(name, _)| **name == *field).map(|(_, value)| value.clone()))
            }
            Self::Host(host) => host.node.try_get(host.view, field),
        }
    }

    /// Returns the names of the fields that are set.
    pub fn fields(&self) -> Vec<Cow<'_, str>> {
        match self {
            Self::Shared(object) => object.fields.iter().map(|(name, _)| Cow::Borrowed(&**name)).collect(),
            Self::Host(host) => host.node.fields(host.view),
        }
    }

    /// Returns the number of fields that are set, including those without a name.
    pub fn len(&self) -> usize {
        match self {
            Self::Shared(object) => object.fields.len(),
            Self::Host(host) => host.node.len(host.view),
        }
    }

    /// Returns whether no field is set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
