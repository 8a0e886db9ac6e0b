//! Values at run time.
//!
//! A value either owns its components through `Arc` or refers to the host's data: strings are borrowed, and
//! each list, map or object of the host is a [`HostRef`], a copyable pair of the host's node and the schema
//! of this node. Values are covariant in their lifetime, so constants (`Value<'static>`) can be used in every
//! evaluation.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::constant::Constant;
use crate::error::EvalError;
use crate::types::Type;

pub use self::host::{HostMap, HostObject, HostRef, View};
pub use self::list::{HostList, List};
pub use self::map::{Map, OwnedMap};
pub use self::object::{Object, OwnedObject};
pub use crate::duration::Duration;
pub use crate::timestamp::Timestamp;

pub(crate) mod describe;
pub mod equality;
pub mod host;
pub mod list;
pub mod map;
pub mod object;

/// A value of the language.
#[derive(Clone, Debug)]
pub enum Value<'v> {
    /// The value `null` of the type `null_type`.
    Null,
    /// A boolean, true or false.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// An unsigned 64-bit integer.
    Uint(u64),
    /// A 64-bit floating point number.
    Double(f64),
    /// A text, borrowed or shared.
    String(Text<'v>),
    /// A byte sequence, borrowed or shared.
    Bytes(Octets<'v>),
    /// A span of time in nanoseconds.
    Duration(Duration),
    /// A point in time.
    Timestamp(Timestamp),
    /// A type as a value.
    Type(Type),
    /// A list of the host or of the evaluation.
    List(List<'v>),
    /// A map of the host or of the evaluation.
    Map(Map<'v>),
    /// An object with a type of the host.
    Object(Object<'v>),
    /// An optional value, possibly empty.
    Optional(Option<Arc<Value<'v>>>),
    /// A value of a library's own type.
    Opaque(Arc<dyn Opaque>),
}

/// A text, borrowed or shared.
#[derive(Clone, Debug)]
pub enum Text<'v> {
    /// Text of the host or of the expression.
    Borrowed(&'v str),
    /// Text created by the evaluation.
    Shared(Arc<str>),
}

/// A byte sequence, borrowed or shared.
#[derive(Clone, Debug)]
pub enum Octets<'v> {
    /// Bytes that the host owns.
    Borrowed(&'v [u8]),
    /// Bytes created by the evaluation.
    Shared(Arc<[u8]>),
}

/// A value of a library's own type: an IP address, a quantity, an authorizer.
pub trait Opaque: fmt::Debug + Send + Sync {
    /// Returns the type, as the checker declares it.
    fn type_of(&self) -> Type;

    /// Compares the value with another opaque value.
    fn equals(&self, other: &dyn Opaque) -> bool;

    /// Returns the size that determines the cost.
    fn size(&self) -> u64 {
        1
    }

    /// Returns the value as `Any`, so that implementations can access the concrete type.
    fn as_any(&self) -> &dyn Any;
}

/// A value of the host that cannot be read, such as a malformed date. The fault replaces the value in a list
/// or as a variable, and becomes an error only if an expression uses the value.
#[derive(Clone, Debug)]
pub struct Fault(pub EvalError);

impl Opaque for Fault {
    fn type_of(&self) -> Type {
        Type::Error
    }

    fn equals(&self, _: &dyn Opaque) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl Deref for Octets<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl<'v> Value<'v> {
    /// Creates a text owned by the evaluation.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    /// Creates a list owned by the evaluation.
    pub fn list(elements: impl Into<Arc<[Value<'v>]>>) -> Self {
        Self::List(List::Shared(elements.into()))
    }

    /// Creates a map owned by the evaluation.
    pub fn map(entries: OwnedMap<'v>) -> Self {
        Self::Map(Map::Shared(Arc::new(entries)))
    }

    /// Creates a value that cannot be read; using it in an expression gives `error`.
    pub fn fault(error: EvalError) -> Self {
        Self::Opaque(Arc::new(Fault(error)))
    }

    /// Returns the value, unless it is a [`Fault`].
    ///
    /// # Errors
    /// The error of the [`Fault`].
    pub fn checked(self) -> Result<Self, EvalError> {
        if let Self::Opaque(opaque) = &self
            && let Some(Fault(error)) = opaque.as_any().downcast_ref()
        {
            return Err(error.clone());
        }
        Ok(self)
    }

    /// Creates an optional with a value.
    pub fn some(value: Value<'v>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Returns the result of `size(x)`: code points, bytes, elements or entries. `None` for values without a
    /// size.
    pub fn size(&self) -> Option<usize> {
        Some(match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Object(object) => object.len(),
            _ => return None,
        })
    }

    /// Returns the size that determines the cost: the size of the value, or of the value in an optional;
    /// otherwise 1.
    pub fn cost_size(&self) -> u64 {
        match self {
            Self::Optional(Some(value)) => value.cost_size(),
            Self::Opaque(opaque) => opaque.size(),
            other => other.size().map_or(1, |size| size as u64),
        }
    }

    /// Returns the name of the value's type at run time.
    pub fn type_name(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(object) => object.type_name(),
            Self::Optional(_) => "optional_type",
            Self::Opaque(opaque) => return Cow::Owned(opaque.type_of().runtime_name().to_string()),
        })
    }

    /// Returns the type of the value. At run time, the parameters of lists and maps are `dyn`.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Type(_) => Type::Type(None),
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Object(object) => Type::object(object.type_name()),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Opaque(opaque) => opaque.type_of(),
        }
    }
}

impl From<&Constant> for Value<'static> {
    fn from(constant: &Constant) -> Self {
        match constant {
            Constant::Null => Self::Null,
            Constant::Bool(b) => Self::Bool(*b),
            Constant::Int(i) => Self::Int(*i),
            Constant::Uint(u) => Self::Uint(*u),
            Constant::Double(d) => Self::Double(*d),
            Constant::String(text) => Self::String(Text::Shared(text.clone())),
            Constant::Bytes(bytes) => Self::Bytes(Octets::Shared(bytes.clone())),
        }
    }
}
