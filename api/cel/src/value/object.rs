//! Objects: values with declared fields, made by a struct literal or the host's.

use std::sync::Arc;

use crate::ast::Name;
use crate::error::EvalError;
use crate::value::Value;
use crate::value::host::{HostObject, HostRef};

/// An object with declared fields, owned or the host's.
#[derive(Clone, Debug)]
pub enum Object<'v> {
    /// An object made by a struct literal.
    Shared(Arc<OwnedObject<'v>>),
    /// An object of the host, read in place.
    Host(HostRef<'v, dyn HostObject + 'v>),
}

/// An object made by a struct literal.
#[derive(Clone, Debug)]
pub struct OwnedObject<'v> {
    /// Name of its type.
    pub type_name: Name,
    /// The fields that were set, in order.
    pub fields: Vec<(Name, Value<'v>)>,
}

impl<'v> Object<'v> {
    /// Name of its type.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Shared(object) => &object.type_name,
            Self::Host(host) => host.node.type_name(host.view),
        }
    }

    /// The value of a field that is set.
    ///
    /// # Errors
    /// Those of a host that computes the field.
    pub fn get(&self, field: &str) -> Result<Option<Value<'v>>, EvalError> {
        match self {
            Self::Shared(object) => {
                Ok(object.fields.iter().find(|(name, _)| **name == *field).map(|(_, value)| value.clone()))
            }
            Self::Host(host) => host.node.try_get(host.view, field),
        }
    }

    /// Names of the fields that are set.
    pub fn fields(&self) -> Vec<&str> {
        match self {
            Self::Shared(object) => object.fields.iter().map(|(name, _)| &**name).collect(),
            Self::Host(host) => host.node.fields(host.view),
        }
    }
}
